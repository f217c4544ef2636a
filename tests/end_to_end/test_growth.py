"""What grows in step with what there is, by lines of operad's own code that run: no clock is read in here."""

from __future__ import annotations

import asyncio
import base64
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import FrameType, SimpleNamespace
from typing import Any, Self

import attrs
import pytest

from operad import CallHandler, OperationRegistry, OperationSpec, from_remote
from operad.plugin import Source
from operad_calls import InProcessTransport
from operad_calls.federation import remote
from operad_testing import make_plugin, plugins_of
from operad_websocket import Hub, Limits


class Work:
    """Counts lines that run in a package while it is open, in this thread; a loop's line counts at each turn."""

    def __init__(self, package: str) -> None:
        self._package = package
        self.lines = 0

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_globals.get("__name__", "")
        return self._on_line if name.split(".")[0] == self._package else None

    def _on_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.lines += 1
        return self._on_line


# --- describing -------------------------------------------------------------------------------------------


@attrs.frozen
class NoOptions:
    pass


async def first_uses(number: int, monkeypatch: pytest.MonkeyPatch, together: bool) -> tuple[int, int]:
    """Lines that run for the first use of each of so many operations of a peer, and operations told of."""
    served, transport, told = OperationRegistry(), InProcessTransport(), 0

    async def answer(input: Any, context: Any) -> str:
        return "done"

    for name in range(number):
        served.register(OperationSpec(namespace="t", name=f"n{name}", type="query"), answer)

    def tell(operations: Any) -> None:
        nonlocal told
        told += len(operations)

    work = Work("operad")
    # Telling of operations is put off by what it cost, so the clock is the work itself: a line takes so long.
    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: work.lines / 1e5))
    # Timers keep to the real clock: on a busy machine more of them would end while the same lines run.
    loop = asyncio.get_running_loop()
    call_later = loop.call_later
    monkeypatch.setattr(loop, "call_later", lambda delay, *rest, **named: call_later(delay + 3600, *rest, **named))
    async with CallHandler(served, transport):
        session = await from_remote(transport)
        session.on_change(tell)

        async def load(config: NoOptions, context: Any) -> Any:
            return session

        source = make_plugin("peers", operad_sources=[Source("peers", load, NoOptions)])
        async with OperationRegistry(plugins_of(source)) as here:
            await here.load("peers")
            ids = [spec.id for spec in here.specs()]
            assert len(ids) == number
            with work:
                if together:
                    await asyncio.gather(*(here.execute(operation_id, {}) for operation_id in ids))
                else:
                    for operation_id in ids:
                        await here.execute(operation_id, {})
    return work.lines, told


@pytest.mark.parametrize("together", [False, True])
async def test_the_first_uses_of_operations_of_peers_cost_as_much_as_there_are_operations(
    together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is described by itself: no list is made anew, and nobody told of all of them, for each first use."""
    few, told_of_few = await first_uses(40, monkeypatch, together)
    many, told_of_many = await first_uses(320, monkeypatch, together)
    assert many < 8 * few * 1.3
    assert max(told_of_few / 40, told_of_many / 320) <= 10, "times that each was told of"


# --- room at a hub ------------------------------------------------------------------------------------------

HANDSHAKE = (
    "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@asynccontextmanager
async def spoke(hub: Hub) -> AsyncIterator[None]:
    """A connection to a hub, of bytes alone: what runs for it is the hub's."""
    before = hub.connections
    reader, writer = await asyncio.open_connection("127.0.0.1", int(hub.url.rsplit(":", 1)[1]))
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    writer.write(HANDSHAKE.format(key=key).encode())
    try:
        assert b" 101 " in await reader.readline()
        while hub.connections == before:
            await asyncio.sleep(0)
        yield
    finally:
        writer.write(b"\x88\x80\0\0\0\0")  # RFC 6455, 5.5.1: a close frame of a client
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        while hub.connections > before:
            await asyncio.sleep(0)


async def test_one_more_spoke_costs_a_hub_as_much_beside_a_thousand_as_beside_ten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To take it, to look for room, to count it and to let it go."""
    monkeypatch.setattr("operad_websocket.hub._SWEEP", 600.0)  # what looks at all of them, now and then
    limits = Limits(links=2_000, handshake=600.0)
    costs = []
    async with Hub(port=0, limits=limits, ping=600.0) as hub, AsyncExitStack() as spokes:
        for number in (10, 1_000):
            while hub.connections < number:
                await spokes.enter_async_context(spoke(hub))
            with Work("operad_websocket") as work:
                async with spoke(hub):
                    assert hub.connections == number + 1
            assert hub.connections == number
            costs.append(work.lines)
    assert 0 < costs[1] < costs[0] + 50
