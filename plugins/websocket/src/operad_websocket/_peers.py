"""Who is connected to a hub, and what is under way between them."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec

from operad import Identity
from operad_websocket._frames import raw

_REMEMBERED = 1_024
"""How many ended requests of a peer are remembered at least, so that what was on its way is no alarm."""


class Usage:
    """What all connections of one account have together."""

    __slots__ = ("calls", "links")

    def __init__(self) -> None:
        self.links = 0
        """How many there are."""
        self.calls = 0
        """How many requests of theirs are under way."""


class Peer:
    """One connection, as the switch sees it.

    Args:
        deliver: takes the JSON of an event, at once and without waiting; raises `PayloadTooLargeError`.
        identity: whom the hub authenticated.
        trusted: whether it is part of the hub's own process, which may name the identity of a call.
        is_slow: whether much waits for it.
        address: where it is, for counting those that nobody authenticated.
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
        """On whose account its connections and calls go: its identity's, or its address's if it has none."""
        self.inbox = f"inbox:{secrets.token_hex(12)}"
        self.usage = Usage()
        """Of its account, while it is connected."""
        self.debtor = self.inbox if identity is None else self.account
        """Whose its requests are at one handler: without an identity each connection counts for itself."""
        self.raw_inbox = raw(self.inbox)
        self.raw_identity: msgspec.Raw | None = None if identity is None else raw(identity.to_wire())
        self.calls: dict[str, Route] = {}
        """Requests that it made, by the id that it chose."""
        self.serving: dict[str, Route] = {}
        """Requests that it has, by the id under which it knows them."""
        self.owed: dict[str, int] = {}
        """How many of those each debtor has made."""
        self.topics: dict[str, None] = {}
        """What it serves, in the order of registration."""
        self._ended: dict[str, bool] = {}
        self._ended_before: dict[str, bool] = {}
        """Ids of requests that it made or had lately, in two heaps, for to forget the older one is quicker than to
        look for the oldest request each time. True: it knows that they are over."""
        self.said_goodbye = False
        """Whether it ended its connection itself."""

    @property
    def owner(self) -> str | None:
        """Whose it is: the id of its identity."""
        return None if self.identity is None else self.identity.id

    @property
    def name(self) -> str:
        """For logs."""
        return f"{'anonymous' if self.owner is None else self.owner} ({self.inbox[6:14]})"

    def remember(self, request_id: str, over: bool) -> None:
        """Remember a request that has ended; true: it knows that it is over."""
        ended = self._ended
        ended[request_id] = over
        if len(ended) >= _REMEMBERED:
            self._ended, self._ended_before = {}, ended

    def recall(self, request_id: str) -> bool | None:
        """What was remembered of a request; ``None``: nothing."""
        over = self._ended.get(request_id)
        return self._ended_before.get(request_id) if over is None else over


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

    def forget(self, handler: Peer, over: bool) -> None:
        """A handler has it no longer."""
        handler_id = self.handlers.pop(handler)
        if handler.serving.pop(handler_id, None) is not None:
            owed, debtor = handler.owed, self.caller.debtor
            if left := owed[debtor] - 1:
                owed[debtor] = left
            else:
                del owed[debtor]
        handler.remember(handler_id, over)
