"""Queues: the stored requests in progress on one link.

JetStream pushes a request to another member if this one sends neither an acknowledgement nor a sign of life for
``ack_wait`` seconds. The response is sent to the inbox of the caller, with a reply subject of this link. If no
client listens at the inbox, for example while the caller reconnects, the server reports this to the reply subject,
and the response is sent again. The request is acknowledged when the server has passed the response to a client.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from operad.plugin import Delivery, ErrorCode, Event, TransportError
from operad_calls.transport import decode, encode, protocol
from operad_nats._client import NO_RESPONDERS, WRITE_ERRORS, Connection
from operad_nats._jetstream import JetStream, limit_of
from operad_nats._subjects import asked_in, subject_of
from operad_nats.config import NATSConfig

logger = logging.getLogger("operad.nats")

MAX_DELIVERIES = 5
"""The maximum number of deliveries of a request. A request that kills its workers is refused after that."""
_KEPT_FOR = 60.0
"""Seconds for which a response is kept for a caller that is away, if the request has no deadline."""
_BEAT = 0.5
_ENDS = frozenset({"call.responded", "call.error", "call.aborted"})


class _Held:
    """A request that was pushed to this link and is not yet acknowledged."""

    __slots__ = ("ack", "ended", "key", "limit", "name", "renewed", "response", "unheard")

    def __init__(self, key: tuple[str, str], ack: str, limit: float) -> None:
        self.key = key
        self.ack = ack
        """The subject for the acknowledgement."""
        self.name = secrets.token_hex(8)
        """Part of the reply subject of the response; only the caller learns it."""
        self.limit = limit
        """How long the caller waits for the response, in epoch ms."""
        self.response: tuple[str, bytes] | None = None
        """The subject and the data of the response, once there is one."""
        self.ended = False
        self.unheard = False
        """Whether the response must be sent again: it was not sent, or no client listened."""
        self.renewed = time.monotonic()


class Queues:
    """The requests that one link stores, and the stored requests in progress on the link."""

    def __init__(
        self,
        config: NATSConfig,
        connection: Connection,
        own: str,
        is_up: Callable[[], bool],
        tell: Callable[[Event, Delivery], bool],
    ) -> None:
        self._config = config
        self._connection = connection
        self._own = own
        """The start of all subjects of the inbox of the link."""
        self._own_bytes = own.encode()
        self._is_up = is_up
        self._tell = tell
        """Passes an event to the owner of the link; returns False if the owner fails."""
        self._jetstream = JetStream(config, connection, own)
        self._served: dict[str, str] = {}
        """The group of each served operation."""
        self._held: dict[tuple[str, str], _Held] = {}
        self._named: dict[str, _Held] = {}
        self._ended: list[_Held] = []
        self._confirming: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._is_set_up = self._was_set_up = False

    # --- calling -------------------------------------------------------------------------------------

    async def up(self) -> None:
        """Make the stream and the consumers on a new connection.

        The first connection waits for them. Later connections make them in the background.

        Raises:
            TransportError: on the first connection, JetStream is missing, refuses or does not respond.
        """
        if not self._was_set_up:
            await self._set_up()
            self._was_set_up = True
            return
        self._jetstream.forget_all()  # it may be a server that has lost its memory
        self._is_set_up = False
        for held in self._held.values():
            held.renewed = -math.inf  # the server's wait starts again with the connection
        if self._beating is None:
            self._beating = asyncio.ensure_future(self._beat())

    async def _set_up(self) -> None:
        await self._jetstream.set_up(self._served)
        self._is_set_up = True

    async def has(self, operation_id: str) -> bool:
        """Return True if requests for an operation are stored; see `JetStream.has`."""
        return await self._jetstream.has(operation_id)

    def headers(self, payload: dict[str, Any]) -> dict[str, str] | None:
        """Return the headers of a request that is to be stored; see `JetStream.headers`."""
        return self._jetstream.headers(payload)

    def deliver_subject(self, operation_id: str) -> str:
        """Return the subject to which the server pushes requests for an operation."""
        return self._jetstream.deliver_subject(operation_id)

    def _subject(self, address: str) -> str:
        return subject_of(address, self._config.prefix, self._config.inbox_prefix)

    # --- what comes in -------------------------------------------------------------------------------

    def receive(self, subject: bytes, reply: bytes | None, data: bytes, headers: bytes | None) -> bool:
        """Process a message of JetStream. Return False for any other. Raises `ValueError` if it is invalid."""
        if reply and reply.startswith(b"$JS.ACK."):
            return self._push(reply.decode(), subject.decode(), data)
        if not subject.startswith(self._own_bytes):
            return False
        kind = subject[len(self._own_bytes) : len(self._own_bytes) + 2]
        if kind == b"n.":
            return self._published(subject.decode(), data, headers)
        if kind not in (b"j.", b"v."):
            return False
        name = subject[len(self._own_bytes) + 2 :].decode()
        if kind == b"v.":
            held = self._named.get(name)
            if held is not None:
                held.unheard = True
        else:
            self._jetstream.response(name, data, headers)
        return True

    def _published(self, subject: str, data: bytes, headers: bytes | None) -> bool:
        """Process a reply to a request that was to be stored. Return False if the server has no stream for it."""
        operation_id, request_id = asked_in(subject)
        if headers is not None and headers.startswith(NO_RESPONDERS):
            self._jetstream.forget(operation_id)
            return False
        response = json.loads(data)
        if not isinstance(response, dict):
            return True
        error = response.get("error")
        if not isinstance(error, dict):
            self._tell({"type": protocol.STORED, "id": "", "payload": {"requestId": request_id}}, Delivery())
            return True
        message = f'the request for "{operation_id}" was not stored: {error.get("description")}'
        details = {"operationId": operation_id, "sent": False}
        self._tell(protocol.error_event(request_id, ErrorCode.UNAVAILABLE, message, details), Delivery())
        return True

    def _push(self, ack: str, subject: str, data: bytes) -> bool:
        """Process a pushed request. ``ack`` is ``$JS.ACK.[domain.account.]stream.consumer.delivered.…``."""
        parts = ack.split(".")
        at = 2 if len(parts) == 9 else 4
        if len(parts) < 9 or parts[at] != self._jetstream.stream or not parts[at + 2].isdigit():
            return False
        try:
            event = decode(data)
        except ValueError:
            self._acknowledge(ack)
            raise
        if event["type"] != protocol.REQUESTED:
            self._acknowledge(ack)
            return True
        payload = event["payload"]
        if subject != self._subject(f"queue:{payload.get('operationId')}"):
            # Permissions are given by subject: its sender may not be allowed to call that operation.
            self._acknowledge(ack)
            raise ValueError(
                f"expected a request for the operation of its subject {subject}, got one for "
                f"{payload.get('operationId')!r:.100}"
            )
        key = (str(payload.get("replyTo")), str(payload.get("requestId")))
        held = self._held.get(key)
        if held is not None:  # the server had no sign of life of this link for a while
            held.ack = ack
            return True
        delivered = int(parts[at + 2])
        limit = limit_of(payload)
        now = time.time() * 1000
        held = _Held(key, ack, limit if limit is not None else now + _KEPT_FOR * 1000)
        self._held[key] = self._named[held.name] = held
        if self._beating is None:
            self._beating = asyncio.ensure_future(self._beat())
        if delivered > MAX_DELIVERIES:
            self._refuse(held, str(payload.get("operationId")))
        elif not self._tell(event, Delivery(redelivered=delivered > 1, done=partial(self._done, held))):
            self._finish(held)  # no handler works on it, and the next member would fail in the same way
        return True

    def _refuse(self, held: _Held, operation_id: str) -> None:
        message = f'"{operation_id}": {MAX_DELIVERIES} deliveries of the request failed; it is not delivered again'
        details = {"operationId": operation_id, "sent": True}
        event = protocol.error_event(held.key[1], ErrorCode.UNAVAILABLE, message, details)
        try:
            held.response = (self._subject(held.key[0]), encode(event))
        except TransportError as error:  # no address
            logger.debug("dropped a request without a valid reply address: %s", error)
        held.unheard = True
        self._done(held)

    # --- serving -------------------------------------------------------------------------------------

    async def serve(self, operation_id: str, group: str) -> None:
        """Store requests for an operation and push them to its group; see `JetStream.consume`."""
        await self._jetstream.consume(operation_id, group)

    def note(self, operation_id: str, group: str) -> None:
        """Remember an operation that this link serves, for the next connection."""
        self._served[operation_id] = group

    def forget(self, operation_id: str) -> None:
        """Stop serving an operation on this link. Its requests are still stored for other workers."""
        self._served.pop(operation_id, None)

    def keep(self, to: str, event: Event, subject: str, data: bytes) -> str | None:
        """Keep an event if it is the response to a stored request in progress on this link.

        Returns:
            The reply subject, to which the server reports that no client listens; None for any other event.
        """
        if event["type"] not in _ENDS:
            return None
        held = self._held.get((to, event["payload"].get("requestId", "")))
        if held is None:
            return None
        held.response = (subject, data)
        held.unheard = not self._is_up()
        return f"{self._own}v.{held.name}"

    def _done(self, held: _Held) -> None:
        if held.ended:
            return
        held.ended = True
        if held.response is None:
            self._finish(held)
        else:
            self._confirm_soon(held)

    def _confirm_soon(self, held: _Held) -> None:
        self._ended.append(held)
        if self._confirming is None:
            self._confirming = asyncio.ensure_future(self._confirm())

    async def _confirm(self) -> None:
        """Acknowledge requests after a round trip, except those whose responses no client has received."""
        try:
            while self._ended:
                batch, self._ended = self._ended, []
                try:
                    await self._connection.barrier()
                except WRITE_ERRORS as error:
                    logger.debug("responses are sent again: %r", error)
                    for held in batch:
                        held.unheard = True
                for held in batch:
                    if not held.unheard:
                        self._finish(held)
        finally:
            self._confirming = None

    def _finish(self, held: _Held) -> None:
        if self._named.pop(held.name, None) is None:
            return
        if self._held.get(held.key) is held:
            del self._held[held.key]
        self._acknowledge(held.ack)

    def _acknowledge(self, ack: str, word: bytes = b"+ACK") -> None:
        if self._is_up():
            self._connection.post(ack, "", word)

    async def _beat(self) -> None:
        """Renew requests in progress, send unheard responses again, and set up again after a loss."""
        while True:
            await asyncio.sleep(min(_BEAT, self._config.ack_wait / 4))
            if not self._is_up():
                continue
            if not self._is_set_up:
                await self._set_up_again()
            self._renew()

    async def _set_up_again(self) -> None:
        try:
            await self._set_up()
        except TransportError as error:
            logger.warning(
                "requests are not stored, because JetStream could not be set up: %s; trying again", error
            )

    def _renew(self) -> None:
        now, limit = time.monotonic(), time.time() * 1000
        for held in list(self._held.values()):
            if held.ended and held.unheard:
                if held.response is None or held.limit < limit:
                    self._finish(held)
                    continue
                held.unheard = False
                self._connection.post(held.response[0], f"{self._own}v.{held.name}", held.response[1])
                self._confirm_soon(held)
            if now - held.renewed > self._config.ack_wait / 4:
                held.renewed = now
                self._acknowledge(held.ack, b"+WPI")

    # --- the connection ------------------------------------------------------------------------------

    def down(self) -> None:
        """Handle a lost connection: responses must be sent again, and requests to JetStream fail."""
        self._jetstream.fail()
        if self._confirming is not None:
            self._confirming.cancel()
        self._ended.clear()
        for held in self._held.values():
            held.unheard = held.response is not None

    async def settle(self, timeout: float) -> None:
        """Wait until requests with a response are acknowledged, at most ``timeout`` seconds."""
        if self._confirming is not None:
            await asyncio.wait({self._confirming}, timeout=timeout)

    async def close(self) -> None:
        """Return unfinished requests to the server for other workers, and end all tasks."""
        if self._is_up():
            await self.settle(self._config.connect_timeout)
            for held in self._held.values():
                self._acknowledge(held.ack, b"-NAK")
        self._jetstream.fail()
        tasks: set[asyncio.Task[Any]] = {task for task in (self._beating, self._confirming) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks := tasks | self._jetstream.tasks:
            await asyncio.wait(tasks)
        self._held.clear()
        self._named.clear()
