"""Events that are kept so that a client can take up a stream of the handshake generation that broke off."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any
from uuid import uuid4

from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager


class ResumableManager(StreamableHTTPSessionManager):
    """A session manager whose sessions each have a store of their own.

    One store for all would mix their streams: the SDK names a stream by the id of its request, which each client
    counts from 1, and tells the store no session.
    """

    @property
    def event_store(self) -> EventStore:
        """A new store: it is asked for once per session."""
        return SessionEvents()

    @event_store.setter
    def event_store(self, value: Any) -> None:
        """The base class sets what it was given: nothing."""


class SessionEvents(EventStore):
    """The last events of a session."""

    max_events = 256

    def __init__(self) -> None:
        self._events: OrderedDict[str, tuple[str, Any]] = OrderedDict()

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Keep an event. Its id says nothing of others."""
        event_id = uuid4().hex
        self._events[event_id] = stream_id, message
        if len(self._events) > self.max_events:
            self._events.popitem(last=False)
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        """Send what came after an event on its stream; ``None`` if it is not known (any more)."""
        if last_event_id not in self._events:
            return None
        wanted, seen = self._events[last_event_id][0], False
        for event_id, (stream_id, message) in list(self._events.items()):
            if seen and stream_id == wanted and message is not None:
                await send_callback(EventMessage(message, event_id))
            seen = seen or event_id == last_event_id
        return wanted
