"""The connection of a link, with a new client of nats-py each time the link connects."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import sys
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from nats import errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from operad_nats._ending import ended
from operad_nats.config import NATSConfig

Receive = Callable[[bytes, bytes | None, bytes, bytes | None], None]
"""A function that receives the subject, reply, data and headers of each message, in order."""

WRITE_AHEAD = 1024 * 1024
"""The number of unwritten bytes above which senders wait."""

MOST_POSTED = 10_000
"""The maximum number of unwritten messages whose senders do not wait; the oldest are dropped first."""

NO_RESPONDERS = b"NATS/1.0 503"
"""The status of a message to a subject without subscribers."""

WRITE_ERRORS = (errors.Error, OSError)
"""The errors that writing to a connection raises."""

_MUST_ASK = (3, 12) <= sys.version_info < (3, 12, 9) or (3, 13) <= sys.version_info < (3, 13, 2)
"""Whether `StreamWriter.drain`, which nats-py uses, never waits (CVE-2024-12254 of asyncio)."""

_WATCH = 1.0
"""Seconds between two checks whether nats-py is still connected."""
_LONGEST_CLOSE = 1.0
"""Seconds for which a closing connection still writes unwritten messages."""
_LONGEST_TRIP = 60
"""The maximum time of a round trip in seconds, unless pings may take longer."""


class _Client(Client):
    """A client of nats-py for one connection, which passes all messages to one receiver in their order."""

    def __init__(self, receive: Receive) -> None:
        super().__init__()
        self.receive: Receive | None = receive
        """The receiver of messages; None after the connection is lost or closed."""
        self.is_secured = False
        """Whether nats-py has started TLS. It reads `ssl_context` only to do so, and fails if TLS fails."""

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context; see `Client.ssl_context`. Reading it sets `is_secured`."""
        self.is_secured = True
        return super().ssl_context

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        # The one private name of nats-py here. Its own method decodes subject and headers, and an error there ends
        # its reader without a word: any peer could silence a worker with a subject that is not UTF-8. It also puts
        # messages into a queue per subscription, which loses their order and costs a task for each operation.
        if self.receive is not None:
            self.receive(subject, reply, data, headers)


