"""What tests of links share: a link with what came to it, and events to send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any

from operad.plugin import Delivery, Event, Link
from operad.transports import Transport


class Participant:
    """A link and what came to it."""

    link: Link
    transport: Any

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.deliveries: list[Delivery] = []
        self.states: list[tuple[str, int]] = []
        self._changed = asyncio.Event()

    async def open(self, transport: Transport) -> Participant:
        self.transport = transport
        self.link = await transport.open(self._on_event, self._on_link)
        return self

    def _on_event(self, event: Event, delivery: Delivery) -> None:
        assert delivery.identity is None
        self.events.append(event)
        if delivery.done is not None:
            self.deliveries.append(delivery)
        self._changed.set()

    def _on_link(self, state: str, epoch: int) -> None:
        self.states.append((state, epoch))
        self._changed.set()

    async def until(self, condition: Callable[[], bool], timeout: float = 10) -> None:
        async with asyncio.timeout(timeout):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


async def until(condition: Callable[[], Any], timeout: float = 20) -> None:
    """Return when a condition is met; it may be asynchronous."""
    async with asyncio.timeout(timeout):
        while not (await met if isawaitable(met := condition()) else met):
            await asyncio.sleep(0.01)


Joiner = Callable[..., Awaitable[Participant]]


@asynccontextmanager
async def joining(make: Callable[..., Transport]) -> AsyncIterator[Joiner]:
    """Yield a function that makes participants, with the options of a transport; close them."""
    joined: list[Participant] = []

    async def join(*url: str, **options: Any) -> Participant:
        joined.append(await Participant().open(make(*url, **options)))
        return joined[-1]

    yield join
    for participant in joined:
        await participant.link.close()


def request(number: int, operation_id: str = "test.op", **payload: Any) -> Event:
    return {
        "type": "call.requested",
        "id": "",
        "payload": {"requestId": f"r{number}", "operationId": operation_id, "input": None, **payload},
    }


def news(number: int) -> Event:
    return {"type": "news", "id": "", "payload": {"number": number}}


RUBBISH = (b"", b"\xff\xfe", b"[1]", b'"x"', b"{}", b'{"type": 1}', b"{" * 10_000, b'{"type":"x","payload":[]}')
"""Bytes that are no event."""
