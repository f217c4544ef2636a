"""The serving side of the call protocol: the call handler."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from operad import protocol
from operad.access import Identity
from operad.calls.listing import CHANGED, REMOTE, Listing
from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope, local_envelope
from operad.errors import CallError, ErrorCode
from operad.failures import map_error, mask_error, operation_not_found
from operad.operations import OperationSpec, OperationType
from operad.transports import (
    Delivery,
    Event,
    Link,
    LinkState,
    PayloadTooLargeError,
    Registration,
    Transport,
    TransportError,
)

if TYPE_CHECKING:
    from operad.registry.registry import OperationRegistry

logger = logging.getLogger("operad.calls")

Verifier = Callable[[dict[str, Any], Delivery], "Identity | Awaitable[Identity | None] | None"]
"""``verifier(payload, delivery)`` tells who makes a request, from a signed token in it, say."""

GROUP = "operad"
"""The group in which handlers share requests."""
_MAX_RECENT = 10_000
_NOTICE_AFTER = 0.05
"""Seconds after which a handler on a broker tells where it is."""
_REGISTER_AT_ONCE = 500
_BREATH, _CREDIT_BREATH = 8, 256
"""After how many items a stream lets others run, without credit and with it."""
_LONGEST = 1e10
"""Milliseconds: a longer timeout means no timeout to any clock."""


class _Request:
    """A request under way."""

    __slots__ = (
        "deadline",
        "done",
        "key",
        "noticed",
        "operation_id",
        "renewed",
        "reply_to",
        "request_id",
        "task",
        "total",
        "waiter",
    )

    def __init__(
        self,
        key: tuple[str, str],
        reply_to: str,
        operation_id: str,
        total: int | None,
        done: Callable[[], None] | None,
    ) -> None:
        self.key = key
        self.request_id = key[1]
        self.reply_to = reply_to
        self.operation_id = operation_id
        self.total = total
        """How many items may be sent in all; ``None``: the peer gives no credit."""
        self.done = done
        self.task: asyncio.Task[None] | None = None
        self.deadline: float | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.renewed = time.monotonic()
        self.noticed = False

    def grant(self, total: int) -> None:
        self.renewed = time.monotonic()
        if self.total is not None and total > self.total:
            self.total = total
            if self.waiter is not None and not self.waiter.done():
                self.waiter.set_result(None)


class CallHandler:
    """Serves the operations of a registry to the peers of a transport.

    Use it as an async context manager: while it is open, the operations can be called; leaving it is a drain
    (it takes no more requests, finishes those under way, and ends the rest with ``UNAVAILABLE``).

    Args:
        registry: whose operations; what is registered and unregistered later follows.
        transport: where; always given, never implied. The handler opens a link of its own on it.
        identity: who a caller is. ``"peer"``: whom the transport authenticated (the default where it does).
            ``"delegate"``: whom the request names, which trusts every peer (the default in process only). A
            callable: what it makes of the request, or raises `CallError`. On a broker one has to be chosen:
            until then every caller is anonymous.
        operations: which operations are served; all by default.
        reexport: whether operations of `from_remote` are served on; two processes that do so to each other would
            send a call round in circles.
        mask_errors: whether messages of undeclared exceptions stay here. Default: wherever there is a network.
        max_concurrent: how many requests may be under way; more fail with ``OVERLOADED``.
        lease: seconds that a stream lives without a sign of life from its consumer.
        drain_timeout: seconds that requests under way get when the handler closes.
    """

    def __init__(
        self,
        registry: OperationRegistry,
        transport: Transport,
        *,
        identity: Literal["peer", "delegate"] | Verifier | None = None,
        operations: Callable[[OperationSpec], bool] | None = None,
        reexport: bool = False,
        mask_errors: bool | None = None,
        max_concurrent: int = 10_000,
        lease: float = 30.0,
        drain_timeout: float = 10.0,
    ) -> None:
        capabilities = transport.capabilities
        self._registry = registry
        self._transport = transport
        self._serves = operations
        self._reexport = reexport
        self._mask = not capabilities.same_process if mask_errors is None else mask_errors
        self._max_concurrent = max_concurrent
        self._lease = lease
        self._drain_timeout = drain_timeout
        self._verify = _identity_rule(identity, transport)
        self._live = not capabilities.redelivers
        self._stores = capabilities.stores
        self._announces = not capabilities.detects_peer_loss
        self._link: Link | None = None
        self._draining = False
        self._announced = False
        self._stale = False
        """Whether the registry has changed since it was last read."""
        self._refreshing = asyncio.Lock()
        self._drained = False
        self._registrations: dict[str, list[Registration]] = {}
        self._registering: set[str] = set()
        self._active: dict[tuple[str, str], _Request] = {}
        self._recent: dict[tuple[str, str], float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self.instance = secrets.token_hex(8)
        """The id by which this handler is known in discovery."""
        self._listing = Listing(registry, self._is_served, self.instance)

    @property
    def active(self) -> int:
        """How many requests are under way."""
        return len(self._active)

    @property
    def serving(self) -> int:
        """How many operations of the registry are served."""
        return len(self._registrations.keys() - self._listing.own.keys())

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect and serve. Raises `TransportError`."""
        if self._link is not None:
            raise RuntimeError("the call handler is open already")
        self._loop = asyncio.get_running_loop()
        self._draining = self._drained = self._announced = False
        self._refreshing = asyncio.Lock()  # one belongs to a loop
        self._link = await self._transport.open(self._on_event, self._on_link)
        self._registry._catalogue.listen(self._on_change)
        try:
            await self.refresh()
        except BaseException:
            self._registry._catalogue.unlisten(self._on_change)
            link, self._link = self._link, None
            await link.close()
            raise
        self._sweep = self._loop.call_later(self._period(), self._on_sweep)

    async def refresh(self) -> None:
        """Serve what the registry holds now. Happens by itself at once after a change."""
        async with self._refreshing:
            link = self._link
            if link is None or self._draining:
                return
            self._stale = False
            wanted = {
                spec.id for spec in self._registry.specs() if self._is_served(spec)
            } | self._listing.own.keys()
            gone = {  # or declared otherwise than before, so that its addresses are others
                operation_id
                for operation_id, made in self._registrations.items()
                if operation_id not in wanted or len(made) != len(self._addresses(operation_id))
            }
            for operation_id in gone:
                for registration in self._registrations.pop(operation_id):
                    await registration.unregister()
            missing = sorted(wanted - self._registrations.keys())
            for start in range(0, len(missing), _REGISTER_AT_ONCE):
                await self._register(link, missing[start : start + _REGISTER_AT_ONCE])
            if not self._announced:
                await self._listing.announce(link)
                self._announced = True
            if gone or missing:
                await self._tell_change(link)

    async def _tell_change(self, link: Link) -> None:
        """Tell those who follow this handler that it serves other operations than before."""
        await _quietly(link.send(f"all:{CHANGED}", {"type": CHANGED, "id": "", "payload": {}}))

    def _on_change(self) -> None:
        """The registry has changed: follow, in a turn of its own, which many changes share."""
        if not self._stale:
            self._stale = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is served any more
                self._loop.call_soon_threadsafe(self._follow_soon)

    def _follow_soon(self) -> None:
        if self._stale and self._link is not None and not self._draining:
            self._spawn(self._follow())

    async def _follow(self) -> None:
        try:
            await self.refresh()
        except TransportError as error:
            logger.warning("operations could not be registered, the next change tries again: %s", error)

    async def _register(self, link: Link, operation_ids: list[str]) -> None:
        self._registering.update(operation_ids)  # requests may come before the transport answers
        try:
            made = await asyncio.gather(
                *(self._register_one(link, operation_id) for operation_id in operation_ids), return_exceptions=True
            )
            for error in made:  # of those that succeeded, nothing has to be done again
                if error is not None:
                    raise error
        finally:
            self._registering.difference_update(operation_ids)

    async def _register_one(self, link: Link, operation_id: str) -> None:
        made: list[Registration] = []
        try:
            for address in self._addresses(operation_id):
                made.append(await link.register(address, GROUP))  # noqa: PERF401  # what is made before a failure is undone
        except BaseException:
            for registration in made:
                await registration.unregister()
            raise
        self._registrations[operation_id] = made

    def _addresses(self, operation_id: str) -> tuple[str, ...]:
        """Where requests for an operation come in."""
        if self._stores:
            spec = self._registry.get_spec(operation_id)
            # A query is not worth storing: whoever asked it asks again.
            if spec is not None and spec.type is OperationType.MUTATION and spec.is_repeatable:
                return f"op:{operation_id}", f"queue:{operation_id}"
        return (f"op:{operation_id}",)

    def _is_served(self, spec: OperationSpec) -> bool:
        if self._registry.get_handler(spec.id) is None or (REMOTE in spec.metadata and not self._reexport):
            return False
        return self._serves is None or self._serves(spec)

    async def aclose(self) -> None:
        """Drain and disconnect; idempotent."""
        link = self._link
        if link is None or self._draining:
            return
        self._draining = True
        self._registry._catalogue.unlisten(self._on_change)
        if self._sweep is not None:
            self._sweep.cancel()
        limit = self._loop.time() + self._drain_timeout
        try:
            await _quietly(link.drain(self._drain_timeout))  # what the transport had for us still comes, and runs
            self._drained = True
            self._registrations.clear()
            await self._tell_change(link)
            tasks = {request.task for request in self._active.values() if request.task is not None}
            if tasks:
                await asyncio.wait(tasks, timeout=max(0.0, limit - self._loop.time()))
            for request in list(self._active.values()):
                if self._goes_on(request):
                    request.done = None  # closing the link gives it to another handler
                    self._cancel(request)
                    continue
                self._cancel(request)
                error = CallError(ErrorCode.UNAVAILABLE, f'"{request.operation_id}": the handler was shut down')
                await self._send_error(request.reply_to, request.request_id, error)
            if self._tasks:  # a handler that ignores its cancellation does not hold up the shutdown
                await asyncio.wait(self._tasks, timeout=self._drain_timeout)
            await _quietly(link.drain(1.0))
        finally:
            self._link = None
            await link.close()

    # --- what comes in ---------------------------------------------------------------------------

    def _on_event(self, event: Event, delivery: Delivery) -> None:
        type_, payload = event["type"], event["payload"]
        if type_ == protocol.REQUESTED:
            self._on_request(payload, delivery)
        elif type_ == protocol.CREDIT:
            self._on_credit(payload, delivery)
        elif type_ == protocol.ABORTED:
            request = self._active.get(_key(payload, delivery))
            if request is not None:
                self._cancel(request)
        elif type_ == protocol.LOST and self._transport.capabilities.detects_peer_loss:
            for request in [item for item in self._active.values() if item.key[0] == payload.get("peer")]:
                self._cancel(request)

    def _on_request(self, payload: dict[str, Any], delivery: Delivery) -> None:
        key = _key(payload, delivery)
        operation_id, credit = payload.get("operationId"), payload.get("credit")
        if not key[0] or not key[1] or type(operation_id) is not str:
            logger.warning("dropped a request without requestId, operationId or an address for the answer")
            _done(delivery)
            return
        if key in self._active:  # its own end acknowledges it
            logger.warning("dropped a second request with the id of one that is under way")
            return
        if key in self._recent:
            _done(delivery)
            return
        total = credit if type(credit) is int and credit > 0 else None
        request = _Request(key, key[0], operation_id, total, delivery.done)
        refusal = self._refusal(request, payload, delivery)
        if refusal is not None:
            self._spawn(self._refuse(request, refusal))
            return
        self._active[key] = request
        request.task = self._loop.create_task(self._serve(request, payload, delivery))

    def _refusal(self, request: _Request, payload: dict[str, Any], delivery: Delivery) -> CallError | None:
        """Why a request is not even begun."""
        operation_id = request.operation_id
        if self._drained:
            return CallError(ErrorCode.UNAVAILABLE, f'"{operation_id}": the handler is shutting down')
        if not (
            operation_id in self._registrations
            or operation_id in self._registering
            or operation_id in self._listing.shared
        ):
            return operation_not_found(operation_id)
        if len(self._active) >= self._max_concurrent:
            message = f"{self._max_concurrent} requests are under way already (max_concurrent)"
            details = {"limit": "max_concurrent", "value": self._max_concurrent}
            return CallError(ErrorCode.OVERLOADED, message, details)
        now = time.time() * 1000
        request.deadline = self._deadline(payload, now)
        if request.deadline is not None and request.deadline <= now:
            message = f'"{operation_id}" came after its deadline'
            return CallError(ErrorCode.TIMEOUT, message, {"deadline": request.deadline})
        if delivery.redelivered:
            spec = self._registry.get_spec(operation_id)
            if spec is None or not spec.is_repeatable:
                message = f'"{operation_id}": the handler that had the request was lost; it may have run'
                return CallError(ErrorCode.UNAVAILABLE, message, {"operationId": operation_id, "sent": True})
        return None

    def _goes_on(self, request: _Request) -> bool:
        """Whether what is not finished here may run again elsewhere: the transport keeps it until it is done."""
        spec = self._registry.get_spec(request.operation_id)
        return request.done is not None and spec is not None and spec.is_repeatable

    def _deadline(self, payload: dict[str, Any], now: float) -> float | None:
        """When the request has to be over here, in epoch ms. A duration needs no common clock, but a live link."""
        timeout, deadline = payload.get("timeoutMs"), payload.get("deadline")
        if self._live and isinstance(timeout, (int, float)) and 0 <= timeout < _LONGEST:
            return now + timeout
        if isinstance(deadline, (int, float)) and deadline < now + _LONGEST:
            return float(max(0, deadline))  # an integer below the range of a float would raise
        return None

    def _on_credit(self, payload: dict[str, Any], delivery: Delivery) -> None:
        key, total = _key(payload, delivery), payload.get("total")
        request = self._active.get(key)
        if type(total) is not int:
            return
        if request is not None:
            request.grant(total)
            if self._announces:
                self._spawn(self._notice(request))
        elif self._announces and key[0] and key[1] and key not in self._recent:
            # A consumer that renews what is not here would wait for ever.
            error = CallError(ErrorCode.UNAVAILABLE, "no such stream: its handler was restarted")
            self._spawn(self._send_error(key[0], key[1], error))

    def _on_link(self, state: LinkState, epoch: int) -> None:
        if self._link is not None and not self._draining:
            served = f"{self.serving} operations are served"
            if state == "up":
                logger.warning("the connection is back: %s again", served)
            else:
                logger.warning("the connection was lost: %s again when it is back", served)
        if state == "up":
            self._on_change()  # what could not be registered while it was down
        elif self._transport.capabilities.detects_peer_loss:
            for request in list(self._active.values()):  # their callers have been told
                self._cancel(request)

    # --- serving a request ------------------------------------------------------------------------

    async def _serve(self, request: _Request, payload: dict[str, Any], delivery: Delivery) -> None:
        try:
            context = OperationContext(request.request_id, None, None, request.deadline)
            parent, trace = payload.get("parentRequestId"), payload.get("traceparent")
            if type(parent) is str:
                context.parent_request_id = parent
            if type(trace) is str:
                context.metadata = {"traceparent": trace}
            identity = self._verify(payload, delivery)
            if identity is not None:
                context.identity = identity if isinstance(identity, Identity) else await identity
            answer = self._listing.answer(request.operation_id)
            if answer is not None:
                data = answer(payload.get("input"), context)
                event = _responded(request.request_id, local_envelope(data, request.operation_id))
                await self._answer(request, event)
                return
            spec = self._registry.get_spec(request.operation_id)
            if request.total is None and (spec is None or spec.type is not OperationType.SUBSCRIPTION):
                envelope = await self._registry.execute(request.operation_id, payload.get("input"), context)
                event = _responded(request.request_id, envelope)
            else:
                event = await self._stream(request, payload.get("input"), context)
        except asyncio.CancelledError:
            self._finish(request)  # whoever cancelled it has told the caller
            raise
        except BaseException as error:  # noqa: BLE001  # a verifier may raise anything; the caller has to learn of it
            event = self._error_event(request, error)
        await self._answer(request, event)

    async def _stream(self, request: _Request, input: Any, context: OperationContext) -> Event:
        """Send the items; answers the terminal event."""
        link = self._link
        assert link is not None
        if self._announces:
            await self._notice(request)
        sent = 0
        breath = _BREATH if request.total is None else _CREDIT_BREATH
        stream = self._registry.subscribe(request.operation_id, input, context)
        items = stream._items  # nobody else reads it: the guards of `Subscription.__anext__` have no work here
        try:
            while True:
                while request.total is not None and sent >= request.total:
                    request.waiter = self._loop.create_future()
                    try:
                        await request.waiter
                    finally:
                        request.waiter = None
                try:
                    envelope = await items.__anext__()
                except StopAsyncIteration:
                    break
                payload: dict[str, Any] = {"requestId": request.request_id, "output": envelope, "seq": sent}
                if sent == 0:
                    payload["replyTo"] = link.inbox
                await link.send(request.reply_to, {"type": protocol.RESPONDED, "id": "", "payload": payload})
                sent += 1
                if sent % breath == 0:  # nothing above has to wait: others, and an abort, need their turn
                    await asyncio.sleep(0)
        finally:
            await stream.aclose()
        event: Event = {
            "type": protocol.COMPLETED,
            "id": "",
            "payload": {"requestId": request.request_id, "count": sent},
        }
        if request.total is None:  # a peer that knows only the original events takes an abort for the end
            await link.send(request.reply_to, event)
            event = {"type": protocol.ABORTED, "id": "", "payload": {"requestId": request.request_id}}
        return event

    async def _answer(self, request: _Request, event: Event) -> None:
        """Send the last event of a request; what cannot be sent becomes an error that can."""
        link = self._link
        try:
            if link is None:
                return
            try:
                await link.send(request.reply_to, event)
            except CallError as error:
                await self._send_error(request.reply_to, request.request_id, error)
            except PayloadTooLargeError as error:
                await self._send_error(request.reply_to, request.request_id, _too_large(request, error))
            except TransportError as error:
                logger.debug("the answer to %s was not sent: %s", request.request_id, error)
        finally:
            self._finish(request)

    def _error_event(self, request: _Request, error: BaseException) -> Event:
        if isinstance(error, PayloadTooLargeError):
            mapped = _too_large(request, error)
        elif isinstance(error, TransportError):
            mapped = CallError(ErrorCode.UNAVAILABLE, f'"{request.operation_id}": {error}')
        else:
            spec = self._registry.get_spec(request.operation_id)
            declared = () if spec is None else spec.error_schemas
            mapped = mask_error(
                map_error(error, declared),
                [item.code for item in declared],
                mask=self._mask,
                operation_id=request.operation_id,
            )
        return protocol.error_event(request.request_id, mapped.code, mapped.message, mapped.details)

    async def _refuse(self, request: _Request, error: CallError) -> None:
        await self._send_error(request.reply_to, request.request_id, error)
        if request.done is not None:
            request.done()

    async def _send_error(self, to: str, request_id: str, error: CallError) -> None:
        link = self._link
        if link is None:
            return
        event = protocol.error_event(request_id, error.code, error.message, error.details)
        try:
            await link.send(to, event)
        except CallError:  # its details have no wire form
            await _quietly(link.send(to, protocol.error_event(request_id, error.code, repr(error.message))))
        except PayloadTooLargeError:
            await _quietly(link.send(to, protocol.error_event(request_id, error.code, error.message[:1_000])))
        except TransportError as failure:
            logger.debug("an error for %s was not sent: %s", request_id, failure)

    async def _notice(self, request: _Request) -> None:
        """Tell the caller that the request is here, and where aborts and credit for it go."""
        if self._link is not None:
            payload = {"requestId": request.request_id, "total": request.total or 0, "replyTo": self._link.inbox}
            event: Event = {"type": protocol.CREDIT, "id": "", "payload": payload}
            await _quietly(self._link.send(request.reply_to, event))

    # --- book-keeping ----------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _cancel(self, request: _Request) -> None:
        self._finish(request)
        task = request.task
        if task is not None:  # not in the table any more, but closing waits for its end
            task.cancel()
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _finish(self, request: _Request) -> None:
        """Forget a request; idempotent."""
        if self._active.get(request.key) is not request:
            return
        del self._active[request.key]
        if not self._live:
            self._recent[request.key] = request.deadline or time.time() * 1000 + 60_000
            while len(self._recent) > _MAX_RECENT:
                del self._recent[next(iter(self._recent))]
        if request.done is not None:
            request.done()

    def _period(self) -> float:
        return min(_NOTICE_AFTER if self._announces else 1.0, self._lease / 4)

    def _on_sweep(self) -> None:
        """End streams whose consumer is gone, and tell where slow requests are."""
        now = time.monotonic()
        for request in list(self._active.values()):
            if request.total is not None and now - request.renewed > self._lease:
                logger.info("the consumer of %s gave no sign of life: ended", request.operation_id)
                self._cancel(request)
                # If it is there after all, it learns of the end; and a hub forgets the request.
                message = f'"{request.operation_id}": its consumer gave no sign of life for {self._lease:g} s'
                error = CallError(ErrorCode.ABORTED, message)
                self._spawn(self._send_error(request.reply_to, request.request_id, error))
            elif self._announces and request.total is None and not request.noticed:
                request.noticed = True
                self._spawn(self._notice(request))
        if self._recent:
            self._forget()
        self._sweep = self._loop.call_later(self._period(), self._on_sweep)

    def _forget(self) -> None:
        now = time.time() * 1000
        for key in [key for key, limit in self._recent.items() if limit < now]:
            del self._recent[key]


