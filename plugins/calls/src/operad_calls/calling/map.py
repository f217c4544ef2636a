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
from operad_calls.serving.answers import aborted, completed
from operad_calls.serving.byhand import ByHand, OnRequest
from operad_calls.settings import CallSettings

logger = logging.getLogger("operad.calls")

Signer = Callable[[str, Identity], str]
"""``signer(operation_id, identity)`` returns a signed delegation for one call (`operad.auth.DelegationSigner`)."""


class PendingRequestMap:
    """A call map, which calls operations of other peers over a transport.

    Use it as an async context manager. Every call ends exactly once, with an envelope or a `CallError`, at its
    deadline at the latest.

    Args:
        transport: the transport to the peers. The map opens its own link on it.
        plugins: the plugins with the envelope kinds of responses and the observers of calls. Default: the
            installed plugins, loaded when the map opens. A response of an unknown kind has an `OpaqueMeta`.
        timeout: the default timeout of a call, in seconds. Streams have a lease instead.
        max_pending: the maximum number of calls in flight; further calls fail with ``OVERLOADED``.
        credit: the maximum number of items of a stream in flight to a consumer.
        lease: seconds after which a stream ends without a sign of life from the other side.
        on_request: receives requests that are served by hand (see `serve`); most applications use a `CallHandler`.
        sign: signs a delegation for each call that has an identity, so that a worker behind a hub or broker knows
            on whose behalf the call is made.
        settings: all bounds in one object; the arguments above take precedence. Default: ``CallSettings()``.
        observed: whether the observers of the plugins see the calls.

    Raises:
        ValueError: a bound is not valid.
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
        """The number of calls, streams and broadcasts in flight."""
        return len(self._requests.table)

    @property
    def late(self) -> int:
        """The number of responses, errors included, that arrived for requests that had ended."""
        return self._requests.late

    @property
    def transport(self) -> Transport:
        """The transport of this map."""
        return self._requests.transport

    @property
    def link(self) -> Link | None:
        """The link of this map; ``None`` unless the map is open."""
        return self._link

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect to the transport.

        Raises:
            TransportError: the transport cannot be reached.
            RuntimeError: the map is already open.
        """
        requests = self._requests
        if self._link is not None or self._opening:
            raise RuntimeError("the call map is already open: close it first, or make another one")
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
        """End all calls with ``ABORTED``, and disconnect, in the event loop of `open`; idempotent."""
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

        The arguments are those of `operad.OperationRegistry.observe`. Observers of plugins see the calls, too.
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
        """Call an operation and return its response; for a subscription, the first item.

        Args:
            operation_id: the id, ``namespace.name``.
            input: the input of the operation; ``None`` means ``{}``.
            timeout: the timeout in seconds; default: the timeout of the map, unless there is a deadline.
            deadline: when the call must finish, in ms since 1970.
            identity: the caller. The handler decides whether to accept it; see `CallHandler`.
            parent_request_id: the request id of the call that makes this one.
            traceparent: W3C trace context, for ``context.metadata`` of the handler.
            tracestate: the second part of the W3C trace context.
            baggage: W3C baggage, for ``context.metadata`` of the handler.
            delegation: a signed delegation (a compact JWS) for this call, instead of one of the map's ``sign``.
            idempotency_key: a key that repetitions of this call share; the handler's ``context.idempotency_key``.
            retry: whether to repeat a lost or refused call until the deadline, with growing pauses.
                ``"unsent"``: if it did not run. ``"safe"``: also if it may have run, and a peer describes the
                operation as a query or as idempotent. ``True``: also if it may have run, for every operation. If
                no peer serves the operation, the call is repeated for at most 5 s, and only if the operation has
                responded before or the connection was just lost.

        Raises:
            CallError: the call failed; ``VALIDATION_ERROR`` if ``timeout`` or ``deadline`` is not a number.
            ValueError: ``retry`` is not a bool, ``"unsent"`` or ``"safe"``.
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
            raise ValueError(f"retry: expected a bool, 'unsent' or 'safe', got {retry!r:.100}")
        if (observers := self._observers.active_for(operation_id)) is not None:
            request_id = self._requests.new_id()
            return watched_call(observers, call, request_id, lambda: self._calling(call, retry))
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
        """Return a subscription, which yields the items of an operation; for a query or mutation, one envelope.

        The request is sent when the subscription is first read. The arguments are those of `call`, but ``timeout``
        limits the wait for each item; without a timeout a stream may be silent as long as its handler lives.
        ``credit`` is the maximum number of items in flight. Reading raises the `CallError` that ends the stream.

        Raises:
            CallError: ``VALIDATION_ERROR`` if ``timeout`` or ``deadline`` is not a number.
            ValueError: ``credit`` is not an integer of at least 1.
        """
        call = CallRequest(
            operation_id, input, identity, parent_request_id, traceparent, tracestate, delegation, None, baggage
        )
        call.credit = self._settings.credit if credit is None else credit
        if type(call.credit) is not int or call.credit < 1:
            raise ValueError(f"credit: expected an integer of at least 1, got {call.credit!r:.100}")
        if timeout is not None:
            call.timeout = checked_number(timeout, "timeout", "seconds")
        if deadline is not None:
            call.limit = checked_number(deadline, "deadline", "epoch ms")
        if (observers := self._observers.active_for(operation_id)) is not None:
            request_id = self._requests.new_id()
            start = partial(self._streams.items, call, self._signing(call))
            return Subscription(watched_stream(observers, call, request_id, start))
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
        """Send a request to every peer that registered ``all:<topic>``, and return the data of the responses.

        A `CallHandler` responds to ``operad.discover`` only. Errors are left out of the result.

        Args:
            topic: the topic.
            operation_id: the operation.
            input: the input of the operation.
            wait: seconds to wait for responses. The wait ends early if the transport knows that all peers have
                responded.
            late: receives the data of each response that arrives after the wait, until 30 s after the request. By
                default such responses are dropped.

        Raises:
            CallError: the map is not open or has ``max_pending`` calls, or the request could not be sent.
        """
        return await broadcast(self._requests, topic, operation_id, input, wait, late)

    def _signing(self, call: CallRequest) -> Callable[[CallRequest], None] | None:
        """Return a function that signs an attempt of a call, or ``None`` if the call needs no signature."""
        signer, identity = self._sign, call.identity
        if signer is None or identity is None or call.delegation is not None:
            return None

        def sign(call: CallRequest) -> None:
            call.delegation = signer(call.operation_id, identity)

        return sign

    # --- serving by hand -------------------------------------------------------------------------

    async def serve(self, operation_id: str, group: str = "operad", *, idempotent: bool = False) -> Registration:
        """Serve an operation by hand: pass its requests to ``on_request`` until the result is unregistered.

        End each request with `respond`, `emit_error` or `abort`. For a subscription, call `respond` for each item
        (it waits for credit of the consumer), and then `complete`. At its deadline a request fails with
        ``TIMEOUT``. If the transport delivers a request again after its handler was lost, the request fails with
        ``UNAVAILABLE``, unless the operation is ``idempotent``.

        Args:
            operation_id: the operation.
            group: the name of the group whose members share the requests.
            idempotent: whether the operation may run twice for one request.

        Raises:
            TransportError: the operation cannot be registered.
            RuntimeError: the map has no ``on_request``.
            CallError: the map is not open.
        """
        if self._by_hand is None:
            raise RuntimeError(
                "serving by hand requires on_request: make the map with PendingRequestMap(…, on_request=…)"
            )
        self._requests.open_link()
        return await self._by_hand.serve(operation_id, group, idempotent=idempotent)

    async def respond(self, request_id: str, envelope: ResponseEnvelope[Any] | Mapping[str, Any]) -> None:
        """Respond to a request of this link, or send an item of its stream.

        Raises:
            TypeError: ``envelope`` is not an envelope.
            LookupError: no request with this id is in flight on this link.
            CallError: the envelope cannot be sent; the caller has received the error.
            TransportError: the envelope was not sent.
        """
        await self._hand(request_id).respond(request_id, envelope)

    async def complete(self, request_id: str) -> None:
        """End a stream. Raises `LookupError` if it has ended, and `TransportError` if its end cannot be sent."""
        await self._hand(request_id).end(request_id, completed)

    async def emit_error(self, request_id: str, code: str, message: str = "", details: Any = None) -> None:
        """End a request with an error; ``details`` is any JSON value. Raises `LookupError` if it has ended."""
        await self._hand(request_id).emit_error(request_id, CallError(code, message, details))

    async def abort(self, request_id: str) -> None:
        """Abort a call or a served request, on both sides. Raises `LookupError` if this map does not have it."""
        requests = self._requests
        requests.open_link()
        pending = requests.table.get(request_id)
        if pending is None:
            await self._hand(request_id).end(request_id, aborted)
            return
        requests.end(pending)
        requests.abort(pending)
        pending.fail(CallError(ErrorCode.ABORTED, f'"{pending.operation_id}" was aborted'))

    def _hand(self, request_id: str) -> ByHand:
        if self._by_hand is None:
            raise LookupError(f'no request "{request_id}" is in flight on this link; it may have ended')
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
            logger.warning("dropped %s of %s: %s does not serve it", type_, pending.operation_id, delivery.peer)
