"""The hub's switch: who is connected, who serves what, and which request belongs to whom. No sockets in here."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

import attrs

from operad import protocol
from operad.access import Identity
from operad.errors import CallError, ErrorCode
from operad.transports import Event, PayloadTooLargeError

logger = logging.getLogger("operad.hub")

REGISTER, REGISTERED, UNREGISTER = "link.register", "link.registered", "link.unregister"

_REMEMBERED = 1_024
"""How many ended requests of a peer are remembered, so that what was on its way is no alarm."""
_LATE = 2_000
"""Milliseconds after its deadline at which the hub itself ends a request."""
_LONGEST = 1e10
"""Milliseconds: a longer timeout means no timeout to any clock."""
_MAX_TOPIC = 1_024
_PLAIN = ("type", "id", "payload")
"""The keys of an event that goes on as it came: none that is not the protocol's, the payload last."""
_SHARED = frozenset({"op:operad.list", "op:operad.describe"})
"""What every handler offers to serve, and only those of one identity may: a refusal is no alarm."""


@attrs.frozen(kw_only=True)
class Limits:
    """What one identity may have at once; ``None`` as identity is one, too."""

    calls: int = 20_000
    """Requests under way, over all its connections."""
    links: int = 1_000
    """Connections."""
    topics: int = 100_000
    """Addresses that one connection serves."""


class Peer:
    """One connection, as the switch sees it.

    Args:
        deliver: takes an event, at once and without waiting; raises `PayloadTooLargeError`.
        deliver_text: takes the JSON of one likewise; ``None``: events only.
        identity: whom the hub authenticated.
        trusted: whether it is part of the hub's own process, which may name the identity of a call.
    """

    __slots__ = (
        "calls",
        "deliver",
        "deliver_text",
        "ended",
        "identity",
        "inbox",
        "is_slow",
        "serving",
        "stamp",
        "topics",
        "trusted",
    )

    def __init__(
        self,
        deliver: Callable[[Event], None],
        identity: Identity | None = None,
        *,
        trusted: bool = False,
        is_slow: Callable[[], bool] = lambda: False,
        deliver_text: Callable[[bytes], None] | None = None,
    ) -> None:
        self.deliver = deliver
        self.deliver_text = deliver_text
        self.identity = identity
        self.trusted = trusted
        self.is_slow = is_slow
        self.inbox = f"inbox:{secrets.token_hex(12)}"
        stamped: dict[str, Any] = {"replyTo": self.inbox}
        if identity is not None:
            stamped["identity"] = identity.to_wire()
        self.stamp = b"," + protocol.encode_checked(stamped)[1:] + b"}"
        """What the hub writes on this peer's requests, as the end of their JSON."""
        self.calls: dict[str, Route] = {}
        """Requests that it made, by the id that it chose."""
        self.serving: dict[str, Route] = {}
        """Requests that it has, by the id under which it knows them."""
        self.topics: set[str] = set()
        self.ended: dict[str, bool] = {}
        """Ids of requests that it made or had lately; true: it knows that they are over."""

    @property
    def name(self) -> str:
        """For logs."""
        who = "anonymous" if self.identity is None else self.identity.id
        return f"{who} ({self.inbox[6:14]})"


class Route:
    """A request under way."""

    __slots__ = ("caller", "caller_id", "expires", "handlers", "has_credit", "is_open", "operation_id")

    def __init__(
        self, caller: Peer, caller_id: str, operation_id: str, has_credit: bool, expires: float, is_open: bool
    ) -> None:
        self.caller = caller
        self.caller_id = caller_id
        self.operation_id = operation_id
        self.has_credit = has_credit
        self.expires = expires
        self.is_open = is_open
        """Whether it was put to everybody; then each handler answers once."""
        self.handlers: dict[Peer, str] = {}
        """Who has it, and under which id."""


