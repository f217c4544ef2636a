"""The peers of a hub, and the requests between the peers."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec

from operad import Identity
from operad_websocket._frames import raw

_REMEMBERED = 1_024
"""The minimum number of ended requests that are remembered, so that late frames for them are not logged."""


class Usage:
    """The number of connections and requests of an account (`Peer.account`)."""

    __slots__ = ("calls", "links")

    def __init__(self) -> None:
        self.links = 0
        """The number of connections."""
        self.calls = 0
        """The number of requests in progress of these connections."""


class Peer:
    """A peer of a hub, which has one connection.

    Args:
        deliver: sends the JSON of an event without waiting. It raises `PayloadTooLargeError` above the limit.
        identity: the authenticated identity; None for an anonymous peer.
        trusted: whether the peer is in the process of the hub, and may set the identity of its calls.
        is_slow: returns True if too many bytes for the peer are unwritten, so that its streams must end.
        address: the network address of the peer. Limits of anonymous peers apply to it.
    """

    __slots__ = (
        "_ended",
        "_ended_before",
        "account",
        "address",
        "calls",
        "debtor",
        "deliver",
        "identity",
        "inbox",
        "is_slow",
        "owed",
        "raw_identity",
        "raw_inbox",
        "said_goodbye",
        "serving",
        "topics",
        "trusted",
        "usage",
    )

    def __init__(
        self,
        deliver: Callable[[bytes], None],
        identity: Identity | None = None,
        *,
        trusted: bool = False,
        is_slow: Callable[[], bool] = lambda: False,
        address: str = "",
    ) -> None:
        self.deliver = deliver
        self.identity = identity
        self.trusted = trusted
        self.is_slow = is_slow
        self.address = address
        self.account = f"address {address}" if identity is None else f"identity {identity.id}"
        """The identity or, if anonymous, the network address: limits of connections and calls apply to it."""
        self.inbox = f"inbox:{secrets.token_hex(12)}"
        self.usage = Usage()
        """The usage of the account."""
        self.debtor = self.inbox if identity is None else self.account
        """The identity or, if anonymous, the connection: the limit of requests at one handler applies to it."""
        self.raw_inbox = raw(self.inbox)
        self.raw_identity: msgspec.Raw | None = None if identity is None else raw(identity.to_wire())
        self.calls: dict[str, Route] = {}
        """The requests in progress that the peer sent, by its own ids."""
        self.serving: dict[str, Route] = {}
        """The requests that the peer handles, by the ids that it received."""
        self.owed: dict[str, int] = {}
        """The number of requests that the peer handles, by ``debtor`` of their callers."""
        self.topics: dict[str, None] = {}
        """The addresses that the peer serves, in the order of registration."""
        self._ended: dict[str, bool] = {}
        self._ended_before: dict[str, bool] = {}
        """The ids of recent requests that the peer sent or handled, and whether it knows that they have ended.
        There are two dictionaries, because dropping the older one is quicker than finding the oldest request."""
        self.said_goodbye = False
        """Whether the peer has closed its connection itself."""

    @property
    def owner(self) -> str | None:
        """The id of the identity of the peer; None if the peer is anonymous."""
        return None if self.identity is None else self.identity.id

    @property
    def name(self) -> str:
        """The name of the peer in logs: its identity and the start of its inbox."""
        return f"{'anonymous' if self.owner is None else self.owner} ({self.inbox[6:14]})"

    def remember(self, request_id: str, over: bool) -> None:
        """Remember a request that has ended. ``over``: whether the peer knows that."""
        ended = self._ended
        ended[request_id] = over
        if len(ended) >= _REMEMBERED:
            self._ended, self._ended_before = {}, ended

    def recall(self, request_id: str) -> bool | None:
        """Return ``over`` of a remembered request, or None if the request is not remembered."""
        over = self._ended.get(request_id)
        return self._ended_before.get(request_id) if over is None else over


class Route:
    """A request in progress, with its caller and its handlers."""

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
        """Whether the request was sent to all handlers, each of which responds once."""
        self.handlers: dict[Peer, str] = {}
        """The handlers, and the request id that each of them received."""

    def forget(self, handler: Peer, over: bool) -> None:
        """Remove a handler. ``over``: whether the handler knows that the request has ended."""
        handler_id = self.handlers.pop(handler)
        if handler.serving.pop(handler_id, None) is not None:
            owed, debtor = handler.owed, self.caller.debtor
            if left := owed[debtor] - 1:
                owed[debtor] = left
            else:
                del owed[debtor]
        handler.remember(handler_id, over)
