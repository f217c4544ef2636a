"""What a server says by itself: that a listing changed, that a resource did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from operad import CallError, ErrorCode
from operad_mcp.wire.live import Live, ServerLogger

Json = dict[str, Any]
_EVENTS_KEPT = 1024


class Watchers:
    """Who waits for the updates of which resource (handshake protocols), and who for changed listings.

    Args:
        on_change: called with ``tools``, ``resources`` or ``prompts`` when the server says that they changed.
    """

    def __init__(self, on_change: Callable[[str], None] | None) -> None:
        self.on_change = on_change
        self._queues: dict[str, set[asyncio.Queue[Json | None]]] = {}

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification of the server on."""
        if method.endswith("/list_changed"):
            if self.on_change is not None:
                self.on_change(method.split("/")[1])
        elif method == "notifications/resources/updated":
            for queue in self._queues.get(str(params.get("uri")), ()):
                # An update says only that something changed: nobody needs more of them than this.
                if queue.qsize() < _EVENTS_KEPT:
                    queue.put_nowait(dict(params))

    def lost(self) -> None:
        """Tell all who wait that the connection ended."""
        for queues in self._queues.values():
            for queue in queues:
                queue.put_nowait(None)

    def add(self, uri: str) -> tuple[asyncio.Queue[Json | None], bool]:
        """A queue of updates, ``None`` at the end of the connection; and whether it is the resource's first."""
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        queues = self._queues.setdefault(uri, set())
        queues.add(queue)
        return queue, len(queues) == 1

    def remove(self, uri: str, queue: asyncio.Queue[Json | None]) -> bool:
        """Forget a queue; whether it was the resource's last."""
        queues = self._queues[uri]
        queues.discard(queue)
        if not queues:
            del self._queues[uri]
        return not queues


async def listen(live: Live, logger: ServerLogger) -> None:
    """Listen for changed listings: in the stateless protocol they come only to who listens."""
    wanted = {
        f"{kind}_list_changed": True
        for kind in ("tools", "resources", "prompts")
        if live.capabilities.get(kind, {}).get("listChanged")
    }
    if not live.modern or not wanted:
        return
    import mcp.client.subscriptions as subscriptions
    from mcp.shared.exceptions import MCPError

    pause = 0.1
    while not live.closed.is_set():
        try:
            async with subscriptions.listen(live.session, **wanted) as events:  # type: ignore[arg-type]  # bools by name
                pause = 0.1
                async for _ in events:
                    pass  # each comes to `Watchers.notified` as well
        except (MCPError, subscriptions.SubscriptionLost, OSError) as error:
            logger.debug("listening for changes ended: %s", error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, 30.0)


async def updates(live: Live, what: str, uri: str, lost: CallError) -> AsyncIterator[Json]:
    """The updates of a resource in the stateless protocol, until the iterator is closed.

    Raises:
        CallError: ``lost`` if the connection ends; ``EXECUTION_ERROR`` where the server offers no updates.
        Exception: what the SDK raises for a refusal.
    """
    import mcp.client.subscriptions as subscriptions

    try:
        async with subscriptions.listen(live.session, resource_subscriptions=[uri]) as events:
            if not events.honored.resource_subscriptions:
                message = f"{what} does not offer subscriptions to {uri}"
                raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
            async for event in events:
                yield {"uri": str(getattr(event, "uri", uri))}
    except subscriptions.SubscriptionLost as error:
        raise lost from error
