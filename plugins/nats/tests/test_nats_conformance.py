"""The conformance kit of transports over a real NATS server, which a test may kill and start again."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from operad.transports import Transport
from operad_nats import NATSTransport
from operad_nats.testing import NATSServer
from operad_testing import TransportConformance

pytestmark = pytest.mark.nats


@pytest.fixture(scope="class")
def server(request: pytest.FixtureRequest) -> Iterator[NATSServer | None]:
    """A server of our own, or none where the environment names one."""
    if "OPERAD_TEST_NATS_URL" in os.environ:
        yield None
        return
    with request.getfixturevalue("new_server")() as server:
        yield server


class TestNATS(TransportConformance):
    server: NATSServer | None

    @pytest.fixture(autouse=True)
    def _use(self, server: NATSServer | None) -> None:
        self.server = server

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[Transport]:
        url = os.environ["OPERAD_TEST_NATS_URL"] if self.server is None else self.server.url
        yield NATSTransport(
            servers=url, prefix="kit" + secrets.token_hex(4), reconnect_wait=0.05, connect_timeout=20.0
        )

    async def sever(self, transport: Transport) -> None:
        if self.server is None:
            raise NotImplementedError
        self.server.kill()
        self.server.start()