def _identity_rule(identity: Literal["peer", "delegate"] | Verifier | None, transport: Transport) -> Verifier:
    capabilities = transport.capabilities
    if callable(identity):
        return identity
    if identity is None:
        identity = "delegate" if capabilities.same_process else "peer" if capabilities.authenticates_peer else None
    if identity == "peer":
        return _peer_identity
    if identity == "delegate":
        return _delegated_identity
    if identity is None:
        return _nobody
    raise ValueError(f'identity: expected "peer", "delegate" or a callable, got {identity!r}')


def _peer_identity(payload: dict[str, Any], delivery: Delivery) -> Identity | None:
    return delivery.identity


def _nobody(payload: dict[str, Any], delivery: Delivery) -> Identity | None:
    return None


def _delegated_identity(payload: dict[str, Any], delivery: Delivery) -> Identity | None:
    wire = payload.get("identity")
    if wire is None:
        return None
    try:
        return Identity.from_wire(wire)
    except ValueError as error:
        raise CallError(ErrorCode.ACCESS_DENIED, f"the request names no usable identity: {error}") from None


def _key(payload: dict[str, Any], delivery: Delivery) -> tuple[str, str]:
    """Who asked what: ids are the callers' choice and may collide, so the table has both."""
    peer = delivery.peer
    if peer is None:
        peer = payload.get("replyTo")
        if type(peer) is not str:
            peer = ""
    request_id = payload.get("requestId")
    if type(request_id) is not str or len(request_id) > protocol.MAX_ID_LENGTH:
        request_id = ""
    return (peer, request_id)


def _done(delivery: Delivery) -> None:
    if delivery.done is not None:
        delivery.done()


def _responded(request_id: str, envelope: ResponseEnvelope[Any]) -> Event:
    return {"type": protocol.RESPONDED, "id": "", "payload": {"requestId": request_id, "output": envelope}}


def _too_large(request: _Request, error: PayloadTooLargeError) -> CallError:
    return CallError(ErrorCode.PAYLOAD_TOO_LARGE, f'the answer of "{request.operation_id}" is too large: {error}')


async def _quietly(work: Awaitable[Any]) -> None:
    """What may fail because the other side is gone."""
    try:
        await work
    except (TransportError, CallError) as error:
        logger.debug("not sent: %s", error)
