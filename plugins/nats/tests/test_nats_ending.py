"""Connecting that is given up in the very turn of the event loop in which an attempt ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.aio.transport import TcpTransport

from operad_nats import NATSResults, NATSTransport
from operad_nats.testing import NATSServer
from plugins.calls.tests.links import until

pytestmark = pytest.mark.nats

NOBODY = "nats://127.0.0.1:9"


class Losing:
    """Attempts to connect: the first one loses its cancellation, as `asyncio.wait_for` does, and the rest wait."""

    def __init__(self) -> None:
        self.attempts = 0

    async def connect(self, *_: Any, **__: Any) -> None:
        self.attempts += 1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if self.attempts == 1:
                raise ConnectionRefusedError from None
            raise


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def test_an_opening_that_is_given_up_ends_though_nats_py_loses_the_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losing = Losing()
    monkeypatch.setattr(TcpTransport, "connect", losing.connect)
    transport = NATSTransport(servers=NOBODY, connect_timeout=60.0)
    opening = asyncio.ensure_future(transport.open(lambda *_: None, lambda *_: None))
    while not losing.attempts:
        await asyncio.sleep(0)
    opening.cancel()
    assert await asyncio.wait({opening}, timeout=20) == ({opening}, set())
    assert opening.cancelled()
    assert others() == set()


async def test_a_store_whose_server_is_away_gives_up_though_nats_py_loses_the_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losing = Losing()
    monkeypatch.setattr(TcpTransport, "connect", losing.connect)
    async with NATSResults(NOBODY, timeout=0.2) as store:
        claiming = asyncio.ensure_future(store.claim("k", b"v", 60))
        assert await asyncio.wait({claiming}, timeout=20) == ({claiming}, set())
        assert isinstance(claiming.exception(), TimeoutError)
    assert others() == set()


async def test_a_link_that_is_closed_while_it_comes_back_does_so_no_more(
    nats_server: NATSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = NATSTransport(servers=nats_server.url, connect_timeout=20.0, reconnect_wait=0.05)
    link = await transport.open(lambda *_: None, lambda *_: None)
    losing = Losing()
    monkeypatch.setattr(TcpTransport, "connect", losing.connect)
    nats_server.kill()
    await until(lambda: losing.attempts)
    await link.close()
    assert others() == set()
