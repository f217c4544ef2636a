"""The SDK's low-level server with a registry behind it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp_types import SERVER_INFO_META_KEY
from opentelemetry import trace
from opentelemetry.propagate import get_global_textmap

from operad_mcp.foreign import clean_text, one_line
from operad_mcp.server.changes import MAX_URI, MAX_WATCHED, Changes, Watching, connection_of
from operad_mcp.server.door import Door, is_handshake
from operad_mcp.server.kinds import Json
from operad_mcp.server.prompts import Prompts
from operad_mcp.server.resources import Resources
from operad_mcp.server.tools import Tools

_TITLE = 200
"""The maximum number of characters of the titles of all sources together."""
_INSTRUCTIONS = 2_000
"""The maximum number of characters of one source's instructions."""
_UNTRACED = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)


class _Server(Server[Any]):
    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Return the SDK's options, which here declare that lists change.

        Otherwise clients of the handshake revisions would not listen for changes over HTTP.
        """
        return super().create_initialization_options(
            notification_options or NotificationOptions(True, True, True), *args, **kwargs
        )


class Served:
    """The handlers of a served registry, shared by any number of SDK servers."""

    def __init__(self, door: Door, complete: Any = None) -> None:
        self.door = door
        self.changes = Changes(door)
        self.tools = Tools(door, log_level)
        self.resources = Resources(door)
        self.prompts = Prompts(door, complete)
        self.watching = Watching(door, self.resources, self.changes.updated_for)
        key = door.config.state_key
        self._keys: list[bytes | str] = [os.urandom(32) if key is None else key]

    def server(self) -> Server[Any]:
        """Return a new low-level server of the SDK with these handlers."""
        config = self.door.config
        # A view of a registry has no sources.
        states = self.door.registry.sources.states() if hasattr(self.door.registry, "sources") else ()
        sources = [each for each in states if each.session is not None]
        titles = ", ".join(one_line(title) for each in sources if (title := _told(each, "title")))
        server: Server[Any] = _Server(
            config.name or (sources[0].name if len(sources) == 1 else "operad"),
            version=config.version,
            title=config.title or titles[:_TITLE] or None,
            instructions=config.instructions or self._instructions(sources) or None,
            lifespan=self._lifespan,
            get_tool_input_schema=self.tools.input_schema,
            on_subscriptions_listen=self._listen,
        )
        info = server.server_info_stamp
        for method, params, handler in self._handlers():
            server.add_request_handler(method, params, _complete(handler, info))
        security = RequestStateSecurity(keys=self._keys, bind_principal=self.door.principal)
        boundary = RequestStateBoundary(security, default_audience=server.name)
        # The SDK's list has only its tracing.
        server.middleware[:] = [WhereTraced(each) for each in server.middleware]
        server.middleware += [self._remember, WhereAsked(boundary)]
        return server

    def _handlers(self) -> list[tuple[str, type[Any], Any]]:
        return [
            ("tools/list", types.PaginatedRequestParams, self.tools.listed),
            ("tools/call", types.CallToolRequestParams, self.tools.call),
            ("resources/list", types.PaginatedRequestParams, self.resources.listed),
            ("resources/templates/list", types.PaginatedRequestParams, self.resources.templates),
            ("resources/read", types.ReadResourceRequestParams, self.resources.read),
            ("resources/subscribe", types.SubscribeRequestParams, self._subscribe),
            ("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe),
            ("prompts/list", types.PaginatedRequestParams, self.prompts.listed),
            ("prompts/get", types.GetPromptRequestParams, self.prompts.get),
            ("completion/complete", types.CompleteRequestParams, self.prompts.complete),
            ("logging/setLevel", types.SetLevelRequestParams, _set_level),
        ]

    def _instructions(self, sources: Sequence[Any]) -> str:
        """Return the instructions for the three tools, if the registry is large, and those of its sources."""
        told = [
            f"{one_line(_told(each, 'title') or each.name)}: {clean_text(text)[:_INSTRUCTIONS]}"
            for each in sources
            if (text := _told(each, "instructions"))
        ]
        how = "Find operations with search, get the input of one with describe, and use it with call."
        return "\n\n".join([how, *told] if self.door.searches else told)

    @asynccontextmanager
    async def _lifespan(self, server: Server[Any]) -> AsyncIterator[Json]:
        async with self.changes.following():
            try:
                yield {}
            finally:
                if self.changes.is_last:
                    await self.watching.aclose()

    async def _remember(self, ctx: Any, call_next: Any) -> Any:
        if ctx.method == "initialize":
            self.changes.joined(ctx)
        return await call_next(ctx)

    async def _listen(self, ctx: Any, params: Any) -> Any:
        asked = [str(uri) for uri in (params.notifications.resource_subscriptions or ())]
        uris = [uri for uri in asked if len(uri) <= MAX_URI][:MAX_WATCHED]
        async with self.watching.following(ctx, uris) as watched:
            granted = params.notifications.model_copy(update={"resource_subscriptions": watched})
            return await self.changes.listen(ctx, params.model_copy(update={"notifications": granted}))

    async def _subscribe(self, ctx: Any, params: Any) -> Json:
        uri, connection = str(params.uri), connection_of(ctx)
        if "operad.watched" not in connection.state:
            connection.exit_stack.callback(self._forget_all, ctx)
        if self.changes.watch(ctx, uri) and not await self.watching.join(ctx, uri):
            self._forget(ctx, uri)
        return {}

    async def _unsubscribe(self, ctx: Any, params: Any) -> Json:
        self._forget(ctx, str(params.uri))
        return {}

    def _forget_all(self, ctx: Any) -> None:
        for uri in self.changes.watched(ctx):
            self._forget(ctx, uri)

    def _forget(self, ctx: Any, uri: str) -> None:
        if self.changes.unwatch(ctx, uri):
            self.watching.leave(ctx, uri)


def _told(state: Any, what: str) -> str:
    """Return the ``title`` or the ``instructions`` of a source; empty if it has none."""
    found = getattr(state.session, what, None)
    return found if isinstance(found, str) else ""


def _complete(handler: Any, info: Json) -> Any:
    """Return ``handler`` with ``info`` in its results, which are marked as complete unless they have another type.

    Both are required since 2026-07-28. The SDK would copy ``info`` deeply for each result.
    """

    async def handle(ctx: Any, params: Any) -> Json:
        result: Json = await handler(ctx, params)
        if is_handshake(ctx):
            return result
        meta = {SERVER_INFO_META_KEY: info, **result.get("_meta", {})}
        return {"resultType": "complete", **result, "_meta": meta}

    return handle


async def _set_level(ctx: Any, params: Any) -> Json:
    connection_of(ctx).state["operad.level"] = params.level
    return {}


def log_level(ctx: Any) -> str:
    """Return the lowest level of log messages that a session requested; ``debug`` by default."""
    level: str = connection_of(ctx).state.get("operad.level", "debug")
    return level


# --- middleware of the SDK, bypassed if it has nothing to do: it would cost a tenth of a call --------------------


class WhereTraced:
    """The SDK's tracing middleware, used only if traces are recorded, or the client sent a trace context.

    Without a tracer provider, a span records nothing, but calls of the handler belong to the client's trace.
    """

    def __init__(self, tracing: Any) -> None:
        self._tracing = tracing
        self._propagator: Any = None
        self._fields: frozenset[str] = frozenset()

    async def __call__(self, ctx: Any, call_next: Any) -> Any:
        """Handle a request, with tracing if traces are recorded, or the client sent a trace context."""
        if isinstance(trace.get_tracer_provider(), _UNTRACED) and not self._has_trace(ctx.meta):
            return await call_next(ctx)
        return await self._tracing(ctx, call_next)

    def _has_trace(self, meta: Any) -> bool:
        if not meta:
            return False
        propagator = get_global_textmap()
        if propagator is not self._propagator:  # it makes a new set each time
            self._propagator, self._fields = propagator, frozenset(propagator.fields)
        return not self._fields.isdisjoint(meta)


class WhereAsked:
    """The SDK's middleware that seals the state of questions, used only if a client is asked or has answered."""

    def __init__(self, boundary: RequestStateBoundary) -> None:
        self._boundary = boundary

    async def __call__(self, ctx: Any, call_next: Any) -> Any:
        """Handle a request, with the SDK's middleware if a client is asked or has answered."""
        if ctx.params and ctx.params.get("requestState") is not None:
            return await self._boundary(ctx, call_next)
        result = await call_next(ctx)
        if not isinstance(result, dict) or result.get("resultType", "complete") == "complete":
            return result

        async def known(_: Any) -> Any:
            return result

        return await self._boundary(ctx, known)
