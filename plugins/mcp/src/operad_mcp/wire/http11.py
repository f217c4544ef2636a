"""One HTTP/1.1 connection (RFC 9112), read by h11: a request at a time, and nothing but its answer.

Ours and not httpx2's, for two reasons. What a server sends that nobody asked for, such as bytes after a body,
would there be read as the answer of the next request; here it ends the connection. And a request goes out in one
piece, and takes half of the processor time.

Imported with the first connection over HTTP: it needs httpx2.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
import sys
from collections.abc import Iterator
from typing import Any, cast

import h11
import httpx2

_HEAD = 100 * 1024
"""The most bytes of a status line and headers."""
_TIMEOUT = re.compile(rb"(?:^|[,; ])timeout=([0-9]{1,9})")
_VALUE = re.compile(rb"(?:[^\x00-\x20\x7f](?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)?")
_UNREAD = 256 * 1024
"""Bytes that wait to be read, above which no more are taken from the network."""


class Connection(asyncio.Protocol):
    """A connection, after `asyncio` has made it."""

    def __init__(self) -> None:
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD)
        self._waiter: asyncio.Future[None] | None = None
        self._unread = 0
        self._asked = self._ended = False
        self._lost: Exception | None = None
        self.kept_for: float | None = None
        """Seconds that the server says it keeps the connection without a request, if it says so."""
        self.closed = asyncio.get_running_loop().create_future()
        """Done when the connection is over, whoever ended it."""

    # --- asyncio.Protocol ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast(asyncio.Transport, transport)  # those of uvloop are none by type

    def data_received(self, data: bytes) -> None:
        """Take what belongs to an answer. What comes without a question ends the connection."""
        if not self._asked:
            self.close()
            return
        self._h11.receive_data(data)
        self._unread += len(data)
        if self._unread > _UNREAD:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """The server sends no more; its answer may end with that."""
        if not self._ended:
            self._ended = True
            if self._asked:
                self._h11.receive_data(b"")
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more comes."""
        self._lost = exc
        self.eof_received()
        if not self.closed.done():
            self.closed.set_result(None)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- one request -----------------------------------------------------------------------------

    async def ask(self, request: httpx2.Request) -> h11.Response:
        """Send a request, whose body is small enough to be in memory, and return the head of its answer.

        Raises:
            httpx2.TransportError: there was none.
        """
        self._asked = True
        content = b"".join([piece async for piece in request.stream])  # type: ignore[union-attr]  # of an AsyncClient
        with _in_terms_of_httpx(request):
            head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
            events = [head, h11.Data(data=content), h11.EndOfMessage()] if content else [head, h11.EndOfMessage()]
            self._transport.write(b"".join(self._h11.send(event) or b"" for event in events))
        patience = request.extensions.get("timeout", {}).get("read")
        while True:
            event = await self._event(patience)
            if isinstance(event, h11.Response):
                self.kept_for = _kept_for(event)
                return event

    async def piece(self, patience: float | None) -> bytes:
        """The next bytes of the answer's body; none after the last. Raises `httpx2.TransportError`."""
        event = await self._event(patience)
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def _event(self, patience: float | None) -> Any:
        while True:
            if self._ended and self._h11.their_state is h11.SEND_RESPONSE and not self._h11.trailing_data[0]:
                why = f": {self._lost}" if self._lost else ""
                raise httpx2.RemoteProtocolError(f"the server closed the connection without an answer{why}")
            with _in_terms_of_httpx(None):
                event = self._h11.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._unread = 0
            await self._more(patience)

    async def _more(self, patience: float | None) -> None:
        self._transport.resume_reading()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(patience):
                await self._waiter
        except TimeoutError:
            raise httpx2.ReadTimeout(f"nothing was received for {patience:g} s") from None
        finally:
            self._waiter = None

    # --- the end ---------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether a request cannot be sent any more."""
        return self._ended or self._transport.is_closing()

    @property
    def has_news(self) -> bool:
        """Whether something came that the event loop has not looked at yet: while nothing is asked, the end."""
        socket = self._transport.get_extra_info("socket")
        if sys.platform == "win32":
            return bool(select.select([socket], [], [], 0)[0])
        poll = select.poll()
        poll.register(socket, select.POLLIN)
        return bool(poll.poll(0))

    def renew(self) -> bool:
        """Whether it may be used for another request: the answer was read, and there was nothing else."""
        both = self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
        if not both or self.is_over or self._h11.trailing_data[0] or self._transport.get_write_buffer_size():
            return False
        self._h11.start_next_cycle()
        self._unread, self._asked = 0, False
        self._transport.resume_reading()
        return True

    def close(self) -> None:
        """End the connection. There is nothing that the server still has to get."""
        self._transport.abort()


def _kept_for(head: h11.Response) -> float | None:
    """The ``timeout`` of a header ``Keep-Alive`` (RFC 2068, 19.7.1.1)."""
    for name, value in head.headers:
        if name == b"keep-alive":
            found = _TIMEOUT.search(value)
            return None if found is None else float(found[1])
    return None


@contextlib.contextmanager
def _in_terms_of_httpx(request: httpx2.Request | None) -> Iterator[None]:
    """Raise what httpx2 would, in words that quote no header of a request: it may be a secret."""
    try:
        yield
    except h11.RemoteProtocolError as error:
        raise httpx2.RemoteProtocolError(str(error)) from error
    except h11.LocalProtocolError as error:
        if request is None:
            raise httpx2.LocalProtocolError(str(error)) from error
        bad = [name.decode("latin-1") for name, value in request.headers.raw if not _VALUE.fullmatch(value)]
        raise httpx2.LocalProtocolError(f"a header cannot be sent: {', '.join(bad) or 'its name'}") from None
