"""The notifications of a server that a listing or a resource changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from operad import CallError, ErrorCode
from operad_mcp.errors import Fault, ServerError
from operad_mcp.wire.messages import Json
from operad_mcp.wire.protocol import ServerLogger
from operad_mcp.wire.session import Session

_EVENTS_KEPT = 1024


class Watchers:
    """Distributes a server's notifications, with a queue for each task that waits for updates of a resource.

    The stateless protocol does not use the queues, see `updates`.

    Args:
        on_change: called with ``tools``, ``resources`` or ``prompts`` when the server reports that they changed.
    """

    def __init__(self, on_change: Callable[[str], None] | None) -> None:
        self.on_change = on_change
        self._queues: dict[str, set[asyncio.Queue[Json | None]]] = {}

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass on a notification that a listing or a resource changed. Ignore any other notification."""
        if method.endswith("/list_changed"):
            if self.on_change is not None:
                self.on_change(method.split("/")[1])
        elif method == "notifications/resources/updated":
            for queue in self._queues.get(str(params.get("uri")), ()):
                # An update reports only that something changed, so further ones are dropped.
                if queue.qsize() < _EVENTS_KEPT:
                    queue.put_nowait(dict(params))

    def lost(self) -> None:
        """Put ``None`` into all queues, because the connection ended."""
        for queues in self._queues.values():
            for queue in queues:
                queue.put_nowait(None)

    def add(self, uri: str) -> tuple[asyncio.Queue[Json | None], bool]:
        """Return a new queue for the updates of a resource, and whether it is the resource's only queue.

        The queue receives ``None`` when the connection ends.
        """
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        queues = self._queues.setdefault(uri, set())
        queues.add(queue)
        return queue, len(queues) == 1

    def remove(self, uri: str, queue: asyncio.Queue[Json | None]) -> bool:
        """Remove a queue of a resource; return True if it was the resource's only queue."""
        queues = self._queues[uri]
        queues.discard(queue)
        if not queues:
            del self._queues[uri]
        return not queues


async def listen(session: Session, logger: ServerLogger) -> None:
    """Listen for changed listings until the session ends; `Watchers.notified` receives the notifications.

    Return immediately if the session uses the handshake, or the server does not report changes.
    """
    wanted = {
        f"{kind}ListChanged": True
        for kind in ("tools", "resources", "prompts")
        if session.capabilities.get(kind, {}).get("listChanged")
    }
    if not session.modern or not wanted:
        return
    pause = 0.1
    heard = False

    def acknowledged(_method: str, _params: Json) -> None:
        nonlocal heard
        heard = True

    while not session.closed.is_set():
        try:  # each notification comes to `Watchers.notified` as well
            await session.request("subscriptions/listen", {"notifications": wanted}, listener=acknowledged)
        except (ServerError, Fault) as error:
            logger.debug("listening for changes ended: %s", error)
        pause, heard = (0.1 if heard else pause), False
        await asyncio.sleep(pause)
        pause = min(pause * 2, 30.0)


async def updates(session: Session, what: str, uri: str, lost: CallError) -> AsyncIterator[Json]:
    """Yield the updates of a resource, ``{uri}``, in the stateless protocol until the iterator is closed.

    Raises:
        CallError: ``lost`` if the connection ends; ``EXECUTION_ERROR`` if the server offers no updates.
        ServerError, Fault: the request for updates failed.
    """
    queue: asyncio.Queue[tuple[str, Json] | None] = asyncio.Queue()

    def heard(method: str, params: Json) -> None:
        if queue.qsize() < _EVENTS_KEPT:
            queue.put_nowait((method, params))

    wanted = {"notifications": {"resourceSubscriptions": [uri]}}
    asking = asyncio.ensure_future(session.request("subscriptions/listen", wanted, listener=heard))
    asking.add_done_callback(lambda _: queue.put_nowait(None))
    offered = False
    try:
        while (event := await queue.get()) is not None:
            method, params = event
            if method == "notifications/subscriptions/acknowledged" and not offered:
                honored = params.get("notifications")
                offered = isinstance(honored, dict) and bool(honored.get("resourceSubscriptions"))
                if not offered:
                    break
            elif method == "notifications/resources/updated" and offered:
                yield {"uri": str(params.get("uri", uri))}
        if asking.done() and (error := asking.exception()) is not None:
            if offered:
                raise lost from error
            raise error
        if not offered:
            message = f"{what} does not offer subscriptions to {uri}"
            raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