class Connection:
    """A connection that never reconnects by itself. `open` replaces a lost one with a new client of nats-py.

    A client that reconnects would write messages that the broken connection did not accept, although their senders
    have already received an error. Most errors of a server would also end such a client permanently.

    Args:
        receive: receives each message.
        on_error: receives errors of the server that do not end the connection.
        on_lost: receives the reason, or None if it is unknown, once for each open connection that is lost.
    """

    def __init__(
        self, receive: Receive, on_error: Callable[[Exception], None], on_lost: Callable[[Exception | None], None]
    ) -> None:
        self._receive = receive
        self._on_error = on_error
        self._on_lost = on_lost
        self._client = _Client(receive)
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watching: asyncio.Task[None] | None = None
        self._posted: deque[tuple[str, str, bytes]] = deque(maxlen=MOST_POSTED)
        self._posting: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._unconfirmed = 0
        """The number of bytes written since the last confirmed round trip, if `_MUST_ASK`."""
        self._trip: asyncio.Task[None] | None = None
        self._trips: set[asyncio.Task[None]] = set()
        self._longest_trip = _LONGEST_TRIP

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self._watching is not None and self._client.is_connected

    @property
    def max_payload(self) -> int:
        """The largest payload that the server accepts, in bytes."""
        return self._client.max_payload

    def discovered(self) -> list[str]:
        """Return the URLs of other servers of the cluster, as reported by the server."""
        return [uri.geturl() for uri in self._client.discovered_servers]

    async def open(self, server: str, config: NATSConfig, trusted: ssl.SSLContext | None) -> None:
        """Connect to a server. Raises `nats.errors.Error`, `OSError` or `TimeoutError` if that fails."""
        client = self._client = _Client(self._receive)
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lost = lost
        failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

        async def on_error(error: Exception) -> None:
            client.is_secured = False  # the attempt is over
            if self._watching is not None:
                self._on_error(error)
            elif not failed.done():
                failed.set_result(error)

        async def on_disconnected() -> None:
            self._lose(lost, client.last_error)
            if not client.is_closed:
                # nats-py connects again when this returns; `close` cancels it.
                await asyncio.get_running_loop().create_future()

        connecting = asyncio.ensure_future(
            client.connect(
                [server.replace("tls+nats:", "tls:", 1)],
                name=config.name,
                error_cb=on_error,
                disconnected_cb=on_disconnected,
                connect_timeout=config.connect_timeout,  # type: ignore[arg-type]  # passed to wait_for, where a fraction is fine
                ping_interval=config.ping_interval,  # type: ignore[arg-type]  # passed to sleep
                pending_size=0,  # keep nothing while there is no connection
                flusher_queue_size=0,  # unbounded; `write` waits instead: nats-py loses a cancellation there
                user_credentials=config.credentials,
                nkeys_seed=config.nkey_seed,
                tls=trusted,
                tls_handshake_first=config.tls_first,
                **_credentials(client, server, config),
            )
        )
        waiting: set[asyncio.Future[Any]] = {connecting, failed}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():  # nats-py would try again, forever
                raise failed.result()
            connecting.result()
        except BaseException:
            await ended({connecting})
            await self.close()
            raise
        self._longest_trip = max(_LONGEST_TRIP, int(4 * config.ping_interval))
        self._watching = asyncio.ensure_future(self._watch(client, lost))

    async def _watch(self, client: _Client, lost: asyncio.Future[None]) -> None:
        # nats-py calls back after it has closed the socket, which waits for a peer that takes nothing any more.
        while client.is_connected:  # noqa: ASYNC110  # nats-py has no event for it
            await asyncio.sleep(_WATCH)
        self._lose(lost, client.last_error)

    def _lose(self, lost: asyncio.Future[None], error: Exception | None) -> None:
        if lost.done() or lost is not self._lost or self._watching is None:
            return
        lost.set_result(None)
        self._client.receive = None
        self._posted.clear()
        self._on_lost(error)

    async def listen(self, subject: str, queue: str = "") -> Subscription:
        """Subscribe to a subject, in the group ``queue`` if not empty. Raises `nats.errors.Error` on failure."""
        return await self._client.subscribe(subject, queue=queue)

    async def write(self, subject: str, reply: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        """Publish a message; wait if many bytes are unwritten. Raises one of `WRITE_ERRORS` on failure."""
        client = self._client
        if client.pending_data_size > WRITE_AHEAD:
            async with self._turn:  # the first one looks, the others wait in line
                await _written(client, WRITE_AHEAD)
        if _MUST_ASK:
            self._unconfirmed += len(data)
            if self._unconfirmed > WRITE_AHEAD:
                async with self._turn:
                    await self._confirmed()
        await client.publish(subject, data, reply, headers)

    async def _confirmed(self) -> None:
        """Wait until the server has read all written bytes. Raises one of `WRITE_ERRORS` if it is gone."""
        if self._unconfirmed > WRITE_AHEAD:
            lost, flushing = self._lost, asyncio.ensure_future(self._client.flush(self._longest_trip))
            self._trips.add(flushing)
            flushing.add_done_callback(self._ended_trip)
            await asyncio.wait({flushing, lost}, return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                raise errors.ConnectionClosedError
            flushing.result()
            self._unconfirmed = 0

    def post(self, subject: str, reply: str, data: bytes) -> None:
        """Publish a message in the background. Drop it if the connection is lost, or 10,000 later ones wait."""
        self._posted.append((subject, reply, data))
        if self._posting is None or self._posting.done():
            self._posting = asyncio.ensure_future(self._post())

    async def _post(self) -> None:
        try:
            while self._posted:
                await self.write(*self._posted.popleft())
        except WRITE_ERRORS:
            self._posted.clear()

    async def barrier(self) -> None:
        """Wait until the server has processed all earlier messages. Concurrent callers share one round trip.

        Raises one of `WRITE_ERRORS` if the connection is lost.
        """
        if self._trip is None:
            self._trip = asyncio.ensure_future(self._round_trip())
            self._trips.add(self._trip)
            self._trip.add_done_callback(self._ended_trip)
        trip, lost = self._trip, self._lost
        # Not cancelled with the caller: a pong for a ping that was given up ends nats-py's reader.
        await asyncio.wait({trip, lost}, return_when=asyncio.FIRST_COMPLETED)
        if lost.done() or trip.cancelled():
            raise errors.ConnectionClosedError
        trip.result()

    async def _round_trip(self) -> None:
        await asyncio.sleep(0)  # callers in this turn of the event loop are part of it
        self._trip = None
        client = self._client
        if self._posting is not None:
            await asyncio.wait({self._posting})
        await _written(client, 0)  # nats-py writes a ping ahead of what is waiting
        await client.flush(self._longest_trip)

    def _ended_trip(self, trip: asyncio.Task[None]) -> None:
        self._trips.discard(trip)
        if self._trip is trip:
            self._trip = None
        if not trip.cancelled():
            trip.exception()  # all callers may have been cancelled

    async def close(self) -> None:
        """Flush and close the connection, within about 2 s; idempotent."""
        if self._posting is not None and self.is_open:
            await asyncio.wait({self._posting}, timeout=_LONGEST_CLOSE)
        own = [self._watching, self._posting, *self._trips]
        self._watching = self._posting = None
        self._client.receive = None
        if not self._lost.done():
            self._lost.set_result(None)
        closing = asyncio.ensure_future(self._client.close())
        try:
            await asyncio.wait({closing}, timeout=_LONGEST_CLOSE)
        finally:
            # What nats-py raises here is the end of a connection that was lost, or never made.
            current = asyncio.current_task()
            await ended(task for task in (closing, *own) if task is not None and task is not current)


def reason(error: BaseException) -> str:
    """Return the message of an error, or the name of its type if the message is empty."""
    return str(error) or type(error).__name__


async def _written(client: Client, most: int) -> None:
    """Wait until at most ``most`` bytes are unwritten. Raises `nats.errors.ConnectionClosedError` if closed."""
    for turn in itertools.count():
        if client.pending_data_size <= most:
            return
        if not client.is_connected:
            raise errors.ConnectionClosedError
        await asyncio.sleep(0 if turn < 10 else 0.001)  # nats-py writes in one of the next turns, or is blocked


def _credentials(client: _Client, server: str, config: NATSConfig) -> dict[str, Any]:
    """Return credentials as options of nats-py's ``connect``.

    If the URL requires TLS, the credentials are functions, which nats-py calls right before it sends them. Without
    this, nats-py would also send credentials to a server that does not ask for TLS.
    """
    user, password, token = config.user, config.password, config.token
    if user is None and token is None:
        own, first = urlsplit(server), urlsplit(config.servers[0])
        named = own if own.username is not None else first  # a server that the cluster named has none in its URL
        if named.password is None:
            token = named.username
        else:
            user, password = named.username, named.password
    if not config.requires_tls:
        return {"user": user, "password": password, "token": token}

    def given(value: str | None) -> Callable[[], str]:
        def give() -> str:
            if not client.is_secured:
                raise errors.Error(
                    "nats: the URL requires TLS, but the server does not offer it, so no credentials were sent; "
                    "enable TLS on the server"
                )
            return value or ""

        return give

    # nats-py calls the function of the user if there are user and password, else that of the token: one of them
    # before each CONNECT, also where there is nothing to send.
    return {"user": given(user) if user is not None else None, "password": password, "token": given(token)}
