"""The call map and the call server: the interfaces for calling and serving operations across processes.

Plugins implement them through the hooks `operad_call_map` and `operad_call_server`; operad-calls is such a plugin.
`Plugins.call_map` and `Plugins.call_server` return the implementation for a transport.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from operad.access import Identity
from operad.envelopes import ResponseEnvelope

if TYPE_CHECKING:  # it imports asyncio, which finding plugins does not need
    from operad.subscriptions import Subscription


@runtime_checkable
class CallMap(Protocol):
    """The calling side: calls operations that other processes serve over a transport.

    Every call ends exactly once, with an envelope or a `CallError`, at its deadline at the latest. A call map is
    an async context manager: entering opens and returns it, leaving closes it.
    """

    async def open(self) -> None:
        """Connect the transport. Raises `TransportError` if that fails."""

    async def aclose(self) -> None:
        """End every call in progress with ``ABORTED`` and disconnect; idempotent."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    def call(
        self,
        operation_id: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        identity: Identity | None = None,
        parent_request_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Awaitable[ResponseEnvelope[Any]]:
        """Call an operation and return its envelope; for a subscription, the first one.

        Args:
            operation_id: ``namespace.name``.
            input: the input of the operation; ``None`` means ``{}``.
            timeout: seconds; the map's default if neither this nor a deadline is given.
            deadline: when the call must have ended, in epoch ms.
            identity: the caller. The serving side decides whether to trust this.
            parent_request_id: the id of the call that makes this one; ``None`` if it is not a nested call.
            idempotency_key: a key that a call and its repetitions have in common.

        Raises:
            CallError: the call failed.
        """

    def subscribe(
        self,
        operation_id: str,
        input: Any = None,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        identity: Identity | None = None,
        parent_request_id: str | None = None,
    ) -> Subscription:
        """Subscribe to an operation; a query or mutation yields one envelope.

        The arguments are those of `call` without ``idempotency_key``. ``timeout`` limits the wait for each item,
        and has no default. Iterating the subscription raises `CallError` if the call fails.
        """


@runtime_checkable
class CallServer(Protocol):
    """The serving side: an async context manager that serves the operations of a registry while it is open.

    Entering connects and returns the server, or raises `TransportError`; `operad serve` retries a `LinkDownError`.
    Leaving drains the server: it takes no more requests, waits for calls in progress, and ends slow ones.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...


Options = Mapping[str, Any]
"""Keyword arguments for an implementation, such as ``timeout`` of a call map or ``identity`` of a call server."""
