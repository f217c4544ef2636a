"""The calling side of the call protocol: the call map."""

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
from operad_calls import protocol
from operad_calls.calling.pending import PendingRequests
from operad_calls.calling.questions import Asked, Questions
from operad_calls.calling.retries import MODES, Retries, Retry
from operad_calls.calling.single import Single, SingleCalls
from operad_calls.calling.stream import Stream, Streams
from operad_calls.calling.watching import watched_call, watched_stream
from operad_calls.requests import Said, check_loop
from operad_calls.serving.byhand import ByHand, OnRequest
from operad_calls.settings import CallSettings

logger = logging.getLogger("operad.calls")

Signer = Callable[[str, Identity], str]
"""``signer(operation_id, identity)`` signs a delegation for one call (`operad.auth.DelegationSigner`)."""


class PendingRequestMap:
    """The calling side: calls operations wherever the transport finds them.

    Use it as an async context manager. Every call ends exactly once, in an envelope or a `CallError`, at its
    deadline at the latest.

    Args:
        transport: how to reach those who serve; the map opens a link of its own on it.
        plugins: whose envelope kinds answers may have, and whose observers see the calls. Default: the installed
            ones, loaded when the map opens. An answer of any other kind has an `OpaqueMeta`.
        timeout: seconds that a call may take if it does not say. Streams have no such bound, they have a lease.
        max_pending: how many calls may wait at once; more fail with ``OVERLOADED``.
        credit: how many items of a stream may be on their way to a consumer.
        lease: seconds that a stream lives without a sign of life from the other side.
        on_request: takes requests that are served by hand (see `serve`); most applications use a `CallHandler`.
        sign: signs a delegation for each call that names an identity, so that a worker behind a hub or broker
            knows on whose behalf it is made.
        settings: the bounds in one piece; what is given beside them comes first.
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
        self._settings = given.but(timeout=timeout, max_pending=max_pending, credit=credit, lease=lease)
        self._plugins = plugins
        self._sign = sign
        self._observers = self._installed = Observers()
        self._observed = observed
        self._link: Link | None = None
        self._opening = False
        self._requests = requests = PendingRequests(transport, self._settings)
        self._singles = SingleCalls(requests)
        self._streams = Streams(requests)
        self._questions = Questions(requests)
        self._retries = Retries(requests, self._singles.call)
        self._by_hand = None if on_request is None else ByHand(on_request, transport, self._settings)

    @property
    def pending(self) -> int:
        """How many calls and streams are under way."""
        return len(self._requests.table)

    @property
    def late(self) -> int:
        """How many answers came for requests that had ended."""
        return self._requests.late

    @property
    def transport(self) -> Transport:
        """The transport that was given."""
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
            raise RuntimeError("the call map is open already")
        requests.start()
        if self._plugins is None:
            self._plugins = load_plugins()
        requests.kinds = self._plugins.envelope_kinds
        self._opening = True
        try:
            self._link = requests.link = await requests.transport.open(self._on_event, self._on_link)
        finally:
            self._opening = False
        if self._observed:  # not before: what could not be opened may be tried again
            self._installed = self._plugins.observers()
            self._observers = self._observers.with_others(self._installed)
        if self._by_hand is not None:
            self._by_hand.start(self._link)

    async def aclose(self) -> None:
        """End everything that is under way with ``ABORTED``, tell the other side, and disconnect; idempotent."""
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
        self._streams.stop()
        try:
            if self._by_hand is not None:
                await self._by_hand.stop()
            await requests.settle()
        finally:  # also where this is cancelled: closing once more does nothing
            requests.link = None
            await link.close()

    def observe(
        self, started: MaybeObserver = None, finished: MaybeObserver = None, reported: MaybeObserver = None
    ) -> Callable[[], None]:
        """Let functions see each call of this map, until what this returns is called; as
        `operad.OperationRegistry.observe`. Observers of plugins see them, too."""
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
        """Call an operation; of a subscription, take the first item and end it.

        Args:
            operation_id: ``namespace.name``.
            input: what the operation takes; ``None`` means ``{}``.
            timeout: seconds; the map's default if neither this nor a deadline is given.
            deadline: when the call has to be over, in epoch ms.
            identity: who calls. What the handler makes of it is the handler's choice (`CallHandler`).
            parent_request_id: the call that makes this one.
            traceparent: W3C trace context, passed on to the handler's ``context.metadata``.
            tracestate: its second part.
            baggage: W3C baggage, passed on likewise.
            delegation: a signed delegation (a compact JWS) for this call, instead of one of the map's ``sign``.
            idempotency_key: the same for this call and its repetitions: the handler's ``context.idempotency_key``.
            retry: call again until the deadline, with growing pauses. ``"unsent"``: what did not run, as its own
                transport says. ``"safe"``: that, and what was lost and may have run where those who serve it say
                that it is a query or idempotent. ``True``: that, on the caller's word that a second run does no
                harm. That nobody serves the operation is final, unless it has answered before or the connection
                was just lost: then it may be back within 5 s.

        Raises:
            CallError: and nothing else, but a cancellation of the calling task.
        """
        said = Said(
            operation_id, input, identity, parent_request_id, traceparent, tracestate, delegation, idempotency_key,
            baggage,
        )  # fmt: skip
        if timeout is None and deadline is None:
            said.limit = (time.time() + self._settings.timeout) * 1000
        else:
            if deadline is not None:
                deadline = checked_number(deadline, "deadline", "epoch ms")
            said.limit = earlier(deadline, timeout)  # type: ignore[assignment]  # one of them is given
        if retry and retry not in MODES:
            raise ValueError(f"retry: expected a bool, 'unsent' or 'safe', got {retry!r}")
        if self._observers.any_active:
            request_id = self._requests.new_id()
            return watched_call(self._observers, said, request_id, lambda: self._calling(said, retry))
        if not retry and self._sign is None:
            return self._singles.call(said)
        return self._calling(said, retry)

    def _calling(self, said: Said, retry: Retry) -> Coroutine[Any, Any, ResponseEnvelope[Any]]:
        # Not a coroutine around a coroutine: 10,000 calls that wait would keep two frames each.
        if retry:
            return self._retries.call(said, retry, self._signing(said))
        if self._sign is not None and (sign := self._signing(said)) is not None:
            sign(said)
        return self._singles.call(said)

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
        silent for as long as its handler lives. ``credit`` is how many items may be on their way.
        """
        said = Said(
            operation_id, input, identity, parent_request_id, traceparent, tracestate, delegation, None, baggage
        )
        said.credit = self._settings.credit if credit is None else credit
        if type(said.credit) is not int or said.credit < 1:
            raise ValueError(f"credit: expected at least 1, got {credit!r:.100}")
        if timeout is not None:
            said.timeout = checked_number(timeout, "timeout", "seconds")
        if deadline is not None:
            said.limit = checked_number(deadline, "deadline", "epoch ms")
        if self._observers.any_active:
            request_id = self._requests.new_id()
            start = partial(self._streams.items, said, self._signing(said))
            return Subscription(watched_stream(self._observers, said, request_id, start))
        return Subscription(self._streams.items(said, self._signing(said)))

    async def ask_all(
        self,
        topic: str,
        operation_id: str,
        input: Any = None,
        *,
        wait: float = 0.5,
        late: Callable[[Any], None] | None = None,
    ) -> list[Any]:
        """Ask everybody who registered ``all:<topic>``, and collect the data of their answers.

        Handlers answer ``operad.discover`` so, and nothing else.

        Args:
            topic: the topic.
            operation_id: what is asked.
            input: its input.
            wait: seconds to wait for answers; over at once when the transport knows that all have answered.
            late: gets the data of each answer that comes after that, within 30 s; without it they are dropped.

        Raises:
            CallError: the question could not be sent.
        """
        return await self._questions.ask(topic, operation_id, input, wait, late)

    def _signing(self, said: Said) -> Callable[[Said], None] | None:
        """What signs a call, if it needs a signature: anew for each attempt, for each counts once."""
        signer, identity = self._sign, said.identity
        if signer is None or identity is None or said.delegation is not None:
            return None

        def sign(said: Said) -> None:
            said.delegation = signer(said.operation_id, identity)

        return sign

    # --- serving by hand -------------------------------------------------------------------------

    async def serve(self, operation_id: str, group: str = "operad", *, idempotent: bool = False) -> Registration:
        """Take requests for an operation; ``on_request`` gets them. Raises `TransportError`.

        Each is answered by `respond`, `emit_error` or `abort`; a subscription by any number of `respond`, which
        wait for the consumer's credit, and `complete`. A request runs once: what the transport delivers again
        after whoever had it was lost is answered ``UNAVAILABLE``, unless the operation is ``idempotent`` (or a
        query), so that it may run again. At its deadline a request ends with ``TIMEOUT``.
        """
        if self._by_hand is None:
            raise RuntimeError("serving by hand needs PendingRequestMap(…, on_request=…)")
        self._requests.open_link()
        return await self._by_hand.serve(operation_id, group, idempotent=idempotent)

    async def respond(self, request_id: str, envelope: ResponseEnvelope[Any] | Mapping[str, Any]) -> None:
        """Answer a request of this link, or send an item of its stream.

        Raises:
            TypeError: what is given is no envelope.
            LookupError: no such request is under way on this link.
            CallError: the envelope cannot be sent; the caller has been told.
        """
        await self._hand(request_id).respond(request_id, envelope)

    async def complete(self, request_id: str) -> None:
        """End the stream of a request of this link. Raises `LookupError`."""
        await self._hand(request_id).complete(request_id)

    async def emit_error(self, request_id: str, code: str, message: str = "", details: Any = None) -> None:
        """End a request of this link with an error; ``details`` is any JSON value. Raises `LookupError`."""
        await self._hand(request_id).emit_error(request_id, CallError(code, message, details))

    async def abort(self, request_id: str) -> None:
        """End a call that this map made, or a request that this link has, on both sides. Raises `LookupError`."""
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
            raise LookupError(f'no request "{request_id}" of this link is under way')
        return self._by_hand

    # --- what comes in ---------------------------------------------------------------------------

    def _on_link(self, state: LinkState, epoch: int) -> None:
        self._requests.on_link(state, epoch)
        if self._by_hand is not None and state == "down":
            self._by_hand.lost()

    def _on_event(self, event: Event, delivery: Delivery) -> None:
        payload, type_, requests = event["payload"], event["type"], self._requests
        request_id = payload.get("requestId")
        pending = requests.table.get(request_id) if type(request_id) is str else None
        if pending is None:
            if self._by_hand is None or not self._by_hand.on_event(type_, payload, delivery):
                requests.on_stray(type_, payload, delivery)
        elif (
            type_ == protocol.RESPONDED
            and pending.__class__ is Single
            and (delivery.peer is None or delivery.peer == pending.target)
        ):
            self._singles.on_event(pending, type_, payload)  # the commonest by far
        elif type_ == protocol.STORED:
            # Only of a call, which has a deadline: a stream would wait for ever.
            pending.stored = isinstance(pending, Single) and requests.transport.capabilities.stores
        elif isinstance(pending, Asked):
            self._questions.on_event(pending, type_, payload)
        elif delivery.peer != pending.target and _is_forged(pending.target, delivery.peer):
            logger.warning("dropped a %s for a request that %s does not serve", type_, delivery.peer)
        elif isinstance(pending, Stream):
            self._streams.on_event(pending, type_, payload)
        elif isinstance(pending, Single):
            self._singles.on_event(pending, type_, payload)


def _is_forged(target: str | None, peer: str | None) -> bool:
    """Whether who sent an answer is known, and is not who has the request. (A hub, whose own table tells who has
    a request, answers its address as the target.)"""
    return peer is not None and target is not None and peer != target and target.startswith("inbox:")
