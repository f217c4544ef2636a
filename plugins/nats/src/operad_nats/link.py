"""`NATSLink`: one participant's connection to a NATS server."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import Any
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
    Reports,
    TransportError,
    decode,
    encode,
    protocol,
    unreadable,
)
from operad_nats._client import NO_RESPONDERS, ServerError, StrictClient
from operad_nats._ending import ended
from operad_nats._permissions import Permissions
from operad_nats._queues import Queues
from operad_nats._subjects import asked_in, subject_of, token
from operad_nats.config import NATSConfig

logger = logging.getLogger("operad.nats")

_MAX_REQUEST_ID = 400
"""Longer ids (in their percent-encoding) have no subject for the server's refusal; they end by their deadline."""
_DELIVERY = Delivery()
DISCOVER = "operad.discover"
"""The one operation that a request to everybody may run."""


class NATSLink:
    """A connection, its inbox and what it serves. Made by `NATSTransport.open`."""

    def __init__(self, config: NATSConfig, on_event: OnEvent, on_link: OnLink) -> None:
        self._config = config
        self._on_event = on_event
        self._on_link = on_link
        own = secrets.token_hex(16)
        self._inbox = f"inbox:{config.inbox}.{own}" if config.inbox else f"inbox:{own}"
        # Ten thousand subjects are about 2 MB; ids that peers make up cannot grow it further.
        self._subject = lru_cache(maxsize=10_000)(self._subject_of)
        self._refusals = lru_cache(maxsize=1_000)(self._refusals_of)
        self._client = StrictClient(self._receive, require_tls=config.requires_tls)
        self._permissions = Permissions()
        self._reports = Reports(logger)
        self._queues: Queues | None = None
        if config.durable:
            own_subjects = self._subject(self._inbox)[: -len("r")]
            self._queues = Queues(config, self._client, own_subjects, self._can_send, self._tell)
        self._registrations: set[_Registration] = set()
        self._epoch = 0
        self._is_up = False
        self._closed = False
        self._flush: asyncio.Task[None] | None = None
        self._trips: set[asyncio.Task[None]] = set()

    @property
    def inbox(self) -> str:
        """The address of this link, ``inbox:…``."""
        return self._inbox

    # --- the connection --------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect and listen at the inbox. Raises `LinkDownError`, or `ConfigError` for a file of certificates."""
        trusted = self._config.ssl_context()  # before there is anything to close
        failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        attempts = len(self._config.servers)

        async def on_error(error: Exception) -> None:
            nonlocal attempts
            attempts -= 1
            if self._epoch == 0 and attempts <= 0 and not failed.done():
                failed.set_result(error)
            elif self._epoch and not self._closed:
                self._on_error(error)

        connecting = asyncio.ensure_future(self._connect(on_error, trusted))
        waiting: set[asyncio.Future[Any]] = {connecting, failed}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                raise LinkDownError(f"no connection to {self._hosts()}: {_reason(failed.result())}")
            await connecting
            if self._queues is not None:
                await self._queues.set_up()
        except (errors.Error, OSError, ValueError) as error:
            await self.close()
            raise LinkDownError(f"no connection to {self._hosts()}: {_reason(error)}") from error
        except BaseException:
            await ended({connecting})
            await self.close()
            raise
        self._up()

    def _on_error(self, error: Exception) -> None:
        """An error that the server reports; what it means for the connection `on_link` tells."""
        ended = self._permissions.violation(_reason(error))
        if ended is None:
            if isinstance(error, ServerError):
                self._reports.warn("server", _reason(error))
            else:
                logger.debug("%s", _reason(error))
            return
        self._reports.warn("server", _reason(error))
        for event in ended:
            self._tell(event, _DELIVERY)

    async def _connect(self, on_error: Callable[[Exception], Any], trusted: ssl.SSLContext | None) -> None:
        options = self._config
        await self._client.connect(
            [server.replace("tls+nats:", "tls:", 1) for server in options.servers],
            name=options.name,
            error_cb=on_error,
            disconnected_cb=self._disconnected,
            reconnected_cb=self._reconnected,
            closed_cb=self._disconnected,
            connect_timeout=options.connect_timeout,  # type: ignore[arg-type]  # passed to wait_for, where a fraction is fine
            reconnect_time_wait=options.reconnect_wait * random.uniform(1.0, 1.5),  # type: ignore[arg-type]  # noqa: S311  # passed to sleep; no secret, it only spreads the herd
            max_reconnect_attempts=-1,
            ping_interval=options.ping_interval,  # type: ignore[arg-type]  # passed to sleep
            user=options.user,
            password=options.password,
            token=options.token,
            user_credentials=options.credentials,
            nkeys_seed=options.nkey_seed,
            tls=trusted,
            tls_handshake_first=options.tls_first,
        )
        subject = self._subject(self._inbox)[: -len("r")] + ">"
        await self._client.listen(subject)
        await self._client.barrier()

    def _hosts(self) -> str:
        return ", ".join(server.rpartition("@")[2].rpartition("/")[2] for server in self._config.servers)

    def _can_send(self) -> bool:
        return self._is_up and self._client.is_connected

    def _up(self) -> None:
        self._epoch += 1
        self._is_up = True
        self._on_link("up", self._epoch)

    async def _reconnected(self) -> None:
        if self._queues is not None:
            self._queues.up()
        self._up()

    async def _disconnected(self) -> None:
        self._client.forget_unsent()
        self._permissions.forget()
        if self._is_up:
            self._is_up = False
            if self._queues is not None:
                self._queues.down()
            self._on_link("down", self._epoch)

    # --- events in ---------------------------------------------------------------------------------

    def _receive(
        self, subject: bytes, reply: bytes | None, data: bytes | memoryview, headers: bytes | None
    ) -> None:
        try:
            if self._queues is not None and self._queues.receive(subject, reply, data, headers):
                return
            if headers is not None and headers.startswith(NO_RESPONDERS):
                event = self._refusal(subject.decode())
            else:
                event = decode(data)
                if event["type"].startswith("link."):
                    raise ValueError(f"only a link makes a {event['type']}")
        except (ValueError, RecursionError) as error:
            self._on_unusable(subject, data, error)
            return
        if event["type"] == protocol.REQUESTED and not self._is_address(subject, event):
            why = "it came to an address that is not its operation's"
            self._on_unusable(subject, data, why, ErrorCode.ACCESS_DENIED)
            return
        self._tell(event, _DELIVERY)

    def _is_address(self, subject: bytes, event: Event) -> bool:
        """Whether a request came to the address of its operation: permissions are given by subject."""
        operation_id = event["payload"].get("operationId")
        if type(operation_id) is not str:
            return True  # nothing that runs
        if not operation_id:
            return False  # which has no address
        came_to = subject.decode(errors="replace")  # below an inbox a peer may choose any bytes
        return came_to == self._subject(f"op:{operation_id}") or (
            operation_id == DISCOVER and came_to == self._subject(f"all:{DISCOVER}")
        )

    def _on_unusable(
        self, subject: bytes, data: bytes | memoryview, why: object, code: str = ErrorCode.SERIALIZATION_ERROR
    ) -> None:
        """A message of no use: who waits for what it is about is told, if that can be read."""
        found = unreadable(bytes(data), why, code)
        self._reports.refuse("bus", f"dropped what came on {subject.decode(errors='replace')!r}: {why}")
        if found is None or not found.is_request:
            if found is not None:
                self._tell(found.event, _DELIVERY)
        elif found.reply_to is not None and self._can_send():
            try:
                self._client.post(self._subject(found.reply_to), "", encode(found.event))
            except TransportError as error:  # no address
                logger.debug("nobody can be told: %s", error)

    def _tell(self, event: Event, delivery: Delivery) -> bool:
        """Give an event to whoever opened the link; answers whether it was taken."""
        try:
            self._on_event(event, delivery)
        except Exception:  # it would end nats-py's reader, and with it the connection, without a word
            logger.exception("handling an event failed")
            return False
        return True

    def _refusal(self, subject: str) -> Event:
        """The event that a request gets whose subject nobody listens to; the subject of the answer names both."""
        operation_id, request_id = asked_in(subject)
        return protocol.error_event(
            request_id,
            ErrorCode.NO_RESPONDERS,
            f'nobody serves operation "{operation_id}"',
            {"operationId": operation_id},
        )

    # --- events out --------------------------------------------------------------------------------

    def _subject_of(self, address: str) -> str:
        return subject_of(address, self._config.prefix, self._config.inbox_prefix)

    async def send(self, to: str, event: Event) -> None:
        """Send an event; returns when it is in the write buffer.

        Raises:
            CallError: ``SERIALIZATION_ERROR``.
            LinkDownError: there is no connection now; nothing was sent.
            PayloadTooLargeError: nothing was sent.
            TransportError: ``to`` is no address.
        """
        subject = self._subject(to)
        data = protocol.encode_in_parts(event)
        limit = min(self._config.max_payload, self._client.max_payload)
        if len(data) > limit:
            raise PayloadTooLargeError(f"the event has {len(data)} bytes, the connection takes {limit}")
        queues, reply, headers = self._queues, "", b""
        if queues is not None and (kept := queues.keep(to, event, subject, data)) is not None:
            if not self._can_send():
                return  # it is sent when the connection is back
            reply = kept
        await self._check_up()
        if event["type"] == "call.requested" and to.startswith("op:"):
            reply = self._refusal_subject(to[3:], event)
            self._permissions.note(subject, event["payload"])
            # Streams are not stored: what a consumer has seen of one cannot be seen again.
            if queues is not None and reply and "credit" not in event["payload"] and await queues.has(to[3:]):
                subject, headers = self._subject(f"queue:{to[3:]}"), queues.header(event["payload"])
                if len(data) + len(headers) > limit:
                    raise PayloadTooLargeError(f"the event has {len(data)} bytes, its headers {len(headers)} more")
                await self._check_up()
        try:
            await self._client.write(subject, reply, data, headers)
        except (errors.Error, OSError) as error:
            raise LinkDownError(f"not sent: {_reason(error)}") from error

    async def _check_up(self) -> None:
        if not self._can_send():
            await asyncio.sleep(0)  # whoever calls again in a loop must not keep the link from coming back
            raise LinkDownError("the connection to the NATS server is down")

    def _refusal_subject(self, operation_id: str, event: Event) -> str:
        """Where the server answers a request that nobody takes: it answers without the request."""
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
        """Receive what is sent to ``topic``; in force on the server when it returns."""
        queue = token(group) if group is not None else ""
        subject, queued = self._subject(topic), None
        if topic.startswith("queue:"):
            if self._queues is None or not queue:
                raise TransportError(f'"{topic}" is not registered: it needs durable=True, and a group')
            queued = topic[len("queue:") :]
            subject = self._queues.deliver_subject(queued)
        try:
            subscription = await self._client.listen(subject, queue)
        except (errors.Error, OSError) as error:
            raise LinkDownError(f'"{topic}" is not registered: {_reason(error)}') from error
        registration = _Registration(self, subscription, queued)
        self._registrations.add(registration)
        try:
            if self._queues is not None and queued is not None:
                await self._queues.serve(queued, queue)
            else:
                await self._flushed()
            if self._permissions.is_refused(subject):
                raise TransportError(f"the NATS server does not permit this user to subscribe to {subject}")
        except TransportError as error:
            await self.unregister(registration)
            raise TransportError(f'"{topic}" is not registered: {error}') from error
        except (errors.Error, OSError) as error:
            await self.unregister(registration)
            raise LinkDownError(f'"{topic}" is not registered: {_reason(error)}') from error
        return registration

    async def _flushed(self) -> None:
        """Return when the server has seen what was sent before; callers at one time share one round trip."""
        if not self._is_up:
            return  # nats-py sends the subscriptions when the connection is back
        if self._flush is None:
            self._flush = asyncio.ensure_future(self._round_trip())
            self._trips.add(self._flush)
            self._flush.add_done_callback(self._trips.discard)
            self._flush.add_done_callback(_retrieve)  # all who wait for it may be cancelled
        flush = self._flush
        try:
            await asyncio.shield(flush)
        except asyncio.CancelledError:
            if flush.cancelled():  # by `close`; who waits for it was not
                raise errors.ConnectionClosedError from None
            raise

    async def _round_trip(self) -> None:
        await asyncio.sleep(0)  # whoever comes in this turn of the loop is part of it
        self._flush = None
        await self._client.barrier()

    async def unregister(self, registration: _Registration) -> None:
        """Serve an address no longer; in force on the server when it returns."""
        if registration in self._registrations:
            await self._unsubscribe(registration)
            try:
                await self._flushed()
            except (errors.Error, OSError) as error:
                logger.debug("unregistering: %r", error)

    async def _unsubscribe(self, registration: _Registration) -> None:
        self._registrations.discard(registration)
        if self._queues is not None and registration.queued is not None:
            self._queues.forget(registration.queued)
        try:
            await registration.subscription.unsubscribe()
        except errors.Error as error:
            logger.debug("unsubscribing: %r", error)  # closed meanwhile: nothing is served any more

    async def drain(self, timeout: float) -> None:
        """Serve no address any more; what the server had sent already has been delivered when it returns."""
        for registration in list(self._registrations):
            await self._unsubscribe(registration)
        if self._is_up:
            try:
                async with asyncio.timeout(timeout):
                    await self._client.barrier()
                    if self._queues is not None:
                        await self._queues.settle(timeout)
            except (errors.Error, OSError, TimeoutError) as error:
                raise TransportError(f"draining did not end within {timeout} s") from error

    async def close(self) -> None:
        """Write what is buffered, then close the connection; idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            try:
                if self._queues is not None:
                    await self._queues.close()
            finally:
                await self._client.close()
        except (errors.Error, OSError) as error:
            logger.debug("closing: %r", error)
        except asyncio.CancelledError:
            # nats-py cancels what it waits for itself when it is closed while it reconnects.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        finally:
            self._is_up = False
            self._registrations.clear()
            for trip in self._trips:
                trip.cancel()
            if self._trips:
                await asyncio.wait(self._trips)


class _Registration:
    """An address that a link serves."""

    def __init__(self, link: NATSLink, subscription: Subscription, queued: str | None) -> None:
        self._link = link
        self.subscription = subscription
        self.queued = queued
        """The operation whose stored requests come here."""

    async def unregister(self) -> None:
        """Serve it no longer; idempotent."""
        await self._link.unregister(self)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _retrieve(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
