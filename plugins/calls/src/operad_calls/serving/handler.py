"""The call handler: the serving side of the call protocol."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Self

from operad.errors import CallError, ErrorCode
from operad.operations import OperationSpec
from operad.transports import Delivery, Event, Link, LinkState, Transport
from operad_calls import protocol
from operad_calls.requests import check_loop
from operad_calls.serving.active import key_of
from operad_calls.serving.answers import quietly
from operad_calls.serving.following import Following
from operad_calls.serving.identity import Verifier, identity_rule
from operad_calls.serving.listing import REMOTE, Listing
from operad_calls.serving.serving import Serving
from operad_calls.settings import CallSettings

if TYPE_CHECKING:
    from operad import OperationRegistry

logger = logging.getLogger("operad.calls")


class CallHandler:
    """A server for the operations of a registry, which peers call over a transport.

    Use it as an async context manager: while it is open, peers can call the operations. When it closes, it drains:
    it accepts no more requests, waits for those in progress, and ends the rest with ``UNAVAILABLE``.

    Args:
        registry: the registry with the operations. Its changes are followed; see `refresh`.
        transport: the transport to serve on. The handler opens its own link on it.
        identity: how the caller is determined. ``"peer"``: the identity that the transport has authenticated (the
            default if the transport authenticates peers). ``"delegate"``: the identity that the request names,
            which trusts every peer (the default within one process). A callable: returns the identity or raises
            `CallError`, such as `operad.auth.JWTDelegation`. Any other transport has anonymous callers by default.
        operations: returns True for an operation that is served; default: for all.
        reexport: whether operations of `from_remote` are served, too, except those that this handler forwards.
        mask_errors: whether messages of undeclared exceptions are replaced; default: yes, except in one process.
        max_concurrent: the maximum number of requests in progress; further requests fail with ``OVERLOADED``.
        max_concurrent_per_peer: the maximum number of requests in progress of one caller (an identity, or else a
            link).
        lease: seconds after which a stream ends without a sign of life from its consumer.
        drain_timeout: seconds for which a closing handler waits for requests in progress.
        settings: all bounds in one object; the arguments above take precedence. Default: ``CallSettings()``.

    Raises:
        ValueError: ``identity`` or a bound is not valid.
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
        max_concurrent: int | None = None,
        max_concurrent_per_peer: int | None = None,
        lease: float | None = None,
        drain_timeout: float | None = None,
        settings: CallSettings | None = None,
    ) -> None:
        capabilities = transport.capabilities
        self._settings = (settings or CallSettings()).updated(
            max_concurrent=max_concurrent,
            max_concurrent_per_peer=max_concurrent_per_peer,
            lease=lease,
            drain_timeout=drain_timeout,
        )
        self._registry = registry
        self._transport = transport
        self._operations = operations
        self._reexport = reexport
        self._link: Link | None = None
        self._opening = False
        self._loop: asyncio.AbstractEventLoop
        self._draining = False
        self.instance = secrets.token_hex(8)
        """The id of this handler in discovery."""
        listing = Listing(registry, self._is_served, self.instance)
        self._following = Following(registry, listing, self._is_served, stores=capabilities.stores)
        mask = not capabilities.same_process if mask_errors is None else mask_errors
        verify = identity_rule(identity, transport)
        self._serving = Serving(
            registry, listing, verify, self._following, capabilities, self._settings, mask=mask
        )

    @property
    def active(self) -> int:
        """The number of requests in progress."""
        return len(self._serving.active)

    @property
    def serving(self) -> int:
        """The number of operations of the registry that are served, without those that the transport refuses."""
        return self._following.serving

    @property
    def link(self) -> Link | None:
        """The link of this handler; ``None`` unless the handler is open."""
        return self._link

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect to the transport, and serve the operations.

        Raises:
            TransportError: the transport cannot be reached, or refuses an address.
            RuntimeError: the handler is already open.
        """
        if self._link is not None or self._opening:
            raise RuntimeError("the call handler is already open: close it first, or make another one")
        self._draining = self._serving.is_drained = False
        self._loop = asyncio.get_running_loop()
        self._opening = True
        try:
            self._link = link = await self._transport.open(self._on_event, self._on_link)
        finally:
            self._opening = False
        self._serving.start(link)
        try:
            await self._following.start(link)
        except BaseException:
            self._serving.stop()
            self._link = self._serving.answers.link = None
            await link.close()
            raise

    async def refresh(self) -> None:
        """Serve the current operations of the registry. This also happens soon after each change.

        Until then a call of a new operation fails with ``OPERATION_NOT_FOUND``. Await this method to avoid that.

        Raises:
            TransportError: an address cannot be registered.
        """
        await self._following.refresh()

    def _is_served(self, spec: OperationSpec) -> bool:
        if self._registry.get_handler(spec.id) is None:
            return False
        if REMOTE in spec.metadata and not (self._reexport and self.instance not in Listing.way_of(spec)):
            return False
        return self._operations is None or self._operations(spec)

    # --- closing -----------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Drain and disconnect, in the event loop of `open`; idempotent.

        First the transport stops taking requests. Requests that have arrived still run, until the drain timeout.
        The rest are cancelled, and their callers get ``UNAVAILABLE``, unless the operation is repeatable and a
        broker can give the request to another handler.
        """
        link, serving = self._link, self._serving
        if link is None or self._draining:
            return
        check_loop(self._loop, "call handler")
        self._draining = True
        self._following.stop()
        serving.stop()
        loop, timeout = asyncio.get_running_loop(), self._settings.drain_timeout
        limit = loop.time() + timeout
        try:
            await quietly(link.drain(timeout))
            serving.is_drained = True
            await self._following.forget(link)
            tasks = {request.task for request in serving.active.values() if request.task is not None}
            if tasks:
                await asyncio.wait(tasks, timeout=max(0.0, limit - loop.time()))
            for request in list(serving.active.values()):
                await serving.shut_down(request)
            await serving.settle(timeout)  # a handler that ignores its cancellation does not block the shutdown
            await quietly(link.drain(1.0))
        finally:
            self._link = serving.answers.link = None
            await link.close()

    # --- what arrives ------------------------------------------------------------------------------

    def _on_event(self, event: Event, delivery: Delivery) -> None:
        type_, payload = event["type"], event["payload"]
        if self._serving.on_event(type_, payload, delivery):
            return
        if type_ == protocol.CREDIT:
            self._on_unknown_credit(payload, delivery)
        elif type_ == protocol.REGISTERED:
            self._following.on_registered(payload)

    def _on_unknown_credit(self, payload: dict[str, Any], delivery: Delivery) -> None:
        """Send an error for a stream that this handler does not have, unless the transport detects lost peers."""
        serving = self._serving
        if not serving.announces:
            return
        key = key_of(payload, delivery)
        if key[0] and key[1] and key not in serving.recent:
            why = "the handler does not have this stream; it may have been restarted"
            serving.spawn(serving.answers.error(*key, CallError(ErrorCode.UNAVAILABLE, why)))

    def _on_link(self, state: LinkState, epoch: int) -> None:
        if self._link is not None and not self._draining:
            text = "the connection is back; operations served: %d"
            if state == "down":
                text = "the connection was lost; operations to serve when it is back: %d"
            logger.warning(text, self.serving)
        if state == "down":
            self._serving.on_down()
        elif self._link is not None:
            self._following.back()
