"""Reports of the calls of a call map to observers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from operad.envelopes import ResponseEnvelope
from operad.observers import CallRecord, Observers, StreamWatch, Watch
from operad_calls.requests import TRACE, CallRequest

Envelope = ResponseEnvelope[Any]


class _Carrier:
    """The trace of a call as metadata, which observers may replace."""

    def __init__(self, call: CallRequest) -> None:
        given = {name: getattr(call, name) for name in TRACE}
        self.metadata: Mapping[str, Any] = {name: value for name, value in given.items() if value is not None}
        self.watch: Watch | None = None

    def update(self, call: CallRequest) -> None:
        """Copy the trace that observers have set to the call."""
        for name in TRACE:
            setattr(call, name, self.metadata.get(name))


async def watched_call(
    observers: Observers, call: CallRequest, request_id: str, start: Callable[[], Awaitable[Envelope]]
) -> Envelope:
    """Make a call and report it to observers. Raises the `CallError` of a failed call.

    Args:
        observers: the observers.
        call: the call.
        request_id: the id of the first request of the call.
        start: makes the call.
    """
    carrier, call.request_id = _Carrier(call), request_id
    with Watch(observers, _record(call, request_id, carrier), carrier) as watch:
        carrier.update(call)
        envelope = await start()
        watch.items = 1
        return envelope


async def watched_stream(
    observers: Observers, call: CallRequest, request_id: str, start: Callable[[], AsyncGenerator[Envelope, None]]
) -> AsyncGenerator[Envelope, None]:
    """Yield the items of a subscription, and report it to observers. The arguments are as in `watched_call`."""
    carrier, call.request_id = _Carrier(call), request_id
    with StreamWatch(observers, _record(call, request_id, carrier, is_stream=True), carrier) as watch:
        carrier.update(call)
        async with aclosing(start()) as items:
            async for envelope in items:
                watch.items += 1
                yield envelope


def _record(call: CallRequest, request_id: str, carrier: _Carrier, *, is_stream: bool = False) -> CallRecord:
    return CallRecord(
        request_id,
        call.parent_request_id,
        call.operation_id,
        None,
        None if call.identity is None else call.identity.id,
        time.time() * 1000,
        is_stream,
        carrier.metadata,
        is_outgoing=True,
        input=call.input,
    )
