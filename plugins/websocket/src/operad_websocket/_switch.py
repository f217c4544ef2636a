"""The switch of a hub, which knows the peers of each request and routes each frame, without sockets."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable
from typing import TypeGuard

from operad.plugin import CallError, ErrorCode, PayloadTooLargeError
from operad.words import printable
from operad_calls.transport import Unreadable, protocol, unreadable
from operad_websocket._addresses import Addresses, Authorize
from operad_websocket._desk import Desk
from operad_websocket._frames import (
    NOBODY,
    Frame,
    Payload,
    integer_of,
    raw,
    read,
    string,
    text_of,
    value,
    write,
    write_event,
)
from operad_websocket._peers import Peer, Route, Usage
from operad_websocket.config import Limits

_LATE = 2_000
"""The time after the deadline of a request at which the hub itself ends it, in ms."""
_DEFAULT = 30_000
"""The timeout of a single call without a timeout, in ms."""
_LONGEST = 1e10
"""The longest timeout that is not ignored, in ms."""
_DISCOVER = "operad.discover"
"""The only operation that a request to all handlers may call."""


class Switch:
    """A switch that routes events between peers.

    A request goes to one of the peers that serve its operation or, for discovery, to all of them. What follows a
    request, such as a response, goes to the peers that the switch has recorded for the request, whatever addresses
    it contains. A response or an abort from any other peer is refused and logged.

    Args:
        limits: the limits; default: those of ``Limits()``.
        authorize: returns True for an identity and an address that it may serve; if ``None``, each may serve all.
    """

    def __init__(self, limits: Limits | None = None, authorize: Authorize | None = None) -> None:
        self.limits = limits or Limits()
        self.peers: set[Peer] = set()
        self.draining = False
        """Whether new requests are refused."""
        self.routed = 0
        """The number of requests that were sent to handlers. A request to several handlers is counted for each."""
        self._addresses = Addresses(self.limits, authorize)
        self._desk = Desk(self._addresses, self.limits)
        self.reports = self._desk.reports
        self._deliver, self._refuse = self._desk.deliver, self._desk.refuse
        self._usage: dict[str, Usage] = {}
        """The usage of each account with a connection."""
        self._routers: dict[str, Callable[[Peer, Frame], None]] = {
            protocol.REQUESTED: self._on_request,
            protocol.RESPONDED: self._on_response,
            protocol.ERROR: self._on_response,
            protocol.COMPLETED: self._on_response,
            protocol.ABORTED: self._on_abort,
            protocol.CREDIT: self._on_credit,
            **self._desk.routers,
        }

    @property
    def pending(self) -> int:
        """The number of requests in progress."""
        return sum(usage.calls for usage in self._usage.values())

    @property
    def addresses(self) -> int:
        """The number of addresses that are served."""
        return len(self._addresses)

    @property
    def refused(self) -> int:
        """The number of refused frames and connections."""
        return self.reports.count

    # --- connections -----------------------------------------------------------------------------

    def join(self, peer: Peer) -> None:
        """Add a peer, and count its connection for its account."""
        self.peers.add(peer)
        peer.usage = self._usage.setdefault(peer.account, peer.usage)
        peer.usage.links += 1

    def has_room(self, peer: Peer) -> bool:
        """Return True if the account of a new peer may have another connection."""
        usage = self._usage.get(peer.account)
        return usage is None or usage.links < self.limits.links

    def leave(self, peer: Peer) -> None:
        """Remove a peer. Abort its requests. End the requests that it handles, with the error ``UNAVAILABLE``."""
        if peer not in self.peers:
            return
        self.peers.discard(peer)
        self._addresses.leave(peer)
        for route in tuple(peer.calls.values()):
            self._abort_handlers(route)
            self._end(route)
        for route in tuple(peer.serving.values()):
            self._drop_handler(route, peer)
        peer.usage.links -= 1
        if not peer.usage.links:
            del self._usage[peer.account]

    def route(self, peer: Peer, frame: Frame) -> None:
        """Route a frame of a peer. An event of an application goes to its ``all:`` address, or nowhere."""
        router = self._routers.get(frame.type)
        if router is not None:
            router(peer, frame)
        elif not frame.type.startswith(("call.", "link.")):
            to = string(frame.to)
            if to is not None and to.startswith("all:"):
                event = write(frame.type, frame.payload)
                for member in tuple(self._addresses.members(to) or ()):
                    self._deliver(member, event)

    def expire(self) -> None:
        """End requests that are 2 s past their deadline, and release reserved names whose time has ended."""
        self._addresses.expire()
        now = time.time() * 1000
        for peer in tuple(self.peers):
            for route in [route for route in peer.calls.values() if route.expires < now]:
                self._abort_handlers(route)
                self._fail(route, CallError(ErrorCode.TIMEOUT, f'"{route.operation_id}" did not respond in time'))

    # --- requests --------------------------------------------------------------------------------

    def _on_request(self, peer: Peer, frame: Frame) -> None:
        payload = frame.payload
        try:
            request_id, operation_id = text_of(payload["requestId"]), text_of(payload["operationId"])
            is_bad = not request_id or len(request_id) > protocol.MAX_ID_LENGTH or request_id in peer.calls
        except (KeyError, ValueError):
            is_bad = True
        if is_bad:
            self._on_bad_request(peer, frame)
            return
        has_credit = "credit" in payload and type(credit := value(payload, "credit")) is int and credit > 0
        topic = None
        if frame.to is not NOBODY and (to := string(frame.to)) is not None and to.startswith("all:"):
            topic = to
        route = Route(peer, request_id, operation_id, has_credit, _expiry(payload, has_credit), topic is not None)
        if topic is not None and (operation_id != _DISCOVER or topic != f"all:{_DISCOVER}"):
            message = (
                f'expected "{_DISCOVER}" at all:{_DISCOVER}, got {printable(operation_id)!r} at {printable(topic)}'
            )
            self._refuse(peer, f"a request for {operation_id!r} at {topic!r}; only {_DISCOVER} is allowed there")
            self._deliver(peer, _error(request_id, CallError(ErrorCode.ACCESS_DENIED, message)))
            return
        if self.draining:
            details = {"operationId": operation_id, "sent": False}
            self._deliver(
                peer, _error(request_id, CallError(ErrorCode.UNAVAILABLE, "the hub is closing; retry", details))
            )
            return
        if peer.usage.calls >= self.limits.calls:
            self._deliver(peer, _error(request_id, _too_many(self.limits.calls, "calls", "in progress")))
            return
        peer.usage.calls += 1
        peer.calls[request_id] = route
        self._stamp(peer, payload)
        if topic is not None:
            self._put_to_all(route, payload, tuple(self._addresses.members(topic) or ()))
        else:
            self._put_to_one(route, payload)

    def _stamp(self, peer: Peer, payload: Payload) -> None:
        """Set the address and the identity of the caller, which only the hub may do."""
        payload["replyTo"] = peer.raw_inbox
        if not peer.trusted:
            if peer.raw_identity is not None:
                payload["identity"] = peer.raw_identity
            elif "identity" in payload:
                del payload["identity"]

    def _on_bad_request(self, peer: Peer, frame: Frame) -> None:
        request_id, operation_id = (string(frame.payload.get(name)) for name in ("requestId", "operationId"))
        if not _is_id(request_id):
            reason = f"requestId: expected a string of 1 to {protocol.MAX_ID_LENGTH} characters"
            message = f"a call.requested without a valid id: {reason}"
            self._desk.object_to(peer, ErrorCode.VALIDATION_ERROR, message, frame.id)
            return
        if operation_id is None:
            why = "operationId: expected a string"
        else:
            why = f"requestId: {printable(request_id)!r} is the id of a request in progress; expected a new one"
        message = f"the request cannot be routed: {why}"
        if operation_id is None:
            self._refuse(peer, message)
            self._deliver(peer, _error(request_id, CallError(ErrorCode.VALIDATION_ERROR, why)))
        else:  # a call.error for a second one would be taken for the first one's
            self._desk.object_to(peer, ErrorCode.VALIDATION_ERROR, message, frame.id)

    def _put_to_one(self, route: Route, payload: Payload) -> None:
        topic = f"op:{route.operation_id}"
        members = self._addresses.members(topic)
        if not members:
            self._fail(route, self._nobody(route.operation_id, self._addresses.kept(topic)))
            return
        handler = members[0]
        if len(members) > 1:
            members.rotate(-1)
        limit = self.limits.calls_per_handler
        if handler.owed.get(route.caller.debtor, 0) >= limit:
            self._fail(route, _too_many(limit, "calls_per_handler", "with one handler"))
            return
        try:
            self._hand_over(route, payload, handler)
        except PayloadTooLargeError as error:
            self._fail(route, CallError(ErrorCode.PAYLOAD_TOO_LARGE, str(error)))

    def _nobody(self, operation_id: str, kept: float) -> CallError:
        details = {"operationId": operation_id}
        if kept:
            message = f'"{operation_id}": its handler lost the connection; it has {kept:.0f} s to return; retry'
            return CallError(ErrorCode.UNAVAILABLE, message, {**details, "sent": False})
        message = f'operation "{operation_id}" not found: no peer of this hub serves it'
        return CallError(ErrorCode.OPERATION_NOT_FOUND, message, details)

    def _put_to_all(self, route: Route, payload: Payload, members: Iterable[Peer]) -> None:
        count = 0
        for member in members:
            try:
                self._hand_over(route, payload, member)
            except PayloadTooLargeError:
                continue
            count += 1
        self._deliver(route.caller, write(protocol.COMPLETED, {"requestId": route.caller_id, "count": count}))
        if not route.handlers:
            self._end(route)

    def _hand_over(self, route: Route, payload: Payload, handler: Peer) -> None:
        """Send a request to a handler, with the id of the caller unless the handler already uses it."""
        handler_id = route.caller_id
        while handler_id in handler.serving or handler_id in handler.calls:
            handler_id = secrets.token_hex(12)
        if handler_id != route.caller_id:
            payload = {**payload, "requestId": raw(handler_id)}
        handler.deliver(write(protocol.REQUESTED, payload))
        handler.serving[handler_id] = route
        debtor = route.caller.debtor
        handler.owed[debtor] = handler.owed.get(debtor, 0) + 1
        route.handlers[handler] = handler_id
        self.routed += 1

    # --- what follows a request --------------------------------------------------------------------

    def _on_response(self, peer: Peer, frame: Frame) -> None:
        payload, type_ = frame.payload, frame.type
        try:
            route = peer.serving[text_of(payload["requestId"])]
        except (KeyError, ValueError):
            self._on_stray(peer, string(payload.get("requestId")), type_)
            return
        if type_ == protocol.RESPONDED:
            self._pass_response(route, peer, payload)
            return
        _readdress(route, peer, payload)
        self._deliver(route.caller, write(type_, payload))
        if type_ == protocol.COMPLETED and not route.has_credit:
            # A peer that knows only the original events expects an abort as the last event.
            self._deliver(route.caller, write(protocol.ABORTED, {"requestId": route.caller_id}))
        self._answered(route, peer, over=True)

    def _pass_response(self, route: Route, handler: Peer, payload: Payload) -> None:
        caller, is_item = route.caller, "seq" in payload
        if is_item and not route.has_credit:
            route.expires = math.inf  # a stream, which has no default deadline
            if caller.is_slow():
                self._abort_handlers(route)
                message = "the caller reads the items of the stream too slowly"
                self._fail(route, CallError(ErrorCode.SLOW_CONSUMER, message))
                return
        _readdress(route, handler, payload)
        try:
            caller.deliver(write(protocol.RESPONDED, payload))
        except PayloadTooLargeError as error:
            self._abort_handlers(route)
            self._fail(route, CallError(ErrorCode.PAYLOAD_TOO_LARGE, str(error)))
            return
        if not route.has_credit and not is_item:
            self._answered(route, handler, over=False)

    def _on_abort(self, peer: Peer, frame: Frame) -> None:
        request_id = string(frame.payload.get("requestId"))
        if request_id is None:
            return
        route = peer.calls.get(request_id)
        if route is not None:
            self._abort_handlers(route)
            self._end(route)
            return
        route = peer.serving.get(request_id)
        if route is not None:
            self._deliver(route.caller, write(protocol.ABORTED, {"requestId": route.caller_id}))
            self._answered(route, peer, over=True)
        elif peer.recall(request_id) is None:
            self._refuse(peer, "an abort of a request of another peer")

    def _on_credit(self, peer: Peer, frame: Frame) -> None:
        """Pass credit of a caller to its handlers, or a request for credit of a handler to its caller."""
        payload = frame.payload
        request_id = string(payload.get("requestId"))
        if request_id is None:
            return
        payload["replyTo"] = peer.raw_inbox
        if (route := peer.calls.get(request_id)) is not None:
            for handler, handler_id in route.handlers.items():
                self._deliver(handler, write(protocol.CREDIT, {**payload, "requestId": handler_id}))
        elif (route := peer.serving.get(request_id)) is not None:
            self._deliver(route.caller, write(protocol.CREDIT, {**payload, "requestId": route.caller_id}))

    def _on_stray(self, peer: Peer, handler_id: str | None, type_: str) -> None:
        """Handle a response to a request that this peer does not handle."""
        over = None if handler_id is None else peer.recall(handler_id)
        if handler_id is None or over is None:
            self._refuse(peer, f"a {type_} for a request that it does not handle")
        elif not over and type_ == protocol.RESPONDED:
            # It continues a stream although the caller wanted one item, and cannot know it.
            peer.remember(handler_id, True)
            self._deliver(peer, write(protocol.ABORTED, {"requestId": handler_id}))

    def _answered(self, route: Route, handler: Peer, *, over: bool) -> None:
        """Record that a handler has finished. The request ends when all handlers have finished."""
        route.forget(handler, over)
        if not route.handlers:
            self._end(route)

    def _abort_handlers(self, route: Route) -> None:
        for handler, handler_id in tuple(route.handlers.items()):
            route.forget(handler, True)
            aborted = {"requestId": handler_id, "replyTo": route.caller.raw_inbox}
            self._deliver(handler, write(protocol.ABORTED, aborted))

    def _drop_handler(self, route: Route, handler: Peer) -> None:
        route.forget(handler, True)
        if route.is_open:
            if not route.handlers:
                self._end(route)
            return
        details = {"operationId": route.operation_id, "sent": True}
        message = f'"{route.operation_id}": its handler was lost during the call'
        self._fail(route, CallError(ErrorCode.UNAVAILABLE, message, details))

    def _fail(self, route: Route, error: CallError) -> None:
        self._end(route)
        self._deliver(route.caller, _error(route.caller_id, error))

    def _end(self, route: Route) -> None:
        """Remove a request that no handler works on; idempotent."""
        caller = route.caller
        if caller.calls.get(route.caller_id) is not route:
            return
        del caller.calls[route.caller_id]
        caller.remember(route.caller_id, True)
        caller.usage.calls -= 1

    # --- parts -----------------------------------------------------------------------------------

    def on_unreadable(self, peer: Peer, data: bytes, error: Exception) -> None:
        """Refuse a message that is not a frame, and end the request to which it belongs if its id can be read."""
        message = f"a message of {len(data)} bytes is not a frame: {error}"
        if self._tell_waiting(peer, unreadable(data, error)):
            self._refuse(peer, message)
        else:
            self._desk.object_to(peer, ErrorCode.SERIALIZATION_ERROR, message)

    def on_invalid(self, peer: Peer, frame: Frame, data: bytes, error: str) -> None:
        """Refuse a frame that does not match its schema, and end its request if the request id can be read."""
        self._desk.object_to(peer, ErrorCode.VALIDATION_ERROR, error, frame.id)
        self._tell_waiting(peer, unreadable(data, error, ErrorCode.VALIDATION_ERROR))

    def _tell_waiting(self, peer: Peer, found: Unreadable | None) -> bool:
        """Send an error to the peer that waits for an unusable message. Return False if no peer waits."""
        if found is None:
            return False
        request_id = found.event["payload"]["requestId"]
        if found.is_request and request_id not in peer.calls:
            self._deliver(peer, write_event(found.event))
        elif not found.is_request and request_id in peer.serving:
            self._on_response(peer, read(write_event(found.event)))
        else:
            return False
        return True

    def on_too_large(self, peer: Peer, frame: Frame, size: int, limit: int) -> None:
        """Reject a request that is larger than ``limit`` bytes."""
        message = f"the event has {size} bytes; the limit of the hub is {limit}"
        self._refuse(peer, message)
        request_id = string(frame.payload.get("requestId"))
        if _is_id(request_id) and request_id not in peer.calls:
            self._deliver(peer, _error(request_id, CallError(ErrorCode.PAYLOAD_TOO_LARGE, message)))


def _readdress(route: Route, handler: Peer, payload: Payload) -> None:
    """Set the request id to the id that the caller uses, and remove the address of the handler."""
    if route.handlers[handler] != route.caller_id:
        payload["requestId"] = raw(route.caller_id)
    if "replyTo" in payload:
        del payload["replyTo"]


def _expiry(payload: Payload, has_credit: bool) -> float:
    """Return when the hub itself ends a request, in epoch ms."""
    if has_credit:
        return math.inf
    try:  # as operad itself sends it
        if 0 <= (milliseconds := integer_of(payload["timeoutMs"])) < _LONGEST:
            return time.time() * 1000 + milliseconds + _LATE
    except (KeyError, ValueError):
        pass
    timeout = value(payload, "timeoutMs")
    if timeout is None:
        timeout = _DEFAULT
    if not isinstance(timeout, (int, float)) or abs(timeout) >= _LONGEST:
        return math.inf
    return time.time() * 1000 + timeout + _LATE


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= protocol.MAX_ID_LENGTH


def _too_many(limit: int, name: str, where: str) -> CallError:
    message = f"{limit} requests of this client are already {where} (limits.{name}); wait until one has finished"
    return CallError(ErrorCode.OVERLOADED, message, {"limit": name, "value": limit})


def _error(request_id: str, error: CallError) -> bytes:
    return write_event(protocol.error_event(request_id, error.code, error.message, error.details))
