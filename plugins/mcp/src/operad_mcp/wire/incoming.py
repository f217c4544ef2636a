"""The reading side of a transport of ours: messages, queued as they arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

KEPT = 256
"""Messages that wait for the session; a transport pauses here, and progress beyond it is not worth waiting for."""
EDGE = 512
"""Bytes of the beginning and the end of an unreadable message in which its id is looked for."""


class Incoming:
    """The SDK's read stream.

    What a server logs does not queue with its answers: it goes to ``on_log`` at once, because a session takes a
    millisecond for each, and a server may log faster.

    Args:
        on_log: takes the parameters of ``notifications/message``.
    """

    def __init__(self, on_log: Callable[[Mapping[str, Any]], None]) -> None:
        self._on_log = on_log
        self._items: deque[tuple[SessionMessage, Context | None]] = deque()
        self.last_context: Context | None = None
        """The context in which the message that was read last arrived; the SDK answers a request within it."""
        self._reader: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._ended = False
        self.left_out = 0
        """Progress that was not passed on, because there was too much of it."""

    @property
    def ended(self) -> bool:
        """Whether no message will be added."""
        return self._ended

    @property
    def crowded(self) -> bool:
        """Whether more messages wait than should."""
        return len(self._items) >= KEPT

    def add(self, item: SessionMessage) -> None:
        """Queue a message."""
        method = getattr(item.message, "method", None)
        if method == "notifications/message":
            self._on_log(getattr(item.message, "params", None) or {})
        elif method == "notifications/progress" and self.crowded:
            self.left_out += 1
        else:
            is_request = method is not None and hasattr(item.message, "id")
            self._items.append((item, copy_context() if is_request else None))
            self._wake()

    async def room(self) -> None:
        """Wait until fewer messages wait than `KEPT`."""
        while self.crowded and not self._ended:
            if self._room is None or self._room.done():
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def end(self) -> None:
        """No more messages; those that wait are still read."""
        self._ended = True
        self._wake()
        self._make_room()

    def taken(self) -> None:
        """Called when all that waited was read. For transports that paused."""

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # --- the SDK's stream ----------------------------------------------------------------------

    async def receive(self) -> SessionMessage | Exception:
        """The next message. Raises `anyio.EndOfStream` at the end."""
        import anyio

        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self.taken()
            self._make_room()
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        item, self.last_context = self._items.popleft()
        return item

    async def aclose(self) -> None:
        """Nothing: what is open closes with the transport's context."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None
