"""nats-py's client with a short way in and out, made strict where it leaves things open."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from operad.plugin import protocol
from operad_nats._connection import Connection, Receive
from operad_nats._ending import ended

WRITE_AHEAD = 256 * 1024
"""Bytes that are written between two looks at whether the socket still takes them."""

NO_RESPONDERS = b"NATS/1.0 503"
"""The status of a request that nobody listens to."""

_GOES_ON = "permissions violation"
"""The error after which a server keeps the connection."""


class ServerError(errors.Error):
    """An error for which the server ended the connection."""


class StrictClient(Client):
    """A client whose messages all go to one receiver, at once and in the order of the connection.

    nats-py gives every callback a task and a queue of its own, which loses the order between subscriptions and
    costs memory for each of ten thousand operations, and copies each message six times (`Connection` does not).
    Its ``publish`` wakes a task for what one call of the loop can write. Connecting, TLS, credentials, pings, and
    subscribing again after a loss are nats-py's.

    It never falls back to plain text: nats-py upgrades to TLS if the server asks for it, whatever the URL says,
    and sends credentials either way. And it forgets what it could not send: nats-py keeps what was not written
    when a connection broke, and writes it to the next one, when its callers have long been told of the failure.
    """

    def __init__(self, receive: Receive, *, require_tls: bool) -> None:
        super().__init__()
        self._receive = receive
        self._require_tls = require_tls
        self._unwritten: list[bytes | memoryview] = []
        self._ahead = 0
        self._loop = asyncio.get_running_loop()
        # With a future that never completes, a subscription has no task.
        self._never: asyncio.Future[Msg] = self._loop.create_future()

    async def listen(self, subject: str, queue: str = "") -> Subscription:
        """Subscribe. Raises `nats.errors.Error`."""
        return await self.subscribe(subject, queue=queue, future=self._never)

    def post(self, subject: str, reply: str, data: bytes | protocol.Parts, headers: bytes = b"") -> None:
        """Publish, together with all else that is published in this turn of the event loop."""
        if not self._unwritten:
            self._loop.call_soon(self._write_out)
        if headers:
            sizes = f"{len(headers)} {len(headers) + len(data)}"
            self._unwritten.append(f"HPUB {subject} {reply} {sizes}\r\n".encode())
            self._unwritten.append(headers)
        else:
            self._unwritten.append(f"PUB {subject} {reply} {len(data)}\r\n".encode())
        if isinstance(data, protocol.Parts):
            self._unwritten += data.pieces
        else:
            self._unwritten.append(data)
        self._unwritten.append(b"\r\n")
        self._ahead += len(data)

    async def write(self, subject: str, reply: str, data: bytes | protocol.Parts, headers: bytes = b"") -> None:
        """Publish as `post` does, and wait while the socket does not take it."""
        self.post(subject, reply, data, headers)
        if self._ahead > WRITE_AHEAD:
            self._ahead = 0
            self._write_out()
            if self._transport is not None:
                await self._transport.drain()  # type: ignore[no-untyped-call]  # nats-py left it without types

    def _write_out(self) -> None:
        batch, self._unwritten = self._unwritten, []
        if batch and self.is_connected and self._transport is not None:
            self._transport.writelines(batch)  # type: ignore[arg-type]  # a `Connection`, which takes views as well

    async def barrier(self) -> None:
        """Return when the server has processed all that was sent before.

        ``flush()`` alone does not do that: it writes its ping past the buffer, ahead of what waits there.
        """
        self._write_out()
        for turn in itertools.count():
            if not self.pending_data_size or not self.is_connected:
                break
            await asyncio.sleep(0 if turn < 10 else 0.001)
        await self.flush()

    async def _process_pong(self) -> None:
        # The answer to a ping that was given up: what nats-py raises then is the end of its reader, for good.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    def forget_unsent(self) -> None:
        """Drop what was not written yet; subscriptions are replayed by nats-py in any case."""
        self._unwritten.clear()
        self._pending.clear()
        self._pending_data_size = 0

    async def close(self) -> None:
        """Write what is left, and close."""
        self._write_out()
        try:
            with contextlib.suppress(AttributeError):  # older versions: of a connection that was never there
                await super().close()
        finally:
            # nats-py ends the tasks of the old connection; one that a reconnection has just made would go on, and
            # where nats-py is cancelled itself, all of them.
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]  # of nats-py
            tasks = (self._reading_task, self._flusher_task, self._ping_interval_task, self._reconnection_task)
            await ended(task for task in tasks if task is not None and task is not asyncio.current_task())

    async def _process_err(self, err_msg: str) -> None:
        # nats-py takes nearly every error for the end of the client: credentials that have expired, a payload that
        # is too large since the server was configured anew, a connection too many. It is the end of a connection.
        words = err_msg.strip("'").lower()
        if self.is_connecting or _GOES_ON in words:
            await super()._process_err(err_msg)
            return
        error = ServerError(f"the server ended the connection: {words}")
        await self._error_cb(error)
        await self._process_op_err(error)

    async def _select_next_server(self) -> None:
        if self._transport is None:
            self._transport = Connection(self._receive)
        else:
            self._transport.close()  # type: ignore[no-untyped-call]  # nats-py leaves that of a refused attempt open
        await super()._select_next_server()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if self._require_tls and initial_connection and not info.get("tls_required"):
            raise errors.Error("nats: the URL demands TLS, which the server does not offer")
        await super()._process_info(info, initial_connection)
