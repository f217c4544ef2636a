"""The cancellation of calls whose clients disconnect."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from operad_serve.asgi import ClientGoneError, Receive

_WATCH_AFTER = 0.02
"""Seconds between ticks. A connection is watched from the second tick of its call; a quick call costs no task."""


class Sweep:
    """A timer for all calls of a server, which starts to watch the connections of calls that take long."""

    def __init__(self) -> None:
        self._waiting: dict[Watch, None] = {}
        self._grown: list[Watch] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that has the timer. A host may run an application in several loops, one after the other."""

    def add(self, watch: Watch) -> None:
        """Add the watch of a call that begins."""
        self._waiting[watch] = None
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(_WATCH_AFTER, self._tick)

    def discard(self, watch: Watch) -> None:
        """Remove the watch of a call that has ended."""
        self._waiting.pop(watch, None)

    def _tick(self) -> None:
        # Calls that were here at the last tick have taken long enough.
        old = [watch for watch in self._grown if watch in self._waiting]
        for watch in old:
            del self._waiting[watch]
            watch.listen()
        self._grown = list(self._waiting)
        loop = asyncio.get_running_loop()
        if self._waiting:
            loop.call_later(_WATCH_AFTER, self._tick)
        elif self._loop is loop:
            self._loop = None


class Watch:
    """A context that cancels its body when the client leaves, and raises `ClientGoneError` then.

    Args:
        receive: the ASGI receive function of the request, whose body has been read.
        sweep: the timer that starts the watch if the call takes long.
    """

    __slots__ = ("__weakref__", "_is_gone", "_listener", "_receive", "_sweep", "_task")

    def __init__(self, receive: Receive, sweep: Sweep) -> None:
        self._receive = receive
        self._sweep = sweep
        self._task: asyncio.Task[Any] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._is_gone = False

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._sweep.add(self)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        listener, task = self._listener, self._task
        if listener is None:
            self._sweep.discard(self)
            return
        if not listener.done():
            listener.cancel()
            # `await listener` would swallow a cancellation of this task together with the listener's own.
            await asyncio.wait([listener])
        assert task is not None
        # Without an exception, the body has swallowed the cancellation. Any other exception passes.
        is_own = exc is None or isinstance(exc, asyncio.CancelledError)
        if self._is_gone and is_own and task.uncancel() == 0:
            raise ClientGoneError from None

    def listen(self) -> None:
        """Start to watch the connection."""
        self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if self._task is not None:
            self._task.cancel()
