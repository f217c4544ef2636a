"""Queues: requests that JetStream stores until they have been answered.

A stream of the prefix's name keeps the subjects ``<prefix>.queue.>`` as a work queue: a request is deleted when it
is acknowledged, or when its deadline has passed. Each operation that somebody registered as ``queue:…`` has a
durable consumer, which pushes to one member of the group. That it exists tells a caller that requests for the
operation are stored; without it they go the plain way. What a member neither acknowledges nor says to be working
on is pushed to another one after `NATSTransport.ack_wait`.

The answer goes to the caller's inbox as any other one, with a subject of our own for the server's refusal where
nobody listens, as while a caller reconnects. Such an answer is sent again; the request is acknowledged when the
server had somebody to give the answer to.
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
from typing import TYPE_CHECKING, Any

from nats import errors

from operad.errors import ErrorCode
from operad.plugin import Delivery, Event, LinkDownError, TransportError
from operad.protocol import REQUESTED, STORED, decode, encode, error_event
from operad_nats._client import StrictClient
from operad_nats._subjects import subject_of

if TYPE_CHECKING:
    from operad_nats.transport import NATSTransport

logger = logging.getLogger("operad.transports.nats")

MAX_DELIVERIES = 5
"""How often a request is given to a member: one that ends each of them is refused in the end."""
MAX_UNDER_WAY = 1_000
"""How many requests for one operation may be under way, all members together; the rest waits on the server."""
KNOWN_FOR = 2.0
"""Seconds that a link remembers whether requests for an operation are stored."""
_MAX_KNOWN = 10_000
_KEPT_FOR = 60.0
"""Seconds that an answer is kept for a caller that is not there, if the request has no deadline before."""
_BEAT = 0.5
_NANOSECONDS = 1_000_000_000
_NO_RESPONDERS = b"NATS/1.0 503"
_WRITE_ERRORS = (errors.Error, OSError)
_ENDS = frozenset({"call.responded", "call.error", "call.aborted"})
# JetStream's own numbers of errors.
_NO_STREAM, _NO_CONSUMER, _OTHER_STREAM = 10059, 10014, 10058


class JetStreamError(TransportError):
    """JetStream refused something."""

    def __init__(self, what: str, error: dict[str, Any]) -> None:
        super().__init__(f"{what}: {error.get('description')} (JetStream error {error.get('err_code')})")
        self.code = error.get("err_code")


class _Held:
    """A request that was pushed to this link, and is not acknowledged yet."""

    __slots__ = ("ack", "answer", "ended", "key", "limit", "name", "renewed", "unheard")

    def __init__(self, key: tuple[str, str], ack: str, limit: float) -> None:
        self.key = key
        self.ack = ack
        """The subject of its acknowledgement."""
        self.name = secrets.token_hex(8)
        """In the subject for the server's refusal of the answer: no peer but the caller may claim one."""
        self.limit = limit
        """When nobody waits for the answer any more, in epoch ms."""
        self.answer: tuple[str, bytes] | None = None
        """Subject and data."""
        self.ended = False
        self.unheard = False
        """Whether the answer was not sent, or nobody listened."""
        self.renewed = time.monotonic()


