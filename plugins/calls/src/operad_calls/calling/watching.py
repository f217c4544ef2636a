"""Calls of a call map, as observers see them."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from operad.envelopes import ResponseEnvelope
from operad.observers import CallRecord, Observers, Watch
from operad_calls.requests import TRACE, Said

Envelope = ResponseEnvelope[Any]


class _Carried:
    """What a call says of itself, as what carries metadata."""

    __slots__ = ("metadata", "watch")

    def __init__(self, said: Said) -> None:
        given = {name: getattr(said, name) for name in TRACE}
        self.metadata: Mapping[str, Any] = {name: value for name, value in given.items() if value is not None}
        self.watch: Watch | None = None

    def hand_over(self, said: Said) -> None:
        """Have the call carry what observers added."""
        for name in TRACE:
            setattr(said, name, self.metadata.get(name))


async def watched_call(
    observers: Observers, said: Said, request_id: str, start: Callable[[], Awaitable[Envelope]]
) -> Envelope:
    """A call, told to observers. Raises `CallError`.

    Args:
        observers: who is told.
        said: the call.
        request_id: the id of its (first) request.
        start: makes the call.
    """
    carried, said.request_id = _Carried(said), request_id
    with observers.watch(_record(said, request_id, carried), carried) as watch:
        carried.hand_over(said)
        envelope = await start()
        watch.items = 1
        return envelope


async def watched_stream(
    observers: Observers, said: Said, request_id: str, start: Callable[[], AsyncGenerator[Envelope, None]]
) -> AsyncGenerator[Envelope, None]:
    """A subscription, told to observers from its first reading on; as `watched_call`."""
    carried, said.request_id = _Carried(said), request_id
    with observers.watch(_record(said, request_id, carried, is_stream=True), carried) as watch:
        carried.hand_over(said)
        async with aclosing(start()) as items:
            async for envelope in items:
                watch.items += 1
                yield envelope


def _record(said: Said, request_id: str, carried: _Carried, *, is_stream: bool = False) -> CallRecord:
    return CallRecord(
        request_id,
        said.parent_request_id,
        said.operation_id,
        None,
        None if said.identity is None else said.identity.id,
        time.time() * 1000,
        is_stream,
        carried.metadata,
        is_outgoing=True,
    )
