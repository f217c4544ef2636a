"""One HTTP exchange over ASGI 3: reading within bounds, answering, noticing that the client left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from operad import Identity

Header = tuple[bytes, bytes]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_WATCH_AFTER = 0.02
"""Seconds after which somebody begins to listen whether the client is still there; a quick call costs no task."""

SECURITY: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    # An answer may be whatever an upstream sent: it must not run as a page of this origin.
    (b"content-security-policy", b"default-src 'none'; sandbox"),
)


class BodyError(Exception):
    """The request's body cannot be had: ``status`` says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ClientGoneError(Exception):
    """The client has closed the connection: there is nobody to answer."""


class Exchange:
    """A request, and the way to answer it.

    Args:
        scope: of ASGI.
        receive: of ASGI.
        send: of ASGI.
        path: what follows the application's own root, decoded.
    """

    __slots__ = (
        "_extra",
        "_receive",
        "_send",
        "headers",
        "identity",
        "is_local",
        "method",
        "path",
        "request_id",
        "scope",
        "started",
    )

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send, path: str) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        self.path = path
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.identity: Identity | None = None
        self.request_id = ""
        self.is_local = False
        """Whether the request came to a loopback address, by one of its names."""
        self.started = False
        """Whether the answer has begun."""
        self._extra: list[Header] = []

    def header(self, name: str) -> str | None:
        """A header of the request; names are lower case."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")

    def add_header(self, name: bytes, value: str) -> None:
        """A header that the answer will have, whatever it is."""
        self._extra.append((name, value.encode("latin-1", "replace")))

    # --- reading ---------------------------------------------------------------------------------

    async def body(self, limit: int, timeout: float) -> bytes:
        """The whole body.

        Raises:
            BodyError: it is larger than ``limit`` bytes (413), or not here after ``timeout`` seconds (408).
            ClientGoneError: the client left before it was complete.
        """
        declared = self.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            body: bytes = message.get("body", b"")
            if len(body) > limit:
                raise _too_large(limit)
            return body
        try:
            async with asyncio.timeout(timeout):
                return await self._rest(message, limit)
        except TimeoutError:
            raise BodyError(408, f"the body did not come within {timeout:g} s (body_timeout)") from None

    async def _rest(self, message: Any, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)
            message = await self._receive()

    @asynccontextmanager
    async def cancelled_with_client(self, *, at_once: bool = False) -> AsyncIterator[None]:
        """Cancels what runs inside when the client leaves, which is then a `ClientGoneError`.

        Args:
            at_once: listen from the beginning; else only what takes longer has somebody listening.
        """
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        watch = _Watch(task, self._receive)
        timer = None
        if at_once:
            watch.start()
        else:
            timer = loop.call_later(_WATCH_AFTER, watch.start)
        try:
            yield
            if watch.is_gone and task.uncancel() == 0:  # what ran has swallowed the cancellation
                raise ClientGoneError
        except asyncio.CancelledError:
            if watch.is_gone and task.uncancel() == 0:
                raise ClientGoneError from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
            await watch.stop()

    # --- answering -------------------------------------------------------------------------------

    async def start(self, status: int, headers: Iterable[Header]) -> None:
        """Begin the answer."""
        self.started = True
        every = [*headers, *self._extra]
        await self._send({"type": "http.response.start", "status": status, "headers": every})

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """A part of the answer's body; waits until the connection takes it."""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def respond(
        self, status: int, body: bytes = b"", content_type: str | None = None, headers: Iterable[Header] = ()
    ) -> None:
        """A whole answer, which no browser runs, guesses or keeps."""
        every: list[Header] = [*SECURITY, *headers]
        if content_type is not None:
            every.append((b"content-type", content_type.encode("latin-1", "replace")))
        if status not in (204, 304):
            every.append((b"content-length", str(len(body)).encode()))
        await self.start(status, every)
        await self.write(b"" if self.method == "HEAD" else body, more=False)


class _Watch:
    """Listens whether a client leaves, and then cancels the task that works for it."""

    __slots__ = ("_listener", "_receive", "_task", "is_gone")

    def __init__(self, task: asyncio.Task[Any], receive: Receive) -> None:
        self._task = task
        self._receive = receive
        self._listener: asyncio.Task[None] | None = None
        self.is_gone = False

    def start(self) -> None:
        self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        self._task.cancel()

    async def stop(self) -> None:
        listener = self._listener
        if listener is None or listener.done():
            return
        listener.cancel()
        # Not `await listener`: a cancellation of this task would be swallowed with the listener's own.
        await asyncio.wait([listener])


def _too_large(limit: int) -> BodyError:
    return BodyError(413, f"the body is larger than {limit} bytes (max_body)")
