"""The peers of a hub, and the requests between them."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec

from operad import Identity
from operad_websocket._frames import raw

_REMEMBERED = 1_024
"""The number of ended requests that are remembered at least, so that late frames for them raise no alarm."""


class Usage:
    """What all connections of an account use together."""

    __slots__ = ("calls", "links")

    def __init__(self) -> None:
        self.links = 0
        """The number of connections."""
        self.calls = 0
        """The number of their requests in progress."""


class Peer:
    """One connection, as the switch sees it.

    Args:
        deliver: takes the JSON of an event, at once and without waiting; raises `PayloadTooLargeError`.
        identity: the authenticated identity; None: anonymous.
        trusted: whether it is part of the hub's own process, which may set the identity of a call.
        is_slow: return True if much is unwritten.
        address: its network address, for counting anonymous connections.
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
        """Who is charged for its connections and calls: its identity, or its address if it has none."""
        self.inbox = f"inbox:{secrets.token_hex(12)}"
        self.usage = Usage()
        """What its account uses, while it is connected."""
        self.debtor = self.inbox if identity is None else self.account
        """Who is charged for its requests at a handler: without an identity, each connection by itself."""
        self.raw_inbox = raw(self.inbox)
        self.raw_identity: msgspec.Raw | None = None if identity is None else raw(identity.to_wire())
        self.calls: dict[str, Route] = {}
        """Requests that it sent, by its own id."""
        self.serving: dict[str, Route] = {}
        """Requests that it handles, by the id that it was sent."""
        self.owed: dict[str, int] = {}
        """The number of those by debtor."""
        self.topics: dict[str, None] = {}
        """The addresses that it serves, in the order of registration."""
        self._ended: dict[str, bool] = {}
        self._ended_before: dict[str, bool] = {}
        """Ids of recent requests that it sent or handled. Two dictionaries, because dropping the older one is
        quicker than finding the oldest request each time. True: it knows that the request has ended."""
        self.said_goodbye = False
        """Whether it ended its connection itself."""

    @property
    def owner(self) -> str | None:
        """The id of the peer's identity; None if it is anonymous."""
        return None if self.identity is None else self.identity.id

    @property
    def name(self) -> str:
        """The peer's name for logs."""
        return f"{'anonymous' if self.owner is None else self.owner} ({self.inbox[6:14]})"

    def remember(self, request_id: str, over: bool) -> None:
        """Remember a request that has ended; ``over``: whether the peer knows that."""
        ended = self._ended
        ended[request_id] = over
        if len(ended) >= _REMEMBERED:
            self._ended, self._ended_before = {}, ended

    def recall(self, request_id: str) -> bool | None:
        """Return what was remembered of a request, or None."""
        over = self._ended.get(request_id)
        return self._ended_before.get(request_id) if over is None else over


class Route:
    """A request in progress."""

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
        """Whether it was sent to all handlers; then each of them responds once."""
        self.handlers: dict[Peer, str] = {}
        """Its handlers, with the id that each of them was sent."""

    def forget(self, handler: Peer, over: bool) -> None:
        """Remove a handler."""
        handler_id = self.handlers.pop(handler)
        if handler.serving.pop(handler_id, None) is not None:
            owed, debtor = handler.owed, self.caller.debtor
            if left := owed[debtor] - 1:
                owed[debtor] = left
            else:
                del owed[debtor]
        handler.remember(handler_id, over)