class Switch:
    """Routes events between peers.

    Requests go to a member of those who serve the operation; everything else goes where the switch's own table
    says, never where the event says: what does not belong to the sender is refused and logged.

    Args:
        limits: what one identity may have at once.
        authorize: ``authorize(identity, topic)``: whether it may serve an address.
    """

    def __init__(
        self, limits: Limits | None = None, authorize: Callable[[Identity | None, str], bool] | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.peers: set[Peer] = set()
        self.refused = 0
        """How many events were refused."""
        self._authorize = authorize
        self._topics: dict[str, deque[Peer]] = {}
        self._under_way: dict[str | None, int] = {}
        self._routers: dict[str, Callable[[Peer, dict[str, Any], Event, bytes | None], None]] = {
            protocol.REQUESTED: self._on_request,
            protocol.RESPONDED: self._on_response,
            protocol.ERROR: self._on_response,
            protocol.COMPLETED: self._on_response,
            protocol.ABORTED: self._on_abort,
            protocol.CREDIT: self._on_credit,
            REGISTER: self._on_register,
            UNREGISTER: self._on_unregister,
        }

    @property
    def pending(self) -> int:
        """How many requests are under way."""
        return sum(len(peer.calls) for peer in self.peers)

    def join(self, peer: Peer) -> None:
        """Connect a peer."""
        self.peers.add(peer)

    def has_room(self, identity: Identity | None) -> bool:
        """Whether an identity may have one more connection."""
        name = _name(identity)
        return sum(_name(peer.identity) == name for peer in self.peers) < self.limits.links

    def leave(self, peer: Peer) -> None:
        """Disconnect a peer: its requests are aborted, those it had fail with ``UNAVAILABLE``."""
        if peer not in self.peers:
            return
        self.peers.discard(peer)
        self._unserve(peer, tuple(peer.topics))
        for route in tuple(peer.calls.values()):
            self._abort_handlers(route)
            self._end(route)
        for route in tuple(peer.serving.values()):
            self._drop_handler(route, peer)

    def route(self, peer: Peer, event: Event, text: bytes | None = None) -> None:
        """Pass on an event that a peer sent. Never raises.

        Args:
            peer: who sent it.
            event: what it sent.
            text: its JSON, if `protocol.decode_compared` vouches for it: it goes on as it came, then.
        """
        router = self._routers.get(event["type"])
        if router is not None:
            router(peer, event["payload"], event, text)
        elif isinstance(to := event.get("to"), str) and to.startswith("all:") and _is_free(event["type"]):
            for member in tuple(self._topics.get(to, ())):
                self._deliver(member, {"type": event["type"], "id": "", "payload": event["payload"]})

    def expire(self) -> None:
        """End what is long over its deadline: its caller or handler has forgotten it."""
        now = time.time() * 1000
        for peer in tuple(self.peers):
            for route in [route for route in peer.calls.values() if route.expires < now]:
                self._abort_handlers(route)
                self._fail(route, CallError(ErrorCode.TIMEOUT, f'"{route.operation_id}" did not answer in time'))

    # --- requests --------------------------------------------------------------------------------

    def _on_request(self, peer: Peer, payload: dict[str, Any], event: Event, text: bytes | None) -> None:
        request_id, operation_id = payload.get("requestId"), payload.get("operationId")
        if not _is_id(request_id) or not isinstance(operation_id, str):
            self._refuse(peer, "a request without requestId or operationId")
            return
        if request_id in peer.calls:
            self._refuse(peer, "a second request with the id of one that is under way")
            return
        credit, timeout = payload.get("credit"), payload.get("timeoutMs")
        has_credit = isinstance(credit, int) and credit > 0
        expires = math.inf
        if not has_credit and isinstance(timeout, (int, float)) and abs(timeout) < _LONGEST:
            expires = time.time() * 1000 + timeout + _LATE
        to = event.get("to")
        topic = to if isinstance(to, str) and to.startswith("all:") else None
        route = Route(peer, request_id, operation_id, has_credit, expires, topic is not None)
        if not self._take(peer):
            message = f"{self.limits.calls} requests of this identity are under way already"
            details = {"limit": "calls", "value": self.limits.calls}
            self._deliver(peer, _error(request_id, CallError(ErrorCode.OVERLOADED, message, details)))
            return
        peer.calls[request_id] = route
        if (
            text is not None
            and not peer.trusted
            and "replyTo" not in payload
            and "identity" not in payload
            and tuple(event) == _PLAIN
            and event["id"] == ""
        ):
            text = text[:-2] + peer.stamp
        else:
            text = None
        payload["replyTo"] = peer.inbox
        if not peer.trusted:
            if peer.identity is None:
                payload.pop("identity", None)
            else:
                payload["identity"] = peer.identity.to_wire()
        if topic is not None:
            self._put_to_all(route, payload, tuple(self._topics.get(topic, ())))
        else:
            self._put_to_one(route, payload, text)

    def _put_to_one(self, route: Route, payload: dict[str, Any], text: bytes | None) -> None:
        members = self._topics.get(f"op:{route.operation_id}")
        if not members:
            details = {"operationId": route.operation_id}
            message = f'operation "{route.operation_id}" not found: nobody on this hub serves it'
            self._fail(route, CallError(ErrorCode.OPERATION_NOT_FOUND, message, details))
            return
        handler = members[0]
        if len(members) > 1:
            members.rotate(-1)
        try:
            self._hand_over(route, payload, handler, text)
        except PayloadTooLargeError as error:
            self._fail(route, CallError(ErrorCode.PAYLOAD_TOO_LARGE, str(error)))

    def _put_to_all(self, route: Route, payload: dict[str, Any], members: Iterable[Peer]) -> None:
        count = 0
        for member in members:
            try:
                self._hand_over(route, payload, member, None)
            except PayloadTooLargeError:
                continue
            count += 1
        asked = {"requestId": route.caller_id, "count": count}
        self._deliver(route.caller, {"type": protocol.COMPLETED, "id": "", "payload": asked})
        if not route.handlers:
            self._end(route)

    def _hand_over(self, route: Route, payload: dict[str, Any], handler: Peer, text: bytes | None) -> None:
        """Give a request to a handler, under the caller's id if the handler knows no other one by it.

        ``text`` is its JSON under that id, if there is one already.
        """
        handler_id = route.caller_id
        while handler_id in handler.serving or handler_id in handler.calls:
            handler_id = secrets.token_hex(12)
        if text is not None and handler_id == route.caller_id and handler.deliver_text is not None:
            handler.deliver_text(text)
        else:
            if handler_id != route.caller_id:
                payload = {**payload, "requestId": handler_id}
            handler.deliver({"type": protocol.REQUESTED, "id": "", "payload": payload})
        handler.serving[handler_id] = route
        route.handlers[handler] = handler_id

    # --- what follows a request --------------------------------------------------------------------

    def _on_response(self, peer: Peer, payload: dict[str, Any], event: Event, text: bytes | None) -> None:
        handler_id = payload.get("requestId")
        if not isinstance(handler_id, str) or (route := peer.serving.get(handler_id)) is None:
            self._on_stray(peer, handler_id, event["type"])
            return
        type_ = event["type"]
        caller = route.caller
        if handler_id != route.caller_id or "replyTo" in payload or len(event) != 3 or event.get("id") != "":
            text = None
            payload["requestId"] = route.caller_id
            payload.pop("replyTo", None)
        if type_ == protocol.RESPONDED:
            if not route.has_credit and "seq" in payload and caller.is_slow():
                self._abort_handlers(route)
                message = "the items of the stream were not taken in time"
                self._fail(route, CallError(ErrorCode.SLOW_CONSUMER, message))
                return
            try:
                if text is not None and caller.deliver_text is not None:
                    caller.deliver_text(text)
                else:
                    caller.deliver({"type": type_, "id": "", "payload": payload})
            except PayloadTooLargeError as error:
                self._abort_handlers(route)
                self._fail(route, CallError(ErrorCode.PAYLOAD_TOO_LARGE, str(error)))
                return
            if route.has_credit or "seq" in payload:
                return
        else:
            self._deliver(caller, {"type": type_, "id": "", "payload": payload})
            if type_ == protocol.COMPLETED and not route.has_credit:
                # A peer that knows only the original events takes an abort for the end.
                aborted = {"requestId": route.caller_id}
                self._deliver(caller, {"type": protocol.ABORTED, "id": "", "payload": aborted})
        self._answered(route, peer, over=type_ != protocol.RESPONDED)

    def _on_abort(self, peer: Peer, payload: dict[str, Any], event: Event, text: bytes | None) -> None:
        request_id = payload.get("requestId")
        if not isinstance(request_id, str):
            return
        route = peer.calls.get(request_id)
        if route is not None:
            self._abort_handlers(route)
            self._end(route)
            return
        route = peer.serving.get(request_id)
        if route is not None:
            aborted = {"requestId": route.caller_id}
            self._deliver(route.caller, {"type": protocol.ABORTED, "id": "", "payload": aborted})
            self._answered(route, peer, over=True)
        elif request_id not in peer.ended:
            self._refuse(peer, "an abort of a request that is not its own")

    def _on_credit(self, peer: Peer, payload: dict[str, Any], event: Event, text: bytes | None) -> None:
        request_id = payload.get("requestId")
        if not isinstance(request_id, str) or (route := peer.calls.get(request_id)) is None:
            return  # of a stream that has just ended
        for handler, handler_id in route.handlers.items():
            forwarded = {"requestId": handler_id, "total": payload.get("total"), "replyTo": peer.inbox}
            self._deliver(handler, {"type": protocol.CREDIT, "id": "", "payload": forwarded})

    def _on_stray(self, peer: Peer, handler_id: object, type_: str) -> None:
        """A response to nothing that this peer has."""
        if not isinstance(handler_id, str) or handler_id not in peer.ended:
            self._refuse(peer, f"a {type_} for a request that it does not have")
        elif not peer.ended[handler_id] and type_ == protocol.RESPONDED:
            # It goes on with a stream of which one item was wanted, and cannot know it.
            peer.ended[handler_id] = True
            self._deliver(peer, {"type": protocol.ABORTED, "id": "", "payload": {"requestId": handler_id}})

    def _answered(self, route: Route, handler: Peer, *, over: bool) -> None:
        """A handler has answered; the request ends when all have."""
        self._forget(route, handler, over)
        if not route.handlers:
            self._end(route)

    def _abort_handlers(self, route: Route) -> None:
        for handler, handler_id in tuple(route.handlers.items()):
            self._forget(route, handler, True)
            aborted = {"requestId": handler_id, "replyTo": route.caller.inbox}
            self._deliver(handler, {"type": protocol.ABORTED, "id": "", "payload": aborted})

    def _drop_handler(self, route: Route, handler: Peer) -> None:
        self._forget(route, handler, True)
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
        """Forget a request; idempotent."""
        caller = route.caller
        if caller.calls.get(route.caller_id) is not route:
            return
        del caller.calls[route.caller_id]
        _remember(caller, route.caller_id, True)
        name = _name(caller.identity)
        left = self._under_way[name] - 1
        if left:
            self._under_way[name] = left
        else:
            del self._under_way[name]
        for handler in tuple(route.handlers):
            self._forget(route, handler, False)

    def _forget(self, route: Route, handler: Peer, over: bool) -> None:
        handler_id = route.handlers.pop(handler)
        handler.serving.pop(handler_id, None)
        _remember(handler, handler_id, over)

    def _take(self, peer: Peer) -> bool:
        name = _name(peer.identity)
        count = self._under_way.get(name, 0)
        if count >= self.limits.calls:
            return False
        self._under_way[name] = count + 1
        return True

    # --- addresses -------------------------------------------------------------------------------

    def _on_register(self, peer: Peer, payload: dict[str, Any], event: Event, text: bytes | None) -> None:
        accepted, refused = [], []
        for topic in _topics(payload):
            reason = self._objection(peer, topic)
            if reason is None:
                accepted.append(topic)
                if topic not in peer.topics:
                    peer.topics.add(topic)
                    self._topics.setdefault(topic, deque()).append(peer)
            else:
                refused.append({"topic": topic, "reason": reason})
                if topic not in _SHARED:
                    self._refuse(peer, f"to serve {topic[:200]}: {reason}")
        answer = {"topics": accepted, "refused": refused}
        self._deliver(peer, {"type": REGISTERED, "id": event.get("id", ""), "payload": answer})

    def _objection(self, peer: Peer, topic: str) -> str | None:
        if not topic.startswith(("op:", "all:")) or len(topic) > _MAX_TOPIC:
            return f"an address starts with op: or all: and has at most {_MAX_TOPIC} characters"
        if len(peer.topics) >= self.limits.topics and topic not in peer.topics:
            return f"a connection serves at most {self.limits.topics} addresses"
        if self._authorize is not None and not self._authorize(peer.identity, topic):
            return "this identity may not serve it"
        members = self._topics.get(topic)
        if members and topic.startswith("op:") and _name(members[0].identity) != _name(peer.identity):
            return "it is served by another identity"
        return None

    def _on_unregister(self, peer: Peer, payload: dict[str, Any], event: Event, text: bytes | None) -> None:
        topics = _topics(payload)
        self._unserve(peer, [topic for topic in topics if topic in peer.topics])
        answer: dict[str, Any] = {"topics": [], "refused": []}
        self._deliver(peer, {"type": REGISTERED, "id": event.get("id", ""), "payload": answer})

    def _unserve(self, peer: Peer, topics: Iterable[str]) -> None:
        for topic in topics:
            peer.topics.discard(topic)
            members = self._topics[topic]
            members.remove(peer)
            if not members:
                del self._topics[topic]

    # --- parts -----------------------------------------------------------------------------------

    def _deliver(self, peer: Peer, event: Event) -> None:
        try:
            peer.deliver(event)
        except PayloadTooLargeError as error:
            logger.warning("%s did not get a %s: %s", peer.name, event["type"], error)

    def _refuse(self, peer: Peer, what: str) -> None:
        self.refused += 1
        logger.warning("refused from %s: %s", peer.name, what)


def _remember(peer: Peer, request_id: str, over: bool) -> None:
    ended = peer.ended
    ended[request_id] = over
    if len(ended) > _REMEMBERED:
        del ended[next(iter(ended))]


def _name(identity: Identity | None) -> str | None:
    return None if identity is None else identity.id


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= protocol.MAX_ID_LENGTH


def _is_free(type_: str) -> bool:
    """Whether peers may use an event type as they like."""
    return not type_.startswith(("call.", "link."))


def _topics(payload: dict[str, Any]) -> list[str]:
    topics = payload.get("topics")
    return [topic for topic in topics if isinstance(topic, str)] if isinstance(topics, list) else []


def _error(request_id: str, error: CallError) -> Event:
    return protocol.error_event(request_id, error.code, error.message, error.details)
