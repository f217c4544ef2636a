"""A session with one server: requests and their responses, and the server's own requests and reports.

This replaces the SDK's session, which rejects a whole listing for one bad tool. Results are returned as the server
sent them, errors of the server and of this process have different types, and a message takes microseconds.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import attrs

from operad_mcp.config import MCPClientConfig
from operad_mcp.errors import ConnectionLost, Fault, ServerError, Unreadable
from operad_mcp.foreign import clean_text, one_line
from operad_mcp.wire.callbacks import Callbacks, Declined
from operad_mcp.wire.link import KEPT, Link, imported
from operad_mcp.wire.messages import Answer, Json, Message, Notice, Request, RequestId
from operad_mcp.wire.protocol import (
    HANDSHAKES,
    INTERNAL_ERROR,
    META_CAPABILITIES,
    META_CLIENT,
    META_LOG_LEVEL,
    META_SERVER,
    META_SUBSCRIPTION,
    META_VERSION,
    METHOD_HEADER,
    MODERN,
    NAME_HEADER,
    NAMED_BY,
    TASKS,
    UNSUPPORTED_VERSION,
    VERSION_HEADER,
    ServerLogger,
    header_value,
)

Progress = Callable[[float, float | None, str | None], Awaitable[None]]
Listener = Callable[[str, Json], None]
_NEGOTIATION = ("initialize", "server/discover")
_MOST_ASKED = 4 * KEPT
"""The maximum number of a server's requests in progress. Further requests, also those of a batch, are dropped."""
_KNOWN = ("tools", "resources", "prompts", "logging", "completions", "experimental", "extensions", "tasks")


@attrs.define
class _Pending:
    """A request that has no response yet."""

    answer: asyncio.Future[Answer]
    progress: Progress | None
    listener: Listener | None
    reports: deque[tuple[float, float | None, str | None]] = attrs.field(factory=deque)
    reporting: asyncio.Task[None] | None = None


