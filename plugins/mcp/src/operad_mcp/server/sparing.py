"""Middleware of the SDK that is passed by where it has nothing to do: it would cost a tenth of a call."""

from __future__ import annotations

from typing import Any

from mcp.server.request_state import RequestStateBoundary
from opentelemetry import trace
from opentelemetry.propagate import get_global_textmap

_UNTRACED = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)


class WhereTraced:
    """The tracing of the SDK, where somebody traces.

    Without a tracer provider a span records nothing; it is entered all the same where the client sent the context
    of a trace, so that what a handler calls belongs to it.
    """

    def __init__(self, tracing: Any) -> None:
        self._tracing = tracing
        self._propagator: Any = None
        self._fields: frozenset[str] = frozenset()

    async def __call__(self, ctx: Any, call_next: Any) -> Any:
        """Pass a request on."""
        if isinstance(trace.get_tracer_provider(), _UNTRACED) and not self._has_trace(ctx.meta):
            return await call_next(ctx)
        return await self._tracing(ctx, call_next)

    def _has_trace(self, meta: Any) -> bool:
        if not meta:
            return False
        propagator = get_global_textmap()
        if propagator is not self._propagator:  # which makes a new set each time it is asked
            self._propagator, self._fields = propagator, frozenset(propagator.fields)
        return not self._fields.isdisjoint(meta)


class WhereAsked:
    """The sealing of what a client keeps while it is asked, where it is asked something or has answered."""

    def __init__(self, boundary: RequestStateBoundary) -> None:
        self._boundary = boundary

    async def __call__(self, ctx: Any, call_next: Any) -> Any:
        """Pass a request on."""
        if ctx.params and ctx.params.get("requestState") is not None:
            return await self._boundary(ctx, call_next)
        result = await call_next(ctx)
        if not isinstance(result, dict) or result.get("resultType", "complete") == "complete":
            return result

        async def known(_: Any) -> Any:
            return result

        return await self._boundary(ctx, known)
