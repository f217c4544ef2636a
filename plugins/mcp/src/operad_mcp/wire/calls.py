"""The calls in progress at a server: their callers and their time limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from operad import ConfigError
from operad.plugin import trace_context
from operad_mcp.config import MCPCall, MCPClientConfig, MCPExtras, maybe_await

Json = dict[str, Any]
current_call: ContextVar[MCPCall | None] = ContextVar("operad_mcp_call", default=None)
"""The call for which a request is sent. Messages that arrive on the same HTTP exchange are read in its context."""
_PROTOCOLS_OWN = ("accept", "content-type", "content-length", "host", "connection", "transfer-encoding")


class Clock:
    """The time limit of a request. Progress can restart it, and questions of the server pause it.

    If ``seconds`` is ``None``, the time is not limited.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.timeout = asyncio.timeout(seconds)
        """The context manager in which the request runs."""
        self._holds = 0

    def renew(self) -> None:
        """Restart the time limit, unless it is paused or has expired."""
        if self.seconds is not None and not self._holds and not self.timeout.expired():
            self.timeout.reschedule(asyncio.get_running_loop().time() + self.seconds)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Pause the time limit inside the block, and restart it afterwards."""
        self._holds += 1
        if self.seconds is not None and not self.timeout.expired():
            self.timeout.reschedule(None)
        try:
            yield
        finally:
            self._holds -= 1
            self.renew()


class Calls:
    """The calls in progress at one server."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._running: dict[Clock, MCPCall | None] = {}

    @contextmanager
    def running(self, call: MCPCall | None, clock: Clock) -> Iterator[None]:
        """Record a call as in progress inside the block, and make it the `current_call`."""
        self._running[clock] = call
        token = current_call.set(call)
        try:
            yield
        finally:
            current_call.reset(token)
            del self._running[clock]

    @property
    def any_running(self) -> bool:
        """Whether a request is in progress."""
        return bool(self._running)

    def asking(self) -> MCPCall:
        """Return the call to which a message of the server belongs: the `current_call`, else the only one running.

        If neither exists, the result has only the server's name.
        """
        call = current_call.get()
        if call is None and len(self._running) == 1:
            call = next(iter(self._running.values()))
        return call or MCPCall(server=self._server)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Pause the time limits of all calls inside the block.

        The server waits for an answer of the client, and may not state for which call.
        """
        holds = [clock.held() for clock in self._running]
        for hold in holds:
            hold.__enter__()
        try:
            yield
        finally:
            for hold in holds:
                hold.__exit__(None, None, None)


async def extras_of(config: MCPClientConfig, call: MCPCall, metadata: Mapping[str, Any]) -> MCPExtras:
    """Return the headers and ``_meta`` of a call, from its context, from ``on_call`` and from its trace.

    Args:
        config: the configuration with ``on_call``.
        call: the call.
        metadata: the metadata of its context: ``mcp = {"headers": {…}, "meta": {…}}``, ``traceparent``,
            ``tracestate``, ``baggage``.

    Raises:
        ConfigError: the headers or the metadata have the wrong form. The message quotes no value.
    """
    trace = trace_context(metadata) if metadata else {}
    given = _checked(metadata.get("mcp"), 'the context\'s metadata["mcp"]')
    told = MCPExtras()
    if config.on_call is not None:
        told = _checked(await maybe_await(config.on_call(call)), "on_call")
    headers = {**trace, **given.headers, **told.headers}
    return MCPExtras(
        headers={name: value for name, value in headers.items() if not _is_protocols_own(name)},
        meta={**trace, **given.meta, **told.meta},
    )


def _checked(found: Any, where: str) -> MCPExtras:
    if found is None or isinstance(found, MCPExtras):
        return found or MCPExtras()
    if not isinstance(found, Mapping) or not found.keys() <= {"headers", "meta", "task"}:
        got = type(found).__name__
        if isinstance(found, Mapping):
            got = f"the keys {', '.join(map(str, found))}"
        raise ConfigError(f'{where}: expected MCPExtras, or a mapping with "headers", "meta" or "task", got {got}')
    headers, meta = found.get("headers", {}), found.get("meta", {})
    if not isinstance(headers, Mapping) or not isinstance(meta, Mapping):
        got = f"{type(headers).__name__} and {type(meta).__name__}"
        raise ConfigError(f"{where}: expected mappings as headers and meta, got {got}")
    for name, value in headers.items():
        if not (isinstance(value, str) and value.isascii() and value.isprintable()):
            got = f"another value for {name!r:.80}"
            raise ConfigError(f"{where}: expected one line of ASCII text as each header, got {got}")
    return MCPExtras(headers=headers, meta=meta)


def _is_protocols_own(name: str) -> bool:
    return name.lower() in _PROTOCOLS_OWN or name.lower().startswith("mcp-")
