"""Subscriptions: streams of envelopes that are closed when the consumer leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from operad.envelopes import ResponseEnvelope

if TYPE_CHECKING:
    from typing import Self

Envelope = ResponseEnvelope[Any]

_closing: set[asyncio.Task[None]] = set()
"""Streams being closed, kept here because the event loop holds tasks only weakly."""


def subscribe(target: Any, operation_id: str, input: Any = None, **options: Any) -> Subscription:
    """Subscribe to an operation of ``target``, a registry or a call map, with the options of its ``subscribe``."""
    subscription: Subscription = target.subscribe(operation_id, input, **options)
    return subscription


class Subscription(AsyncIterator[Envelope]):
    """A stream of envelopes.

    Iterate it (``async for``), and close it (``await aclose()``, ``async with``). Leaving a loop early also closes
    the stream, in this process and in the process that sends the items, so only one loop can iterate it. Iterating
    raises `CallError` if the stream ends with an error, and `RuntimeError` while another task waits for an item.
    """

    __slots__ = ("__weakref__", "_close_done", "_closed", "_items", "_reader", "_reader_gone", "_report")

    def __init__(self, items: AsyncGenerator[Envelope, None], report: Callable[..., None] | None = None) -> None:
        self._items = items
        self._report = report
        self._closed = False
        self._close_done: asyncio.Future[None] | None = None
        self._reader: asyncio.Task[Any] | None = None
        self._reader_gone: asyncio.Future[None] | None = None
        """Set while `aclose`, which has cancelled the reader, waits for it to leave the generator."""

    @property
    def items(self) -> AsyncGenerator[Envelope, None]:
        """The generator behind the subscription, without its checks, for a caller that is the only reader."""
        return self._items

    def report(self, kind: str, message: str | None = None, **fields: Any) -> None:
        """Send a report of the reader to the observers of the call; arguments as for `OperationContext.report`."""
        if self._report is not None:
            self._report(kind, message, **fields)

    def __aiter__(self) -> AsyncIterator[Envelope]:  # noqa: PYI034  # see below: deliberately not self
        # Only the loop holds this iterator: when the loop is left, the iterator is deleted, which closes the
        # stream.
        return _Loop(self)

    async def __anext__(self) -> Envelope:
        if self._closed:
            raise StopAsyncIteration
        if self._reader is not None:
            raise RuntimeError("another task is already reading this subscription; subscribe once for each reader")
        self._reader = task = asyncio.current_task()
        assert task is not None
        requested = task.cancelling()
        try:
            envelope = await self._items.__anext__()
        except BaseException as error:
            self._closed = True
            if self._told_to_leave(task, requested) and isinstance(error, asyncio.CancelledError):
                raise StopAsyncIteration from None
            raise
        else:
            if self._told_to_leave(task, requested):
                raise StopAsyncIteration
            return envelope
        finally:
            self._reader = None
            if self._reader_gone is not None:
                self._reader_gone.set_result(None)
                self._reader_gone = None

    def _told_to_leave(self, task: asyncio.Task[Any], requested: int) -> bool:
        """Return True if only `aclose` of another task cancelled the wait, and undo that cancellation request."""
        return self._reader_gone is not None and task.uncancel() <= requested

    async def aclose(self) -> None:
        """Close the stream and its generator; idempotent. The loop of a task that waits for an item then ends."""
        self._closed = True
        if self._close_done is not None:  # another task, or a loop that was left, is closing it
            await asyncio.shield(self._close_done)
            return
        self._close_done = done = asyncio.get_running_loop().create_future()
        try:
            reader = self._reader
            if reader is not None and reader is not asyncio.current_task():
                self._reader_gone = gone = asyncio.get_running_loop().create_future()
                reader.cancel()
                await asyncio.shield(gone)
            await self._items.aclose()
        finally:
            done.set_result(None)

    def _close_soon(self) -> None:
        if self._closed:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the loop is closed, and with it everything that could be closed
            return
        closing = loop.create_task(self.aclose())
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Loop(AsyncIterator[Envelope]):
    """The iterator of one ``async for``."""

    __slots__ = ("_subscription",)

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def __anext__(self) -> Envelope:
        # A coroutine of its own, so that ``anext(aiter(subscription))`` keeps this object until the item is here.
        return await self._subscription.__anext__()

    def __del__(self) -> None:
        self._subscription._close_soon()


async def close(items: Any) -> None:
    """Close an asynchronous iterator, if it has a method ``aclose``."""
    aclose = getattr(items, "aclose", None)
    if aclose is not None:
        await aclose()
