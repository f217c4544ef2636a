"""The serving side of the call protocol: the call handler."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, Self

from operad.errors import CallError, ErrorCode
from operad.failures import operation_not_found
from operad.operations import OperationSpec
from operad.transports import Delivery, Event, Link, LinkState, Transport
from operad_calls import protocol
from operad_calls.requests import check_loop, not_begun_error
from operad_calls.serving.answers import Answers, quietly
from operad_calls.serving.following import Following, is_of_peers
from operad_calls.serving.identity import Verifier, identity_rule
from operad_calls.serving.listing import Listing
from operad_calls.serving.served import Served, ServedRequests, key_of
from operad_calls.serving.serving import Serving, start_task
from operad_calls.settings import CallSettings

if TYPE_CHECKING:
    from operad import OperationRegistry

logger = logging.getLogger("operad.calls")


class CallHandler:
    """Serves the operations of a registry to the peers of a transport.

    Use it as an async context manager: while it is open, the operations can be called; leaving it is a drain
    (it takes no more requests, finishes those under way, and ends the rest with ``UNAVAILABLE``).

    Args:
        registry: whose operations; what is registered and unregistered later follows.
        transport: where; always given, never implied. The handler opens a link of its own on it.
        identity: who a caller is. ``"peer"``: whom the transport authenticated (the default where it does).
            ``"delegate"``: whom the request names, which trusts every peer (the default in process only). A
            callable: what it makes of the request, or raises `CallError`, such as `operad.auth.JWTDelegation`. On
            a broker one has to be chosen: until then every caller is anonymous.
        operations: which operations are served; all by default.
        reexport: whether operations of `from_remote` are served on. They carry the handlers on their way, and one
            that came through this handler already is not offered again.
        mask_errors: whether messages of undeclared exceptions stay here. Default: wherever there is a network.
        max_concurrent: how many requests may be under way; more fail with ``OVERLOADED``.
        max_concurrent_per_peer: how many of those one caller may have (its identity, else its link).
        lease: seconds that a stream lives without a sign of life from its consumer.
        drain_timeout: seconds that requests under way get when the handler closes.
        settings: the bounds in one piece; what is given beside them comes first.
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
        self._draining = self._drained = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.instance = secrets.token_hex(8)
        """The id by which this handler is known in discovery."""
        listing = Listing(registry, self._is_served, self.instance)
        self._following = Following(registry, listing, self._is_served, stores=capabilities.stores)
        self._registered = self._following.registered
        self._answers = Answers()
        self._same_process = capabilities.same_process
        self._served = ServedRequests(
            capabilities,
            self._settings,
            refuse=self._refuse,
            ended=self._ended,
            notice=self._notice,
            refusal=self._refusal,
            repeatable=self._is_repeatable,
        )
        mask = not capabilities.same_process if mask_errors is None else mask_errors
        verify = identity_rule(identity, transport)
        self._serving = Serving(registry, listing, verify, self._served, self._answers, mask=mask)

    @property
    def active(self) -> int:
        """How many requests are under way."""
        return len(self._served.active)

    @property
    def serving(self) -> int:
        """How many operations of the registry are served; not those whose address the transport refuses."""
        return self._following.serving

    @property
    def link(self) -> Link | None:
        """The handler's own link, while it is open."""
        return self._link

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect and serve. Raises `TransportError`."""
        if self._link is not None or self._opening:
            raise RuntimeError("the call handler is already open")
        self._draining = self._drained = False
        self._loop = asyncio.get_running_loop()
        self._opening = True
        try:
            self._link = link = await self._transport.open(self._on_event, self._on_link)
        finally:
            self._opening = False
        self._answers.start(link)
        self._served.start()
        try:
            await self._following.start(link)
        except BaseException:
            self._served.stop()
            self._link = self._answers.link = None
            await link.close()
            raise

    async def refresh(self) -> None:
        """Serve what the registry holds now. Happens by itself at once after a change."""
        await self._following.refresh()

    def _is_served(self, spec: OperationSpec) -> bool:
        if self._registry.get_handler(spec.id) is None:
            return False
        if is_of_peers(spec) and not (self._reexport and self.instance not in Listing.way_of(spec)):
            return False
        return self._operations is None or self._operations(spec)

    # --- the end ---------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Drain and disconnect; idempotent."""
        link = self._link
        if link is None or self._draining:
            return
        check_loop(self._loop, "call handler")
        self._draining = True
        self._following.stop()
        self._served.stop()
        loop, timeout = asyncio.get_running_loop(), self._settings.drain_timeout
        limit = loop.time() + timeout
        try:
            await quietly(link.drain(timeout))  # what the transport had for us still comes, and runs
            self._drained = True
            await self._following.forget(link)
            tasks = {served.task for served in self._served.active.values() if served.task is not None}
            if tasks:
                await asyncio.wait(tasks, timeout=max(0.0, limit - loop.time()))
            for served in list(self._served.active.values()):
                await self._shut_down(served)
            if self._tasks:  # a handler that ignores its cancellation does not hold up the shutdown
                await asyncio.wait(self._tasks, timeout=timeout)
            await quietly(link.drain(1.0))
        finally:
            self._link = self._answers.link = None
            await link.close()

    async def _shut_down(self, served: Served) -> None:
        """End what the drain could not finish."""
        if served.done is not None and self._is_repeatable(served.operation_id):
            served.done = None  # the transport keeps it until it is done: closing the link gives it to another one
            self._cancel(served)
            return
        self._cancel(served)
        error = CallError(ErrorCode.UNAVAILABLE, f'"{served.operation_id}": the handler was shut down')
        await self._answers.error(served.reply_to, served.request_id, error)

    # --- what comes in ---------------------------------------------------------------------------

    def _on_event(self, event: Event, delivery: Delivery) -> None:
        type_, payload = event["type"], event["payload"]
        if type_ == protocol.REQUESTED:
            served = self._served.take(payload, delivery)
            if served is not None:
                serving = self._serving.serve(served, payload, delivery)
                if self._same_process:  # a caller never runs its handler inside its own send
                    served.task = self._loop.create_task(serving, name=served.operation_id)
                else:
                    served.task = start_task(serving, served.operation_id)
        elif type_ == protocol.CREDIT:
            self._on_credit(payload, delivery)
        elif type_ == protocol.ABORTED:
            self._served.on_abort(payload, delivery)
        elif type_ == protocol.LOST:
            self._served.on_lost(payload.get("peer"))
        elif type_ == protocol.REGISTERED:
            self._following.on_registered(payload)

    def _refusal(self, served: Served) -> CallError | None:
        """Why a request is not even begun."""
        if self._drained:
            return not_begun_error(served.operation_id, "the handler is shutting down")
        if served.operation_id not in self._registered and served.operation_id not in self._following:
            return operation_not_found(served.operation_id)
        return None

    def _is_repeatable(self, operation_id: str) -> bool:
        spec = self._registry.get_spec(operation_id)
        return spec is not None and spec.is_repeatable

    def _on_credit(self, payload: dict[str, Any], delivery: Delivery) -> None:
        served = self._served.on_credit(payload, delivery)
        if served is not None:
            if self._served.expects_notice(served):
                self._notice(served)
            return
        if not self._served.announces:
            return
        key = key_of(payload, delivery)
        if key[0] and key[1] and key not in self._served.recent:
            # A consumer that renews what is not here would wait for ever.
            error = CallError(ErrorCode.UNAVAILABLE, "no such stream: its handler was restarted")
            self._spawn(self._answers.error(key[0], key[1], error))

    def _on_link(self, state: LinkState, epoch: int) -> None:
        if self._link is not None and not self._draining:
            served = f"{self.serving} operations are served"
            if state == "up":
                logger.warning("the connection is back: %s again", served)
            else:
                logger.warning("the connection was lost: %s again when it is back", served)
        if state == "down":
            self._served.on_down()
        elif self._link is not None:
            self._following.back()

    # --- what becomes of requests ------------------------------------------------------------------

    def _refuse(self, served: Served, error: CallError) -> None:
        self._spawn(self._answers.error(served.reply_to, served.request_id, error))
        if served.done is not None:
            served.done()

    def _notice(self, served: Served) -> None:
        self._spawn(self._answers.notice(served))

    def _ended(self, served: Served, error: CallError | None) -> None:
        """Its caller has left, or is gone."""
        self._cancel(served)
        if error is not None:
            self._spawn(self._answers.error(served.reply_to, served.request_id, error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._hold(asyncio.get_running_loop().create_task(work))

    def _hold(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel(self, served: Served) -> None:
        self._served.finish(served)
        if served.task is not None:  # not in the table any more, but closing waits for its end
            served.task.cancel()
            self._hold(served.task)
