"""The JetStream part of queues: the stream, its consumers, and the replies of the server.

A stream, named after the prefix, stores the subjects ``<prefix>.queue.>`` as a work queue: a request is deleted
when it is acknowledged, after its deadline (nats-server 2.11) or after ``max_age``. Each operation registered as
``queue:…`` has a durable consumer, which pushes to one member of the group. If this consumer exists, callers store
their requests for the operation. Otherwise they send them over core NATS.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import secrets
import time
from functools import partial
from typing import Any

from operad.plugin import LinkDownError, TransportError
from operad_nats._client import NO_RESPONDERS, WRITE_ERRORS, Connection, reason
from operad_nats._subjects import subject_of
from operad_nats.config import NATSConfig

MAX_UNDER_WAY = 1_000
"""The maximum number of unfinished requests for one operation at all workers. Others wait on the server."""
KNOWN_FOR = 2.0
"""Seconds for which a link remembers whether requests for an operation are stored."""
_MAX_KNOWN = 10_000
_NANOSECONDS = 1_000_000_000
HEADER_BYTES = 64
"""An upper bound for the size of the headers of a request, in bytes."""
# Error codes of JetStream.
_NO_STREAM, _NO_CONSUMER, _OTHER_STREAM = 10059, 10014, 10058


class JetStreamError(TransportError):
    """Raised if JetStream responds with an error. ``code`` is the error code of JetStream."""

    def __init__(self, what: str, error: dict[str, Any]) -> None:
        super().__init__(f"JetStream refused {what}: {error.get('description')} (error {error.get('err_code')})")
        self.code = error.get("err_code")


class JetStream:
    """The requests of one link to JetStream, and what it remembers of operations with stored requests."""

    def __init__(self, config: NATSConfig, connection: Connection, own: str) -> None:
        self._config = config
        self._connection = connection
        self._own = own
        """The start of all subjects of the inbox of the link."""
        self.stream = config.prefix.replace(".", "=")
        self._expires = False
        """Whether each message can have a time to live (nats-server 2.11 or newer)."""
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._known: dict[str, tuple[bool, float]] = {}
        self._lookups: dict[str, asyncio.Task[bool]] = {}

    # --- the stream and its consumers ----------------------------------------------------------------

    async def set_up(self, served: dict[str, str]) -> None:
        """Make the stream if it is missing, and the consumers of served operations.

        Args:
            served: the groups of the operations, by operation id.

        Raises:
            TransportError: JetStream refuses or does not respond, or its stream is not a queue of requests.
        """
        subject = f"{self._config.prefix}.queue.>"
        wanted = {
            "name": self.stream,
            "description": "requests of operad without a response yet",
            "subjects": [subject],
            "retention": "workqueue",
            "storage": "file",
            "discard": "new",
            "max_age": int(self._config.max_age * _NANOSECONDS),
            "num_replicas": self._config.replicas,
            "allow_msg_ttl": True,
        }
        try:
            made = await self._ask(f"STREAM.CREATE.{self.stream}", wanted)
        except JetStreamError as error:
            if error.code != _OTHER_STREAM:
                raise
            made = await self._ask(f"STREAM.INFO.{self.stream}", None)  # made by others, with other limits
        config = made["config"]
        if config.get("retention") != "workqueue" or subject not in config.get("subjects", ()):
            raise TransportError(
                f'JetStream stream "{self.stream}": expected the retention "workqueue" and the subject '
                f'"{subject}", got "{config.get("retention")}" and {config.get("subjects")}; '
                "choose another prefix, or delete the stream"
            )
        self._expires = config.get("allow_msg_ttl") is True
        for operation_id, group in list(served.items()):
            await self.consume(operation_id, group)

    async def consume(self, operation_id: str, group: str) -> None:
        """Make the consumer that pushes an operation's requests to a group. Raises `TransportError` on failure."""
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
            "ack_wait": int(self._config.ack_wait * _NANOSECONDS),
            "max_ack_pending": MAX_UNDER_WAY,
            # A request may wait that long, so the operation counts as served that long.
            "inactive_threshold": int(self._config.max_age * _NANOSECONDS),
        }
        name = f"CONSUMER.CREATE.{self.stream}.{config['name']}.{config['filter_subject']}"
        await self._ask(name, {"stream_name": self.stream, "config": config})

    async def _ask(self, name: str, body: dict[str, Any] | None) -> dict[str, Any]:
        """Send a request to JetStream and return the response. Raises `TransportError` if it fails."""
        key = secrets.token_hex(16)  # a peer that knows the inbox must not reply in the server's place
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[key] = future
        seconds = self._config.connect_timeout
        try:
            data = b"" if body is None else json.dumps(body).encode()
            await self._connection.write(f"$JS.API.{name}", f"{self._own}j.{key}", data)
            async with asyncio.timeout(seconds):
                response = await future
        except TimeoutError:
            hint = f"check that the user may publish to $JS.API.{name}"
            raise TransportError(f"JetStream did not respond within {seconds:g} s; {hint}") from None
        except WRITE_ERRORS as error:
            raise LinkDownError(f"the request to JetStream was not sent: {reason(error)}") from error
        finally:
            del self._asked[key]
        if isinstance(response.get("error"), dict):
            raise JetStreamError(name, response["error"])
        return response

    def _subject(self, address: str) -> str:
        return subject_of(address, self._config.prefix, self._config.inbox_prefix)

    def deliver_subject(self, operation_id: str) -> str:
        """Return the subject to which the server pushes requests for an operation."""
        return self._subject(f"deliver:{operation_id}")

    def _consumer(self, operation_id: str) -> str:
        tail = self._subject(f"queue:{operation_id}")[len(self._config.prefix) + len(".queue.") :]
        if len(tail) <= 200:
            return tail.replace(".", "=")
        return "==" + hashlib.sha256(tail.encode()).hexdigest()  # no tail has two of them

    # --- whether an operation's requests are stored ----------------------------------------------------

    async def has(self, operation_id: str) -> bool:
        """Return True if requests for an operation are stored. Raises `TransportError` if JetStream fails."""
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
            await self._ask(f"CONSUMER.INFO.{self.stream}.{self._consumer(operation_id)}", None)
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

    def headers(self, payload: dict[str, Any]) -> dict[str, str] | None:
        """Return headers with the lifetime of a request; None if it has no deadline or the server is too old."""
        limit = limit_of(payload)
        if not self._expires or limit is None:
            return None
        seconds = min(math.ceil(limit / 1000 - time.time()) + 1, math.ceil(self._config.max_age))
        return {"Nats-TTL": f"{max(1, seconds)}s"}

    def forget(self, operation_id: str) -> None:
        """Forget whether requests for an operation are stored."""
        self._known.pop(operation_id, None)

    def forget_all(self) -> None:
        """Forget which operations have stored requests, because a new server may have lost its data."""
        self._known.clear()

    # --- responses -----------------------------------------------------------------------------------

    def response(self, name: str, data: bytes, headers: bytes | None) -> None:
        """Process a response of the server to a request. Raises `ValueError` if the response is not JSON."""
        future = self._asked.get(name)
        if future is None or future.done():
            return
        if headers is not None and headers.startswith(NO_RESPONDERS):
            hint = "start nats-server with -js, or leave out durable=True"
            future.set_exception(TransportError(f"the NATS server has no JetStream; {hint}"))
        else:
            response = json.loads(data)
            future.set_result(response if isinstance(response, dict) else {})

    def fail(self) -> None:
        """Fail all requests to JetStream, because the connection is lost."""
        for future in self._asked.values():
            if not future.done():
                future.set_exception(LinkDownError("the connection to the NATS server was lost"))

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """The lookups in progress."""
        return set(self._lookups.values())


def limit_of(payload: dict[str, Any]) -> float | None:
    """Return the deadline of a request in epoch ms, or None if it is missing or invalid."""
    deadline = payload.get("deadline")
    if isinstance(deadline, (int, float)) and 0 <= deadline < 1e15:
        return float(deadline)
    return None
