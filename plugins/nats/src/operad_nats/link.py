"""The link of a participant to a NATS server."""

from __future__ import annotations

import logging
import random
import secrets
import ssl
from asyncio import timeout as time_limit
from functools import lru_cache, partial
from urllib.parse import quote

from nats import errors
from nats.aio.subscription import Subscription

from operad.plugin import (
    Delivery,
    ErrorCode,
    Event,
    LinkDownError,
    OnEvent,
    OnLink,
    PayloadTooLargeError,
    Registration,
    TransportError,
)
from operad_calls.transport import BrokerLink, encode, protocol
from operad_nats._client import NO_RESPONDERS, WRITE_ERRORS, Connection, reason
from operad_nats._jetstream import HEADER_BYTES
from operad_nats._permissions import Permissions
from operad_nats._queues import Queues
from operad_nats._subjects import asked_in, subject_of, token
from operad_nats.config import NATSConfig

logger = logging.getLogger("operad.nats")

_MAX_REQUEST_ID = 400
"""The maximum length of a percent-encoded request id. A call with a longer one does not learn of NO_RESPONDERS."""
_MOST_ANNOUNCED = 100
"""The maximum number of announced servers of a cluster that are tried."""
_DELIVERY = Delivery()


class NATSLink(BrokerLink):
    """A link over NATS: a connection, its inbox and its registrations. `NATSTransport.open` makes it."""

    lost_errors = (*WRITE_ERRORS, ValueError)

    def __init__(self, config: NATSConfig, on_event: OnEvent, on_link: OnLink) -> None:
        super().__init__(on_event, on_link, reconnect_wait=config.reconnect_wait, logger=logger)
        self._config = config
        own = secrets.token_hex(16)
        self._inbox = f"inbox:{config.inbox}.{own}" if config.inbox else f"inbox:{own}"
        # Ten thousand subjects take about 2 MB; ids that peers invent cannot exceed that.
        self._subject = lru_cache(maxsize=10_000)(self._subject_of)
        self._refusals = lru_cache(maxsize=1_000)(self._refusals_of)
        self._trusted: ssl.SSLContext | None = None
        self._servers = list(config.servers)
        self._connection = Connection(self._receive, self._on_error, self._on_lost)
        self._permissions = Permissions()
        self._queues: Queues | None = None
        if config.durable:
            own_subjects = self._subject(self._inbox)[: -len("r")]
            self._queues = Queues(config, self._connection, own_subjects, self._can_send, self.tell)
        self._registrations: dict[_Registration, None] = {}

    @property
    def inbox(self) -> str:
        """The address of this link, ``inbox:…``."""
        return self._inbox

    # --- the connection --------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect to a server, and subscribe to the inbox.

        Raises:
            LinkDownError: no server can be reached, or the server refuses the credentials.
            TransportError: ``durable`` is set, and JetStream is missing, refuses or does not respond.
            ConfigError: a file of certificates cannot be used.
        """
        self._trusted = self._config.ssl_context()  # before there is anything to close
        await super().connect()

    def host(self) -> str:
        """See `BrokerLink.host`."""
        return ", ".join(server.rpartition("@")[2].rpartition("/")[2] for server in self._config.servers)

    async def establish(self) -> None:
        """See `BrokerLink.establish`."""
        await self._open()
        await self._connection.listen(self._subject(self._inbox)[: -len("r")] + ">")
        await self._connection.barrier()
        if self._queues is not None:
            await self._queues.up()
        # Last, without a step in between: what is registered until the link is up is registered here.
        known: set[_Registration] = set()
        while added := self._registrations.keys() - known:
            for registration in added:
                if registration in self._registrations:
                    await self._listen(registration)
            known |= added
            await self._connection.barrier()

    async def _open(self) -> None:
        """Connect to one of the servers, in random order. Raise the error of the last server if all fail."""
        failure: Exception = LinkDownError("there is no server to connect to")
        for server in random.sample(self._servers, len(self._servers)):
            try:
                await self._connection.open(server, self._config, self._trusted)
            except self.lost_errors as error:
                failure = error
            else:
                self._servers = [
                    *self._config.servers,
                    *self._connection.discovered()[:_MOST_ANNOUNCED],
                ]
                return
        raise failure

    async def disconnect(self) -> None:
        """See `BrokerLink.disconnect`."""
        await self._connection.close()

    def _can_send(self) -> bool:
        return self.is_up and self._connection.is_open

    def _on_error(self, error: Exception) -> None:
        """End the requests that the server did not permit, and log the error."""
        ended = self._permissions.violation(reason(error))
        if ended is None:
            logger.debug("%s", reason(error))
            return
        self.reports.warn("server", reason(error))
        for event in ended:
            self.tell(event, _DELIVERY)

    def _on_lost(self, error: Exception | None) -> None:
        if isinstance(error, errors.Error):
            self.reports.warn("server", f"the server ended the connection: {reason(error)}")
        self._permissions.forget()
        if self._queues is not None:
            self._queues.down()
        self.lost(error)

    # --- events in ---------------------------------------------------------------------------------

    def _receive(self, subject: bytes, reply: bytes | None, data: bytes, headers: bytes | None) -> None:
        came_on = subject.decode(errors="replace")  # below an inbox a peer may choose any bytes
        try:
            if self._queues is not None and self._queues.receive(subject, reply, data, headers):
                return
            if headers is not None and headers.startswith(NO_RESPONDERS):
                self.tell(self._refusal(subject.decode()), _DELIVERY)
                return
        except (ValueError, RecursionError) as error:
            self.refuse(data, _DELIVERY, error, came_on)
            return
        self.take(data, _DELIVERY, partial(self._is_address, came_on), came_on)

    def _is_address(self, subject: str, event: Event) -> bool:
        """Return True if a request arrived at the address of its operation."""
        operation_id = event["payload"].get("operationId")
        if type(operation_id) is not str:
            return True  # nothing will run
        if not operation_id:
            return False  # it has no address
        return subject == self._subject(f"op:{operation_id}") or (
            operation_id == protocol.DISCOVER and subject == self._subject(f"all:{protocol.DISCOVER}")
        )

    def reply(self, to: str, event: Event) -> None:
        """See `BrokerLink.reply`."""
        if self._can_send():
            self._connection.post(self._subject(to), "", encode(event))

    def _refusal(self, subject: str) -> Event:
        """Return the error event for a request that no client serves, from a reply subject of this link."""
        operation_id, request_id = asked_in(subject)
        return protocol.error_event(
            request_id,
            ErrorCode.NO_RESPONDERS,
            f'no handler serves operation "{operation_id}"',
            {"operationId": operation_id},
        )

    # --- events out --------------------------------------------------------------------------------

    def _subject_of(self, address: str) -> str:
        return subject_of(address, self._config.prefix, self._config.inbox_prefix)

    async def send(self, to: str, event: Event) -> None:
        """Send an event. Return when it is in the write buffer.

        Raises:
            CallError: ``SERIALIZATION_ERROR`` if the event has no JSON form.
            LinkDownError: the link is not connected. Nothing was sent.
            PayloadTooLargeError: the event is too large. Nothing was sent.
            TransportError: ``to`` is not an address, or JetStream refuses or does not respond.
        """
        subject = self._subject(to)
        data = encode(event)
        limit = min(self._config.max_payload, self._connection.max_payload)
        if len(data) > limit:
            raise PayloadTooLargeError(
                f"expected an event of at most {limit} bytes (max_payload here or of the server), got {len(data)}"
            )
        queues, reply, headers = self._queues, "", None
        if queues is not None and (kept := queues.keep(to, event, subject, data)) is not None:
            if not self._can_send():
                return  # it is sent when the connection is back
            reply = kept
        await self.check_up()
        if event["type"] == "call.requested" and to.startswith("op:"):
            reply = self._refusal_subject(to[3:], event)
            self._permissions.note(subject, event["payload"])
            # Streams are not stored: items that a consumer has received cannot be sent again.
            if queues is not None and reply and "credit" not in event["payload"] and await queues.has(to[3:]):
                subject, headers = self._subject(f"queue:{to[3:]}"), queues.headers(event["payload"])
                if headers is not None and len(data) + HEADER_BYTES > limit:
                    raise PayloadTooLargeError(
                        f"the event has {len(data)} bytes and its headers {HEADER_BYTES}; the limit is {limit}"
                    )
                await self.check_up()
        try:
            await self._connection.write(subject, reply, data, headers)
        except WRITE_ERRORS as error:
            raise LinkDownError(f"the event was not sent: {reason(error)}") from error

    async def check_up(self) -> None:
        """See `BrokerLink.check_up`."""
        if self.is_up and not self._connection.is_open:
            raise LinkDownError(f"the connection to {self.host()} is down; the link reconnects")
        await super().check_up()

    def _refusal_subject(self, operation_id: str, event: Event) -> str:
        """Return the reply subject to which the server reports that no client serves a request."""
        request = str(event["payload"].get("requestId", ""))
        if not (request.isascii() and request.isalnum()):  # ids of `PendingRequestMap` are
            request = quote(request, safe="", errors="surrogatepass").replace(".", "%2E")
        if not request or len(request) > _MAX_REQUEST_ID:
            return ""
        return self._refusals(operation_id) + request

    def _refusals_of(self, operation_id: str) -> str:
        operation = quote(operation_id, safe="", errors="replace").replace(".", "%2E")
        return f"{self._subject(self._inbox)[:-1]}n.{operation[:_MAX_REQUEST_ID]}."

    # --- serving -----------------------------------------------------------------------------------

    async def register(self, topic: str, group: str | None = None) -> Registration:
        """Register an address. A link that is not connected does so when it has reconnected.

        Raises:
            TransportError: ``topic`` is not an address, the server refuses it, or it is ``queue:…`` without
                ``durable`` or without a group.
            LinkDownError: the link is closed, or its connection was lost and replaced meanwhile.
        """
        queue = token(group) if group is not None else ""
        subject, queued = self._subject(topic), None
        if topic.startswith("queue:"):
            if self._queues is None or not queue:
                raise TransportError(
                    f'"{topic}" is not registered: stored requests require durable=True and a group'
                )
            queued = topic[len("queue:") :]
            subject = self._queues.deliver_subject(queued)
        if self.is_closed:
            raise LinkDownError("the link is closed; open a new one")
        registration = _Registration(self, subject, queue, queued)
        self._registrations[registration] = None
        if self._queues is not None and queued is not None:
            self._queues.note(queued, queue)
        if not self.is_up:
            return registration  # registered with all others when the connection is back
        try:
            await self._listen(registration)
            if self._queues is not None and queued is not None:
                await self._queues.serve(queued, queue)
            else:
                await self._connection.barrier()
            if self._permissions.is_refused(subject):
                raise TransportError(f"the NATS server does not permit this user to subscribe to {subject}")
        except TransportError as error:
            await self.unregister(registration)
            raise TransportError(f'"{topic}" is not registered: {error}') from error
        except WRITE_ERRORS as error:
            if self._can_send() or self.is_closed:
                await self.unregister(registration)
                raise LinkDownError(f'"{topic}" is not registered: {reason(error)}') from error
        return registration

    async def _listen(self, registration: _Registration) -> None:
        registration.subscription = await self._connection.listen(registration.subject, registration.queue)

    async def unregister(self, registration: _Registration) -> None:
        """Stop serving an address; idempotent. If the link is connected, wait until the server has done so."""
        if registration in self._registrations:
            await self._unsubscribe(registration)
            if self._can_send():
                try:
                    await self._connection.barrier()
                except WRITE_ERRORS as error:
                    logger.debug("unregistering: %r", error)

    async def _unsubscribe(self, registration: _Registration) -> None:
        self._registrations.pop(registration, None)
        if self._queues is not None and registration.queued is not None:
            self._queues.forget(registration.queued)
        if registration.subscription is not None:
            try:
                await registration.subscription.unsubscribe()
            except errors.Error as error:
                logger.debug("unsubscribing: %r", error)  # closed in the meantime

    async def drain(self, timeout: float) -> None:
        """Stop serving all addresses. Return when all messages that the server has sent are delivered.

        Raises:
            TransportError: the drain took longer than ``timeout`` seconds, or the connection was lost meanwhile.
        """
        for registration in list(self._registrations):
            await self._unsubscribe(registration)
        if not self._can_send():
            return
        try:
            async with time_limit(timeout):
                await self._connection.barrier()
                if self._queues is not None:
                    await self._queues.settle(timeout)
        except (*WRITE_ERRORS, TimeoutError) as error:
            late = isinstance(error, TimeoutError)
            why = f"took longer than {timeout:g} s" if late else f"failed: {reason(error)}"
            raise TransportError(f"the drain {why}") from error

    async def sign_off(self) -> None:
        """See `BrokerLink.sign_off`."""
        if self._queues is not None:
            # First, or the server would push to this link again what it gives back.
            for registration in [one for one in self._registrations if one.queued is not None]:
                await self._unsubscribe(registration)
            await self._queues.close()


class _Registration:
    """A registration of an address on a `NATSLink`."""

    def __init__(self, link: NATSLink, subject: str, queue: str, queued: str | None) -> None:
        self._link = link
        self.subject = subject
        self.queue = queue
        self.queued = queued
        """The operation whose stored requests are pushed here, or None."""
        self.subscription: Subscription | None = None
        """The subscription on the current connection."""

    async def unregister(self) -> None:
        """Stop serving the address; idempotent."""
        await self._link.unregister(self)
