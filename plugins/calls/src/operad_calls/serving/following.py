"""The addresses of a call handler, which follow changes of its registry."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from operad.operations import OperationSpec, OperationType
from operad.transports import Link, Registration, TransportError
from operad_calls.protocol import CHANGED
from operad_calls.serving.answers import quietly
from operad_calls.serving.listing import Listing

if TYPE_CHECKING:
    from operad import OperationRegistry

logger = logging.getLogger("operad.calls")

GROUP = "operad"
"""The group whose handlers share requests."""
RETRY = 5.0
"""Seconds after which a failed registration is tried again."""
_AT_ONCE = 500


class Following:
    """The registered addresses of the operations that a handler serves.

    Args:
        registry: the registry with the operations.
        listing: the built-in operations of the handler.
        is_served: returns True for an operation that is served.
        stores: whether the transport stores requests. Idempotent mutations then get a second address.
    """

    def __init__(
        self,
        registry: OperationRegistry,
        listing: Listing,
        is_served: Callable[[OperationSpec], bool],
        *,
        stores: bool,
    ) -> None:
        self._registry = registry
        self._listing = listing
        self._is_served = is_served
        self._stores = stores
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop
        self.registered: dict[str, list[Registration]] = {}
        """The registrations of each operation, by its id."""
        self._registering: set[str] = set()
        self._refused: set[str] = set()
        """The operations whose address the transport has refused after a reconnection."""
        self._announced: bool
        self._is_back = False
        """Whether the connection was lost since the peers were last notified of a change."""
        self._stale = False
        """Whether the registry has changed since it was last read."""
        self._refreshing = asyncio.Lock()
        self._unfollow: Callable[[], None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._again: asyncio.TimerHandle | None = None

    def __contains__(self, operation_id: object) -> bool:
        return (
            operation_id in self.registered
            or operation_id in self._registering
            or operation_id in self._listing.shared
        )

    @property
    def serving(self) -> int:
        """The number of operations of the registry that are served."""
        return len(self.registered.keys() - self._listing.own.keys() - self._refused)

    async def start(self, link: Link) -> None:
        """Register all addresses, and follow the registry from now on. Raises `TransportError` if that fails."""
        self._loop = asyncio.get_running_loop()
        self._link, self._announced = link, False
        self._refreshing = asyncio.Lock()  # one belongs to a loop
        self._unfollow = self._registry.on_change(self.changed)
        try:
            await self.refresh()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop following changes of the registry, and cancel running updates."""
        self._link = None
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None
        if self._again is not None:
            self._again.cancel()
            self._again = None
        for task in self._tasks:
            task.cancel()

    async def forget(self, link: Link) -> None:
        """Mark all operations as not registered, wait for cancelled updates, and notify the peers."""
        self.registered.clear()
        self._refused.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._tell_change(link)

    async def refresh(self) -> None:
        """Register and unregister addresses to match the registry. Raises `TransportError` if that fails."""
        async with self._refreshing:
            link = self._link
            if link is None:
                return
            self._stale = False
            served = {spec.id for spec in self._registry.specs() if self._is_served(spec)}
            wanted = served | self._listing.own.keys()
            gone = {  # or its spec has changed, and with it its addresses
                operation_id
                for operation_id, made in self.registered.items()
                if operation_id not in wanted or len(made) != len(self._addresses(operation_id))
            }
            for operation_id in gone:
                self._refused.discard(operation_id)
                for registration in self.registered.pop(operation_id):
                    await registration.unregister()
            missing = sorted(wanted - self.registered.keys())
            for start in range(0, len(missing), _AT_ONCE):
                await self._register(link, missing[start : start + _AT_ONCE])
            if not self._announced:
                await self._listing.announce(link)
                self._announced = True
            if gone or missing or self._is_back:
                self._is_back = False
                await self._tell_change(link)

    async def _tell_change(self, link: Link) -> None:
        """Tell the peers that the operations of this handler have changed."""
        payload = {"instance": self._listing.instance}
        await quietly(link.send(f"all:{CHANGED}", {"type": CHANGED, "id": "", "payload": payload}))

    # --- following -------------------------------------------------------------------------------

    def changed(self) -> None:
        """Update the addresses in the next turn of the event loop, once for several changes. Thread-safe."""
        if not self._stale:
            self._stale = True
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the handler
                self._loop.call_soon_threadsafe(self._follow_soon)

    def back(self) -> None:
        """Handle a reconnection: retry failed registrations, and notify the peers."""
        self._is_back = True
        self.changed()

    def _follow_soon(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._stale and self._link is not None:
            task = self._loop.create_task(self._follow())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _follow(self) -> None:
        try:
            await self.refresh()
        except Exception as error:  # no caller waits for this task, and it is tried again
            trace = None if isinstance(error, TransportError) else error
            text = "operations could not be registered; the next attempt is in %g s: %s"
            logger.warning(text, RETRY, error, exc_info=trace)
            if self._link is not None and self._again is None:
                self._again = self._loop.call_later(RETRY, self.changed)

    def on_registered(self, payload: dict[str, Any]) -> None:
        """Handle the reply to the registrations after a reconnection. Refused addresses are not served."""
        refused = payload.get("refused")
        topics = [item.get("topic") for item in refused if isinstance(item, dict)] if refused else []
        self._refused = {
            topic.removeprefix("op:") for topic in topics if isinstance(topic, str)
        } & self.registered.keys()

    # --- registering -----------------------------------------------------------------------------

    async def _register(self, link: Link, operation_ids: list[str]) -> None:
        self._registering.update(operation_ids)  # requests may arrive before the transport replies
        try:
            made = await asyncio.gather(
                *(self._register_one(link, operation_id) for operation_id in operation_ids), return_exceptions=True
            )
            for error in made:  # those that succeeded need no second attempt
                if error is not None:
                    raise error
        finally:
            self._registering.difference_update(operation_ids)

    async def _register_one(self, link: Link, operation_id: str) -> None:
        made: list[Registration] = []
        try:
            for address in self._addresses(operation_id):
                made.append(await link.register(address, GROUP))  # noqa: PERF401  # registrations before a failure are undone
        except BaseException:
            for registration in made:
                await registration.unregister()
            raise
        self.registered[operation_id] = made

    def _addresses(self, operation_id: str) -> tuple[str, ...]:
        """Return the addresses of an operation."""
        if self._stores:
            spec = self._registry.get_spec(operation_id)
            # A query is not worth storing: its caller repeats it.
            if spec is not None and spec.type is OperationType.MUTATION and spec.is_repeatable:
                return f"op:{operation_id}", f"queue:{operation_id}"
        return (f"op:{operation_id}",)
