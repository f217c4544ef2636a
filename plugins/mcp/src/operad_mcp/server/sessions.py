"""The sessions of the handshake revisions (2024-11-05 to 2025-11-25): their limit, and resumable streams."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from uuid import uuid4

import attrs
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from operad_mcp.server.door import CALLER

logger = logging.getLogger("operad.mcp")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_SESSION = MCP_SESSION_ID_HEADER.encode()
_VERSION = b"mcp-protocol-version"
_HANDSHAKE = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)


@attrs.define
class _Session:
    user: Any
    caller: str | None
    busy: int = 0
    """The number of requests in flight, including the open stream of the server's own messages."""


def _caller(scope: Scope) -> str | None:
    identity = scope.get(CALLER)
    return None if identity is None else identity.id


class Sessions:
    """A running session manager of the SDK that ends idle sessions for new ones.

    The SDK's manager rejects new clients when it is full. Here the session that was idle longest ends instead. A
    new client is rejected (503) only if all sessions are in use. A client whose session was ended receives 404 for
    its next request, and opens a new session (2025-11-25, transports, session management). ``most`` is the maximum
    number of sessions.
    """

    def __init__(self, manager: StreamableHTTPSessionManager, most: int) -> None:
        self._manager = manager
        self._most = most
        self._open: dict[bytes, _Session] = {}
        self._idle: OrderedDict[bytes, _Session] = OrderedDict()
        """The open sessions that are not in use. The session that was idle longest comes first."""
        self._opening = 0

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an HTTP request of any revision of the protocol."""
        headers = dict(scope["headers"])
        session_id = headers.get(_SESSION)
        version = headers.get(_VERSION)
        if version is not None and version not in _HANDSHAKE:
            await self._manager.handle_request(scope, receive, send)
        elif session_id is None:
            await self._begin(scope, receive, send)
        elif (session := self._open.get(session_id)) is None or session.caller != _caller(scope):
            await self._manager.handle_request(scope, receive, send)
        else:
            await self._use(session_id, session, scope, receive, send)

    async def _begin(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request without a session. It can succeed only if it opens a session."""
        await self._make_room()
        self._opening += 1
        try:
            status, session_id = await self._watched(scope, receive, send)
        finally:
            self._opening -= 1
        if session_id is not None and status < 400:
            self._open[session_id] = self._idle[session_id] = _Session(scope.get("user"), _caller(scope))

    async def _use(self, session_id: bytes, session: _Session, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0
        session.busy += 1
        self._idle.pop(session_id, None)
        try:
            status, _ = await self._watched(scope, receive, send)
        finally:
            session.busy -= 1
            if status == 404 or (status == 200 and scope["method"] == "DELETE"):
                self._open.pop(session_id, None)
            elif not session.busy and session_id in self._open:
                self._idle[session_id] = session

    async def _watched(self, scope: Scope, receive: Receive, send: Send) -> tuple[int, bytes | None]:
        """Serve a request. Return the HTTP status of the response, and its session id or None."""
        seen: tuple[int, bytes | None] = (0, None)

        async def watch(message: Any) -> None:
            nonlocal seen
            if message["type"] == "http.response.start":
                seen = message["status"], dict(message["headers"]).get(_SESSION)
            await send(message)

        await self._manager.handle_request(scope, receive, watch)
        return seen

    async def _make_room(self) -> None:
        while len(self._open) + self._opening >= self._most and self._idle:
            session_id, session = self._idle.popitem(last=False)
            del self._open[session_id]
            logger.info("the session that was idle longest ends for a new one: max_sessions is %d", self._most)
            await self._end(session_id, session)

    async def _end(self, session_id: bytes, session: _Session) -> None:
        """End a session as its own client would. Do nothing if the manager has ended it already."""
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "DELETE",
            "scheme": "http", "path": "/", "root_path": "", "query_string": b"", "server": None, "client": None,
            "headers": [(_SESSION, session_id)], "user": session.user,
        }  # fmt: skip

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def ignore(message: Any) -> None: ...

        await self._manager.handle_request(scope, receive, ignore)


class ResumableManager(StreamableHTTPSessionManager):
    """A session manager that gives each session its own store of events.

    A shared store would mix the streams of sessions. The SDK names a stream by the id of its request, which each
    client counts from 1, and does not pass the session to the store.
    """

    @property
    def event_store(self) -> EventStore:
        """A new store at each access. The SDK reads this property once per session."""
        return SessionEvents()

    @event_store.setter
    def event_store(self, value: Any) -> None:
        """Ignore the value, which the constructor of the base class assigns."""


class SessionEvents(EventStore):
    """The store of a session's last `max_events` events."""

    max_events = 256

    def __init__(self) -> None:
        self._events: OrderedDict[str, tuple[str, Any]] = OrderedDict()

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store an event instead of the oldest one if `max_events` are stored; return its id, a random text."""
        event_id = uuid4().hex
        self._events[event_id] = stream_id, message
        if len(self._events) > self.max_events:
            self._events.popitem(last=False)
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        """Send the events that followed an event on its stream, and return the id of the stream.

        If the event is not stored, send no event and return ``None``.
        """
        if last_event_id not in self._events:
            return None
        wanted, seen = self._events[last_event_id][0], False
        for event_id, (stream_id, message) in list(self._events.items()):
            if seen and stream_id == wanted and message is not None:
                await send_callback(EventMessage(message, event_id))
            seen = seen or event_id == last_event_id
        return wanted