class Queues:
    """What one link stores, and what it holds of what others stored."""

    def __init__(
        self,
        transport: NATSTransport,
        client: StrictClient,
        own: str,
        is_up: Callable[[], bool],
        tell: Callable[[Event, Delivery], bool],
    ) -> None:
        self._transport = transport
        self._client = client
        self._own = own
        """The subjects of the link's inbox begin with it."""
        self._own_bytes = own.encode()
        self._is_up = is_up
        self._tell = tell
        """Gives an event to whoever opened the link; answers whether it was taken."""
        self._stream = transport.prefix.replace(".", "=")
        self._expires = False
        """Whether the server deletes a message at a time of the message's own (2.11 and newer)."""
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._known: dict[str, tuple[bool, float]] = {}
        self._lookups: dict[str, asyncio.Task[bool]] = {}
        self._served: dict[str, str] = {}
        """Groups by operation."""
        self._held: dict[tuple[str, str], _Held] = {}
        self._named: dict[str, _Held] = {}
        self._ended: list[_Held] = []
        self._confirming: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._is_set_up = False

    # --- the server's side -------------------------------------------------------------------------

    async def set_up(self) -> None:
        """Make the stream if it is not there, and consumers for what this link serves. Raises `TransportError`."""
        subject = f"{self._transport.prefix}.queue.>"
        wanted = {
            "name": self._stream,
            "description": "requests of operad that are not answered yet",
            "subjects": [subject],
            "retention": "workqueue",
            "storage": "file",
            "discard": "new",
            "max_age": int(self._transport.max_age * _NANOSECONDS),
            "num_replicas": self._transport.replicas,
            "allow_msg_ttl": True,
        }
        try:
            made = await self._ask(f"STREAM.CREATE.{self._stream}", wanted)
        except JetStreamError as error:
            if error.code != _OTHER_STREAM:
                raise
            made = await self._ask(f"STREAM.INFO.{self._stream}", None)  # somebody else chose its limits
        config = made["config"]
        if config.get("retention") != "workqueue" or subject not in config.get("subjects", ()):
            raise TransportError(
                f'the JetStream stream "{self._stream}" is not a work queue of "{subject}"; '
                "choose another prefix, or delete it"
            )
        self._expires = config.get("allow_msg_ttl") is True
        for operation_id, group in list(self._served.items()):
            await self._consume(operation_id, group)
        self._is_set_up = True

    async def _consume(self, operation_id: str, group: str) -> None:
        config = {
            "name": self._consumer(operation_id),
            "durable_name": self._consumer(operation_id),
            "description": f"operation {operation_id[:500]}".encode("utf-8", "replace").decode(),
            "filter_subject": self._subject(f"queue:{operation_id}"),
            "deliver_subject": self.deliver_subject(operation_id),
            "deliver_group": group,
            "deliver_policy": "all",
            "replay_policy": "instant",
            "ack_policy": "explicit",
            "ack_wait": int(self._transport.ack_wait * _NANOSECONDS),
            "max_ack_pending": MAX_UNDER_WAY,
            # A request may wait for so long, and the operation counts as served for as long.
            "inactive_threshold": int(self._transport.max_age * _NANOSECONDS),
        }
        name = f"CONSUMER.CREATE.{self._stream}.{config['name']}.{config['filter_subject']}"
        await self._ask(name, {"stream_name": self._stream, "config": config})

    async def _ask(self, name: str, body: dict[str, Any] | None) -> dict[str, Any]:
        """A request to JetStream itself."""
        key = secrets.token_hex(16)  # a peer that knows the inbox must not answer for the server
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[key] = future
        seconds = self._transport.connect_timeout
        try:
            data = b"" if body is None else json.dumps(body).encode()
            await self._client.write(f"$JS.API.{name}", f"{self._own}j.{key}", data)
            async with asyncio.timeout(seconds):
                answer = await future
        except TimeoutError:
            hint = f"may this user publish to $JS.API.{name}?"
            raise TransportError(f"JetStream did not answer within {seconds} s; {hint}") from None
        except _WRITE_ERRORS as error:
            raise LinkDownError(f"not sent: {error}") from error
        finally:
            del self._asked[key]
        if isinstance(answer.get("error"), dict):
            raise JetStreamError(name, answer["error"])
        return answer

    def _subject(self, address: str) -> str:
        return subject_of(address, self._transport.prefix, self._transport.inbox_prefix)

    def deliver_subject(self, operation_id: str) -> str:
        """Where the server pushes requests for an operation."""
        return self._subject(f"deliver:{operation_id}")

    def _consumer(self, operation_id: str) -> str:
        tail = self._subject(f"queue:{operation_id}")[len(self._transport.prefix) + len(".queue.") :]
        if len(tail) <= 200:
            return tail.replace(".", "=")
        import hashlib

        return "==" + hashlib.sha256(tail.encode()).hexdigest()  # no tail makes two of them

    # --- calling -------------------------------------------------------------------------------------

    async def has(self, operation_id: str) -> bool:
        """Whether requests for an operation are stored. Raises `TransportError`."""
        known = self._known.get(operation_id)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        lookup = self._lookups.get(operation_id)
        if lookup is None:
            lookup = self._lookups[operation_id] = asyncio.ensure_future(self._look_up(operation_id))
            lookup.add_done_callback(partial(self._looked_up, operation_id))
        return await asyncio.shield(lookup)

    async def _look_up(self, operation_id: str) -> bool:
        try:
            await self._ask(f"CONSUMER.INFO.{self._stream}.{self._consumer(operation_id)}", None)
        except JetStreamError as error:
            if error.code not in (_NO_CONSUMER, _NO_STREAM):
                raise
            return False
        return True

    def _looked_up(self, operation_id: str, lookup: asyncio.Task[bool]) -> None:
        del self._lookups[operation_id]
        if not lookup.cancelled() and lookup.exception() is None:
            self._known.pop(operation_id, None)
            self._known[operation_id] = (lookup.result(), time.monotonic() + KNOWN_FOR)
            if len(self._known) > _MAX_KNOWN:
                del self._known[next(iter(self._known))]

    def header(self, payload: dict[str, Any]) -> bytes:
        """The headers of a request: it is of no use to anybody after its deadline."""
        limit = _limit(payload)
        if not self._expires or limit is None:
            return b""
        seconds = min(math.ceil(limit / 1000 - time.time()) + 1, math.ceil(self._transport.max_age))
        return b"NATS/1.0\r\nNats-TTL: %ds\r\n\r\n" % max(1, seconds)

    # --- what comes in -------------------------------------------------------------------------------

    def receive(self, subject: bytes, reply: bytes | None, data: bytes, headers: bytes | None) -> bool:
        """Take a message, if it is JetStream's. Raises `ValueError` for what is no event."""
        if reply and reply.startswith(b"$JS.ACK."):
            return self._push(reply.decode(), data)
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
        elif (future := self._asked.get(name)) is not None and not future.done():
            if headers is not None and headers.startswith(_NO_RESPONDERS):
                hint = "start nats-server with -js, or leave out durable=True"
                future.set_exception(TransportError(f"the NATS server has no JetStream: {hint}"))
            else:
                answer = json.loads(data)
                future.set_result(answer if isinstance(answer, dict) else {})
        return True

    def _published(self, subject: str, data: bytes, headers: bytes | None) -> bool:
        """What the server says of a request: stored, refused, or taken by nobody (which the link reports)."""
        operation_id, request_id = asked(subject)
        if headers is not None and headers.startswith(_NO_RESPONDERS):
            self._known.pop(operation_id, None)
            return False
        answer = json.loads(data)
        if not isinstance(answer, dict):
            return True
        error = answer.get("error")
        if not isinstance(error, dict):
            self._tell({"type": STORED, "id": "", "payload": {"requestId": request_id}}, Delivery())
            return True
        message = f'the request for "{operation_id}" was not stored: {error.get("description")}'
        details = {"operationId": operation_id, "sent": False}
        self._tell(error_event(request_id, ErrorCode.UNAVAILABLE, message, details), Delivery())
        return True

    def _push(self, ack: str, data: bytes) -> bool:
        """A request. Its reply says ``$JS.ACK.[domain.account.]stream.consumer.delivered.…``."""
        parts = ack.split(".")
        at = 2 if len(parts) == 9 else 4
        if len(parts) < 9 or parts[at] != self._stream or not parts[at + 2].isdigit():
            return False
        try:
            event = decode(data)
        except ValueError:
            self._acknowledge(ack)
            raise
        if event["type"] != REQUESTED:
            self._acknowledge(ack)
            return True
        payload = event["payload"]
        key = (str(payload.get("replyTo")), str(payload.get("requestId")))
        held = self._held.get(key)
        if held is not None:  # the server has not heard of us for a while
            held.ack = ack
            return True
        delivered = int(parts[at + 2])
        limit = _limit(payload)
        now = time.time() * 1000
        held = _Held(key, ack, limit if limit is not None else now + _KEPT_FOR * 1000)
        self._held[key] = self._named[held.name] = held
        if self._beating is None:
            self._beating = asyncio.ensure_future(self._beat())
        if delivered > MAX_DELIVERIES:
            self._refuse(held, str(payload.get("operationId")))
        elif not self._tell(event, Delivery(redelivered=delivered > 1, done=partial(self._done, held))):
            self._finish(held)  # nobody works on it, and the next member would fail in the same way
        return True

    def _refuse(self, held: _Held, operation_id: str) -> None:
        message = f'"{operation_id}": {MAX_DELIVERIES} handlers that had the request were lost'
        details = {"operationId": operation_id, "sent": True}
        event = error_event(held.key[1], ErrorCode.UNAVAILABLE, message, details)
        try:
            held.answer = (self._subject(held.key[0]), encode(event))
        except TransportError as error:  # no address
            logger.debug("dropped a request that cannot be answered: %s", error)
        held.unheard = True
        self._done(held)

    # --- serving -------------------------------------------------------------------------------------

    async def serve(self, operation_id: str, group: str) -> None:
        """Have requests for an operation stored, and pushed to its group."""
        self._served[operation_id] = group
        if self._is_up():
            await self._consume(operation_id, group)

    def forget(self, operation_id: str) -> None:
        """Serve an operation no longer here. Its requests go on being stored: somebody may come back."""
        self._served.pop(operation_id, None)

    def keep(self, to: str, event: Event, subject: str, data: bytes) -> str | None:
        """Keep an event, if it answers a request that is held here.

        Answers the subject for the server's refusal.
        """
        if event["type"] not in _ENDS:
            return None
        held = self._held.get((to, event["payload"].get("requestId", "")))
        if held is None:
            return None
        held.answer = (subject, data)
        held.unheard = not self._is_up()
        return f"{self._own}v.{held.name}"

    def _done(self, held: _Held) -> None:
        if held.ended:
            return
        held.ended = True
        if held.answer is None:
            self._finish(held)
        else:
            self._confirm_soon(held)

    def _confirm_soon(self, held: _Held) -> None:
        self._ended.append(held)
        if self._confirming is None:
            self._confirming = asyncio.ensure_future(self._confirm())

    async def _confirm(self) -> None:
        """Acknowledge what was answered, when the server has said for which answers nobody was there."""
        try:
            while self._ended:
                batch, self._ended = self._ended, []
                try:
                    await self._client.barrier()
                except _WRITE_ERRORS as error:
                    logger.debug("answers are sent again: %r", error)
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
            self._client.post(ack, "", word)

    async def _beat(self) -> None:
        """Say what is still worked on, send again what nobody heard, and set up again after a loss."""
        while True:
            await asyncio.sleep(min(_BEAT, self._transport.ack_wait / 4))
            if not self._is_up():
                continue
            if not self._is_set_up:
                await self._set_up_again()
            self._renew()

    async def _set_up_again(self) -> None:
        try:
            await self.set_up()
        except TransportError as error:
            logger.warning("requests are not stored until it succeeds: %s", error)

    def _renew(self) -> None:
        now, limit = time.monotonic(), time.time() * 1000
        for held in list(self._held.values()):
            if held.ended and held.unheard:
                if held.answer is None or held.limit < limit:
                    self._finish(held)
                    continue
                held.unheard = False
                self._client.post(held.answer[0], f"{self._own}v.{held.name}", held.answer[1])
                self._confirm_soon(held)
            if now - held.renewed > self._transport.ack_wait / 4:
                held.renewed = now
                self._acknowledge(held.ack, b"+WPI")

    # --- the connection ------------------------------------------------------------------------------

    def up(self) -> None:
        """The connection is back, to a server that may have forgotten."""
        self._known.clear()
        self._is_set_up = False
        for held in self._held.values():
            held.renewed = -math.inf  # whatever it had waited for, the server waits from now on
        if self._beating is None:
            self._beating = asyncio.ensure_future(self._beat())

    def _fail_asked(self) -> None:
        for future in self._asked.values():
            if not future.done():
                future.set_exception(LinkDownError("the connection to the NATS server was lost"))

    def down(self) -> None:
        """The connection is lost."""
        self._fail_asked()
        if self._confirming is not None:
            self._confirming.cancel()
        self._ended.clear()
        for held in self._held.values():
            held.unheard = held.answer is not None

    async def settle(self, timeout: float) -> None:
        """Return when what was answered is acknowledged."""
        if self._confirming is not None:
            await asyncio.wait({self._confirming}, timeout=timeout)

    async def close(self) -> None:
        """Give back what is not finished, for others."""
        if self._is_up():
            await self.settle(self._transport.connect_timeout)
            for held in self._held.values():
                self._acknowledge(held.ack, b"-NAK")
        self._fail_asked()
        tasks: set[asyncio.Task[Any]] = {task for task in (self._beating, self._confirming) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks := tasks | set(self._lookups.values()):
            await asyncio.wait(tasks)
        self._held.clear()
        self._named.clear()


def asked(subject: str) -> tuple[str, str]:
    """Operation and request in the subject on which the server answers a request."""
    from urllib.parse import unquote

    _, _, operation, request = subject.rsplit(".", 3)
    return unquote(operation, errors="replace"), unquote(request, errors="replace")


def _limit(payload: dict[str, Any]) -> float | None:
    """The deadline of a request in epoch ms, where it has a usable one."""
    deadline = payload.get("deadline")
    if isinstance(deadline, (int, float)) and 0 <= deadline < 1e15:
        return float(deadline)
    return None