class Session:
    """A session with one server. The first request must be `discover` or `initialize`."""

    def __init__(
        self,
        config: MCPClientConfig,
        callbacks: Callbacks,
        notified: Callable[[str, Mapping[str, Any]], None],
        logger: ServerLogger,
    ) -> None:
        self.config = config
        self.callbacks = callbacks
        self.link: Link
        self.protocol_version = ""
        self.server: Json = {}
        self.capabilities: Json = {}
        self.instructions: str | None = None
        self.closed = asyncio.Event()
        """Set when the session has ended."""
        self.stop = asyncio.Event()
        """Set to end the session."""
        self._notified = notified
        self._logger = logger
        self._ids = itertools.count(1)
        self._pending: dict[RequestId, _Pending] = {}
        self._asked: dict[RequestId, asyncio.Task[None]] = {}
        self._room: asyncio.Future[None] | None = None
        self._param_headers: dict[str, Any] = {}
        self._users = 0
        self._retired = False

    @property
    def modern(self) -> bool:
        """Whether the session uses the stateless protocol (2026-07-28)."""
        return self.protocol_version >= MODERN

    @contextmanager
    def used(self) -> Iterator[None]:
        """Record a request as running inside the block. A retired session ends after the last such block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._retired and not self._users:
                self.stop.set()

    def retire(self) -> None:
        """End the session as soon as no request is running. Responses to running requests may still arrive."""
        self._retired = True
        if not self._users:
            self.stop.set()

    # --- requests --------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Json,
        *,
        progress: Progress | None = None,
        headers: Mapping[str, str] | None = None,
        listener: Listener | None = None,
    ) -> Any:
        """Send a request and return its result, unchanged except for tools with an invalid ``x-mcp-header``.

        These are left out of listings over HTTP (2026-07-28), with a warning.

        Args:
            method: the name of the method in the protocol.
            params: its parameters.
            progress: awaited with each progress notification, before the result is returned.
            headers: HTTP headers to send besides the protocol's headers.
            listener: receives the notifications of a subscription that the request opens.

        Raises:
            ServerError: the server responded with an error.
            Fault: no response was received, or it cannot be used.
        """
        if self.closed.is_set():
            raise ConnectionLost("the request was not sent, because the connection has ended", sent=False)
        request_id = next(self._ids)
        params, own = self._stamped(method, params)
        if progress is not None:
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": request_id}}
        message: Json = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params:
            message["params"] = params
        pending = _Pending(asyncio.get_running_loop().create_future(), progress, listener)
        self._pending[request_id] = pending
        try:
            await self.link.send(message, {**(headers or {}), **own})
            answer = await pending.answer
            if pending.reporting is not None:
                await pending.reporting
        except asyncio.CancelledError:
            if method not in _NEGOTIATION:
                await self.notify("notifications/cancelled", {"requestId": request_id})
            raise
        finally:
            del self._pending[request_id]
            if pending.reporting is not None:
                pending.reporting.cancel()
        if answer.error is not None:
            raise answer.error
        if method == "tools/list" and self.modern:
            return await self._with_headers(answer.result)
        return answer.result

    async def notify(self, method: str, params: Json | None = None) -> None:
        """Send a notification. It is dropped if the connection has ended or fails."""
        if self.closed.is_set():
            return
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        try:
            await self.link.send(message, self._stamped(method, {})[1])
        except Fault as error:
            self._logger.debug("%s was not sent: %s", method, error)

    def _stamped(self, method: str, params: Json) -> tuple[Json, dict[str, str]]:
        """Return the parameters with the protocol's additions, and the headers of the request."""
        version = self.protocol_version or (MODERN if method == "server/discover" else "")
        if version < MODERN:
            return params, {VERSION_HEADER: version} if version else {}
        meta = {
            **({} if self.config.log_level is None else {META_LOG_LEVEL: self.config.log_level}),
            **params.get("_meta", {}),
            META_VERSION: version,
            META_CLIENT: {"name": "operad", "version": _version()},
            META_CAPABILITIES: self._offered(),
        }
        headers = {VERSION_HEADER: version, METHOD_HEADER: method}
        name = params.get(NAMED_BY.get(method, ""))
        if isinstance(name, str):
            headers[NAME_HEADER] = header_value(name)
        if method == "tools/call" and name in self._param_headers:
            from mcp.shared.inbound import mcp_param_headers

            headers |= mcp_param_headers(self._param_headers[name], params.get("arguments") or {})
        return {**params, "_meta": meta}, headers

    def _offered(self) -> Json:
        """Return the capabilities that this client offers to the server."""
        # A server may then respond to any call of a tool with a task.
        return {**self.callbacks.capabilities(), "extensions": {TASKS: {}}}

    async def _with_headers(self, listed: Any) -> Any:
        """Store which arguments are sent as headers. Over HTTP, leave out tools with an invalid declaration."""
        tools = listed.get("tools") if isinstance(listed, dict) else None
        if self.config.url is None or not isinstance(tools, list) or "x-mcp-header" not in repr(tools):
            return listed
        inbound = await imported("mcp.shared.inbound")
        kept = []
        for tool in tools:
            if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                wrong = inbound.find_invalid_x_mcp_header(tool.get("inputSchema"))
                if wrong is not None:
                    self._logger.warning("the tool %r is left out: %s", name, wrong)
                    continue
                self._param_headers[name] = inbound.x_mcp_header_map(tool.get("inputSchema"))
            kept.append(tool)
        return {**listed, "tools": kept}

    # --- negotiation -----------------------------------------------------------------------------

    async def discover(self) -> None:
        """Ask a server of the stateless protocol for its description, and store it.

        Raises:
            ServerError, Fault: the request failed, or the server does not support 2026-07-28.
        """
        try:
            found = await self.request("server/discover", {})
        except ServerError as error:
            supported = error.data.get("supported") if isinstance(error.data, dict) else None
            if error.code != UNSUPPORTED_VERSION or not isinstance(supported, list) or MODERN not in supported:
                raise
            found = await self.request("server/discover", {})
        versions = _object(found, "server/discover").get("supportedVersions")
        if not isinstance(versions, list) or MODERN not in versions:
            raise Unreadable(f"expected {MODERN} among the supportedVersions, got {versions!r:.200}")
        meta = found.get("_meta")
        self._adopt(MODERN, found, meta.get(META_SERVER) if isinstance(meta, dict) else None)

    async def initialize(self) -> None:
        """Perform the handshake with a server of an older protocol, and store its description.

        Raises:
            ServerError, Fault: the request failed, or the server named an unknown version.
        """
        params = {
            "protocolVersion": HANDSHAKES[-1],
            "capabilities": self._offered(),
            "clientInfo": {"name": "operad", "version": _version()},
        }
        found = _object(await self.request("initialize", params), "initialize")
        version = found.get("protocolVersion")
        if version not in HANDSHAKES:
            raise Unreadable(
                f"expected one of the protocol versions {', '.join(HANDSHAKES)}, got {version!r:.200}"
            )
        self._adopt(version, found, found.get("serverInfo"))
        await self.notify("notifications/initialized")

    def _adopt(self, version: str, found: Json, server: Any) -> None:
        capabilities = found.get("capabilities")
        self.protocol_version = version
        told = server.items() if isinstance(server, dict) else ()
        self.server = {name: clean_text(text) if isinstance(text, str) else text for name, text in told}
        self.capabilities = {
            name: value if isinstance(value, dict) else {}
            for name, value in (capabilities.items() if isinstance(capabilities, dict) else ())
            if name in _KNOWN and value is not None and value is not False
        }
        instructions = found.get("instructions")
        self.instructions = clean_text(instructions) if isinstance(instructions, str) else None

    # --- what arrives ----------------------------------------------------------------------------

    @property
    def crowded(self) -> bool:
        """Whether `KEPT` or more requests of the server are in progress."""
        return len(self._asked) >= KEPT

    async def room(self) -> None:
        """Wait until fewer than `KEPT` requests of the server are in progress, or the session has ended."""
        while self.crowded and not self.closed.is_set():
            if self._room is None or self._room.done():
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def receive(self, message: Message) -> None:
        """Handle a message of the server: a response, a notification or a request."""
        if isinstance(message, Answer):
            pending = self._pending.get(_key(message.id))
            if pending is not None and not pending.answer.done():
                pending.answer.set_result(message)
        elif isinstance(message, Notice):
            try:
                self._take_notice(message.method, message.params)
            except (TypeError, OverflowError, RecursionError) as error:  # such as a list as the id of a request
                self._logger.debug("the server's notification %s is dropped: %s", message.method, error)
        elif message.id in self._asked or len(self._asked) >= _MOST_ASKED:
            reason = "its id is in use" if message.id in self._asked else "too many requests are in progress"
            self._logger.debug("the server's request %s is dropped: %s", message.method, reason)
        else:
            task = asyncio.get_running_loop().create_task(self._answer(message))
            self._asked[message.id] = task
            task.add_done_callback(lambda _: self._answered(message.id, task))

    def _answered(self, request_id: RequestId, task: asyncio.Task[None]) -> None:
        if self._asked.get(request_id) is task:
            del self._asked[request_id]
        self._make_room()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _take_notice(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            self._progress(params)
        elif method == "notifications/message":
            self.callbacks.log(params)
        elif method == "notifications/cancelled":
            asked = self._asked.get(params.get("requestId", ""))
            if asked is not None:
                asked.cancel()
        else:
            meta = params.get("_meta")
            opened = self._pending.get(_key(meta.get(META_SUBSCRIPTION))) if isinstance(meta, dict) else None
            if opened is not None and opened.listener is not None:
                opened.listener(method, params)
            self._notified(method, params)

    def _progress(self, params: Json) -> None:
        pending, progress = self._pending.get(_key(params.get("progressToken"))), _number(params.get("progress"))
        if pending is None or pending.progress is None or progress is None or pending.answer.done():
            return
        if len(pending.reports) >= KEPT:
            return  # too many requests at the same time
        message = params.get("message")
        text = one_line(message) if isinstance(message, str) else None
        pending.reports.append((progress, _number(params.get("total")), text))
        if pending.reporting is None or pending.reporting.done():
            pending.reporting = asyncio.get_running_loop().create_task(self._report(pending, pending.progress))

    async def _report(self, pending: _Pending, progress: Progress) -> None:
        while pending.reports:
            try:
                await progress(*pending.reports.popleft())
            except Exception:
                self._logger.exception("on_progress raised")

    async def _answer(self, request: Request) -> None:
        reply: Json = {"jsonrpc": "2.0", "id": request.id}
        try:
            reply["result"] = await self.callbacks.answer(request.method, request.params)
        except Declined as declined:
            reply["error"] = {"code": declined.code, "message": str(declined)}
        except Exception:
            self._logger.exception("the callback for %s raised", request.method)
            reply["error"] = {"code": INTERNAL_ERROR, "message": "the client's callback failed"}
        try:
            await self.link.send(reply, {})
        except Fault as error:
            self._logger.debug("the response to %s was not sent: %s", request.method, error)
        except (TypeError, ValueError):
            self._logger.exception("the callback for %s returned a value that is not JSON", request.method)
            failed = {"code": INTERNAL_ERROR, "message": "the client's callback failed"}
            await self.link.send({"jsonrpc": "2.0", "id": request.id, "error": failed}, {})

    # --- the end ---------------------------------------------------------------------------------

    def end(self, fault: Fault | None = None) -> None:
        """End the session. Requests in flight fail with ``fault``, by default `ConnectionLost`. Idempotent."""
        self.closed.set()
        self._make_room()
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_result(Answer(None, error=fault or ConnectionLost("the connection ended")))

    async def aclose(self) -> None:
        """Cancel the server's requests in progress, and end the session."""
        asked = list(self._asked.values())
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        self.end()


@cache  # reads the whole metadata of a distribution
def _version() -> str:
    from importlib.metadata import version

    return version("operad-mcp")


def _object(found: Any, method: str) -> Json:
    if not isinstance(found, dict):
        raise Unreadable(f"expected an object as the result of {method}, got {found!r:.200}")
    return found


def _key(found: Any) -> RequestId:
    """Return a received id in the form in which this client sent it. Some servers send numbers as text."""
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 19:
        return int(found)
    return found if isinstance(found, (int, str)) else ""


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
