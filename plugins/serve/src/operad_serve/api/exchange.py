"""One HTTP exchange over ASGI 3: reading within bounds, answering, noticing that the client left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from types import TracebackType
from typing import Any

from operad import Identity
from operad_auth import is_loopback

Header = tuple[bytes, bytes]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_WATCH_AFTER = 0.02
"""Seconds, once or twice these, after which somebody listens whether the client left; a quick call has no task."""

_PART = 256 * 1024
"""Bytes of an answer that are handed to the connection at once: what it has not taken stays here, once."""
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")
"""What proxies add for whom they ask."""

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
        write_timeout: seconds that the client may take for a part of the answer.
    """

    __slots__ = (
        "_extra",
        "_receive",
        "_send",
        "_write_timeout",
        "headers",
        "identity",
        "method",
        "path",
        "request_id",
        "scope",
        "started",
    )

    def __init__(
        self,
        scope: MutableMapping[str, Any],
        receive: Receive,
        send: Send,
        path: str,
        write_timeout: float | None = None,
    ) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        self.path = path
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.identity: Identity | None = None
        self.request_id = ""
        self.started = False
        """Whether the answer has begun."""
        self._extra: list[Header] = []
        self._write_timeout = write_timeout

    @property
    def is_local(self) -> bool:
        """Whether the request came to a loopback address, by one of its names, and through no proxy."""
        name, colon, port = (self.header("host") or "").rpartition(":")
        host = name if colon and port.isdigit() else name + colon + port
        proxied = any(header in self.headers for header in _FORWARDED)
        return not proxied and is_loopback(self.scope.get("server")) and is_loopback((host.lower().strip("[]"),))

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

    def cancelled_with_client(self, sweep: Sweep, *, at_once: bool = False) -> Watch:
        """A context that cancels what runs inside when the client leaves, which is then a `ClientGoneError`.

        Args:
            sweep: what begins to listen for calls that take long.
            at_once: listen from the beginning.
        """
        return Watch(self._receive, sweep, at_once=at_once)

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
        if self.method == "HEAD":
            body = b""
        if len(body) <= _PART:
            await self.write(body, more=False)
            return
        for start in range(0, len(body), _PART):
            await self._write_in_time(body[start : start + _PART], more=start + _PART < len(body))

    async def _write_in_time(self, data: bytes, *, more: bool) -> None:
        """Write a part. Raises `ClientGoneError` where the client does not take what was written before."""
        try:
            async with asyncio.timeout(self._write_timeout):
                await self.write(data, more=more)
        except TimeoutError:
            raise ClientGoneError from None


class Sweep:
    """Lets watches of calls that take longer than others begin to listen: one timer for all calls of a server."""

    def __init__(self) -> None:
        self._waiting: dict[Watch, None] = {}
        self._grown: list[Watch] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop in which the timer is set; a host may run an application in one after the other."""

    def add(self, watch: Watch) -> None:
        """A call begins."""
        self._waiting[watch] = None
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(_WATCH_AFTER, self._tick)

    def discard(self, watch: Watch) -> None:
        """A call is over."""
        self._waiting.pop(watch, None)

    def _tick(self) -> None:
        # What was here at the last tick as well has had its time.
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
    """Around the work for a client: cancels it when the client leaves; see `Exchange.cancelled_with_client`."""

    __slots__ = ("__weakref__", "_at_once", "_is_gone", "_listener", "_receive", "_sweep", "_task")

    def __init__(self, receive: Receive, sweep: Sweep, *, at_once: bool) -> None:
        self._receive = receive
        self._sweep = sweep
        self._at_once = at_once
        self._task: asyncio.Task[Any] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._is_gone = False

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        if self._at_once:
            self.listen()
        else:
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
            # Not `await listener`: a cancellation of this task would be swallowed with the listener's own.
            await asyncio.wait([listener])
        assert task is not None
        # Without an exception what ran has swallowed the cancellation; another one is what it is.
        is_own = exc is None or isinstance(exc, asyncio.CancelledError)
        if self._is_gone and is_own and task.uncancel() == 0:
            raise ClientGoneError from None

    def listen(self) -> None:
        """Begin to listen."""
        self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if self._task is not None:
            self._task.cancel()


def _too_large(limit: int) -> BodyError:
    return BodyError(413, f"the body is larger than {limit} bytes (max_body)")
