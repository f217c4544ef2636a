"""The call map: the calling side of the call protocol."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Self

from operad import load_plugins
from operad.access import Identity
from operad.deadlines import checked_number, earlier
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.observers import MaybeObserver, Observers
from operad.sources import PluginsLike
from operad.subscriptions import Subscription
from operad.transports import Delivery, Event, Link, LinkState, Registration, Transport
from operad_calls.calling.broadcasts import broadcast
from operad_calls.calling.pending import PendingRequests
from operad_calls.calling.retries import MODES, Retries, Retry
from operad_calls.calling.single import call_once
from operad_calls.calling.stream import Streams
from operad_calls.calling.watching import watched_call, watched_stream
from operad_calls.requests import CallRequest, check_loop
from operad_calls.serving.byhand import ByHand, OnRequest
from operad_calls.settings import CallSettings

logger = logging.getLogger("operad.calls")

Signer = Callable[[str, Identity], str]
"""``signer(operation_id, identity)`` signs a delegation for one call (`operad.auth.DelegationSigner`)."""


class PendingRequestMap:
    """Calls operations of other peers over a transport.

    Use it as an async context manager. Every call ends exactly once, with an envelope or a `CallError`, at its
    deadline at the latest.

    Args:
        transport: how to reach the peers; the map opens a link of its own on it.
        plugins: provides the envelope kinds of responses, and the observers of calls. Default: the installed
            plugins, loaded when the map opens. A response of an unknown kind has an `OpaqueMeta`.
        timeout: default timeout of a call in seconds. Streams have a lease instead.
        max_pending: how many calls may wait at once; more fail with ``OVERLOADED``.
        credit: how many items of a stream may be in flight to a consumer.
        lease: seconds that a stream lives without a sign of life from the other side.
        on_request: receives requests that are served by hand (see `serve`); most applications use a `CallHandler`.
        sign: signs a delegation for each call that names an identity, so that a worker behind a hub or broker
            knows on whose behalf the call is made.
        settings: all bounds in one object; arguments given here take precedence.
        observed: whether observers of the plugins see the calls.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        plugins: PluginsLike | None = None,
        timeout: float | None = None,
        max_pending: int | None = None,
        credit: int | None = None,
        lease: float | None = None,
        on_request: OnRequest | None = None,
        sign: Signer | None = None,
        settings: CallSettings | None = None,
        observed: bool = True,
    ) -> None:
        given = settings or CallSettings()
        self._settings = given.updated(timeout=timeout, max_pending=max_pending, credit=credit, lease=lease)
        self._plugins = plugins
        self._sign = sign
        self._observers = self._installed = Observers()
        self._observed = observed
        self._link: Link | None = None
        self._opening = False
        self._requests = requests = PendingRequests(transport, self._settings)
        self._streams = Streams(requests)
        self._retries = Retries(requests, partial(call_once, requests))
        self._by_hand = None if on_request is None else ByHand(on_request, transport, self._settings)

    @property
    def pending(self) -> int:
        """How many calls and streams are in flight."""
        return len(self._requests.table)

    @property
    def late(self) -> int:
        """How many responses arrived for requests that had ended."""
        return self._requests.late

    @property
    def transport(self) -> Transport:
        """The transport of this map."""
        return self._requests.transport

    @property
    def link(self) -> Link | None:
        """The map's own link, while it is open."""
        return self._link

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect. Raises `TransportError`."""
        requests = self._requests
        if self._link is not None or self._opening:
            raise RuntimeError("the call map is already open")
        requests.start()
        if self._plugins is None:
            self._plugins = load_plugins()
        requests.kinds = self._plugins.envelope_kinds
        self._opening = True
        try:
            self._link = requests.link = await requests.transport.open(self._on_event, self._on_link)
        finally:
            self._opening = False
        if self._observed:  # not before: opening may fail and be tried again
            self._installed = self._plugins.observers()
            self._observers = self._observers.with_others(self._installed)
        if self._by_hand is not None:
            self._by_hand.start(self._link)

    async def aclose(self) -> None:
        """End every call in flight with ``ABORTED``, notify the other side, and disconnect; idempotent."""
        link = self._link
        if link is None:
            return
        check_loop(self._requests.loop, "call map")
        self._link = None
        self._observers = self._observers.without(self._installed)
        requests = self._requests
        for pending in list(requests.table.values()):
            requests.end(pending)
            requests.abort(pending)
            pending.fail(CallError(ErrorCode.ABORTED, "the call map was closed"))
        requests.end_lingering()
        self._streams.stop()
        try:
            if self._by_hand is not None:
                await self._by_hand.close()
            await requests.settle()
        finally:  # also if this is cancelled: closing once more does nothing
            requests.link = None
            await link.close()

    def observe(
        self, started: MaybeObserver = None, finished: MaybeObserver = None, reported: MaybeObserver = None
    ) -> Callable[[], None]:
        """Let functions observe each call of this map, and return a function that removes them.

        As `operad.OperationRegistry.observe`. Observers of plugins see the calls, too.
        """
        added = Observers.of(started, finished, reported)
        self._observers = self._observers.with_others(added)

        def stop() -> None:
            self._observers = self._observers.without(added)

        return stop

    # --- calling ---------------------------------------------------------------------------------

    def call(
        self,
        operation_id: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        identity: Identity | None = None,
        parent_request_id: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
        delegation: str | None = None,
        idempotency_key: str | None = None,
        retry: Retry = False,
        baggage: str | None = None,
    ) -> Coroutine[Any, Any, ResponseEnvelope[Any]]:
        """Call an operation and return its response; of a subscription, the first item.

        Args:
            operation_id: ``namespace.name``.
            input: the operation's input; ``None`` means ``{}``.
            timeout: seconds; the map's default if neither this nor a deadline is given.
            deadline: when the call must finish, in epoch ms.
            identity: the caller. The handler decides whether to believe it (`CallHandler`).
            parent_request_id: the request id of the call that makes this one.
            traceparent: W3C trace context, passed on to the handler's ``context.metadata``.
            tracestate: its second part.
            baggage: W3C baggage, passed on likewise.
            delegation: a signed delegation (a compact JWS) for this call, instead of one by the map's ``sign``.
            idempotency_key: the same for this call and its repetitions: the handler's ``context.idempotency_key``.
            retry: repeat the call until the deadline, with growing pauses. ``"unsent"``: if its transport reports
                that it did not run. ``"safe"``: also if it was lost and may have run, and its peers describe the
                operation as a query or idempotent. ``True``: also if it was lost, whatever the operation is. An
                error that no peer serves the operation is final, unless the operation has responded before or
                the connection was just lost: then it is repeated for 5 s.

        Raises:
            CallError: the only error, except the cancellation of the calling task.
        """
        call = CallRequest(
            operation_id, input, identity, parent_request_id, traceparent, tracestate, delegation, idempotency_key,
            baggage,
        )  # fmt: skip
        if timeout is None and deadline is None:
            call.limit = (time.time() + self._settings.timeout) * 1000
        else:
            if deadline is not None:
                deadline = checked_number(deadline, "deadline", "epoch ms")
            call.limit = earlier(deadline, timeout)  # type: ignore[assignment]  # one of them is given
        if retry and retry not in MODES:
            raise ValueError(f"retry: expected a bool, 'unsent' or 'safe', got {retry!r}")
        if self._observers.any_active:
            request_id = self._requests.new_id()
            return watched_call(self._observers, call, request_id, lambda: self._calling(call, retry))
        if not retry and self._sign is None:
            return call_once(self._requests, call)
        return self._calling(call, retry)

    def _calling(self, call: CallRequest, retry: Retry) -> Coroutine[Any, Any, ResponseEnvelope[Any]]:
        # Not a coroutine that awaits another one: each of 10,000 waiting calls would keep two frames.
        if retry:
            return self._retries.call(call, retry, self._signing(call))
        if self._sign is not None and (sign := self._signing(call)) is not None:
            sign(call)
        return call_once(self._requests, call)

    def subscribe(
        self,
        operation_id: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        identity: Identity | None = None,
        parent_request_id: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
        delegation: str | None = None,
        credit: int | None = None,
        baggage: str | None = None,
    ) -> Subscription:
        """Subscribe to an operation; a query or mutation yields its one envelope. Sent when first read.

        Arguments as for `call`, but ``timeout`` bounds the wait for each item, and without one a stream may be
        silent for as long as its handler lives. ``credit`` is how many items may be in flight.
        """
        call = CallRequest(
            operation_id, input, identity, parent_request_id, traceparent, tracestate, delegation, None, baggage
        )
        call.credit = self._settings.credit if credit is None else credit
        if type(call.credit) is not int or call.credit < 1:
            raise ValueError(f"credit: expected at least 1, got {credit!r:.100}")
        if timeout is not None:
            call.timeout = checked_number(timeout, "timeout", "seconds")
        if deadline is not None:
            call.limit = checked_number(deadline, "deadline", "epoch ms")
        if self._observers.any_active:
            request_id = self._requests.new_id()
            start = partial(self._streams.items, call, self._signing(call))
            return Subscription(watched_stream(self._observers, call, request_id, start))
        return Subscription(self._streams.items(call, self._signing(call)))

    async def ask_all(
        self,
        topic: str,
        operation_id: str,
        input: Any = None,
        *,
        wait: float = 0.5,
        late: Callable[[Any], None] | None = None,
    ) -> list[Any]:
        """Ask every peer that registered ``all:<topic>``, and return the data of their responses.

        Handlers respond to ``operad.discover`` this way, and to nothing else.

        Args:
            topic: the topic.
            operation_id: the operation.
            input: its input.
            wait: seconds to wait for responses; shorter if the transport knows that all have responded.
            late: receives the data of each response that arrives within 30 s after that; without it they are
                dropped.

        Raises:
            CallError: the request could not be sent.
        """
        return await broadcast(self._requests, topic, operation_id, input, wait, late)

    def _signing(self, call: CallRequest) -> Callable[[CallRequest], None] | None:
        """Return a function that signs a call, if it needs a signature; each attempt needs a new one."""
        signer, identity = self._sign, call.identity
        if signer is None or identity is None or call.delegation is not None:
            return None

        def sign(call: CallRequest) -> None:
            call.delegation = signer(call.operation_id, identity)

        return sign

    # --- serving by hand -------------------------------------------------------------------------

    async def serve(self, operation_id: str, group: str = "operad", *, idempotent: bool = False) -> Registration:
        """Receive requests for an operation; they are passed to ``on_request``. Raises `TransportError`.

        End each by `respond`, `emit_error` or `abort`; a subscription by any number of `respond`, which wait for
        the consumer's credit, and `complete`. A request runs once: if the transport delivers it again after its
        handler was lost, it fails with ``UNAVAILABLE``, unless the operation is ``idempotent`` (or a query). At
        its deadline a request fails with ``TIMEOUT``.
        """
        if self._by_hand is None:
            raise RuntimeError("serving by hand needs PendingRequestMap(…, on_request=…)")
        self._requests.open_link()
        return await self._by_hand.serve(operation_id, group, idempotent=idempotent)

    async def respond(self, request_id: str, envelope: ResponseEnvelope[Any] | Mapping[str, Any]) -> None:
        """Respond to a request of this link, or send an item of its stream.

        Raises:
            TypeError: ``envelope`` is not an envelope.
            LookupError: no such request is in flight on this link.
            CallError: the envelope cannot be sent; the caller has been notified.
        """
        await self._hand(request_id).respond(request_id, envelope)

    async def complete(self, request_id: str) -> None:
        """End the stream of a request of this link. Raises `LookupError`."""
        await self._hand(request_id).complete(request_id)

    async def emit_error(self, request_id: str, code: str, message: str = "", details: Any = None) -> None:
        """End a request of this link with an error; ``details`` is any JSON value. Raises `LookupError`."""
        await self._hand(request_id).emit_error(request_id, CallError(code, message, details))

    async def abort(self, request_id: str) -> None:
        """End a call of this map, or a request that it serves, on both sides. Raises `LookupError`."""
        requests = self._requests
        requests.open_link()
        pending = requests.table.get(request_id)
        if pending is None:
            await self._hand(request_id).abort(request_id)
            return
        requests.end(pending)
        requests.abort(pending)
        pending.fail(CallError(ErrorCode.ABORTED, f'"{pending.operation_id}" was aborted'))

    def _hand(self, request_id: str) -> ByHand:
        if self._by_hand is None or request_id not in self._by_hand:
            raise LookupError(f'no request "{request_id}" is in flight on this link')
        return self._by_hand

    # --- what arrives ----------------------------------------------------------------------------

    def _on_link(self, state: LinkState, epoch: int) -> None:
        self._requests.on_link(state, epoch)
        if self._by_hand is not None and state == "down":
            self._by_hand.forget_all()

    def _on_event(self, event: Event, delivery: Delivery) -> None:
        payload, type_, requests = event["payload"], event["type"], self._requests
        pending = requests.find(payload.get("requestId"))
        if pending is None:
            if self._by_hand is None or not self._by_hand.on_event(type_, payload, delivery):
                requests.on_stray(type_, payload, delivery)
        elif pending.accepts(delivery.peer):
            pending.on_event(type_, payload)
        else:
            logger.warning("dropped a %s for a request that %s does not serve", type_, delivery.peer)
