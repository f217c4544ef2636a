"""Raw results: what a server answered, before the SDK's strict models see it; and whose an error is.

The SDK refuses a whole listing for one bad tool and a whole result for one unknown block. `RawDispatcher` stands
between its session and its dispatcher: for a request made with a `Slot` it keeps the answer and hands the
session the smallest answer that is valid, so that the session still stamps, routes and cancels, but judges
nothing; the answers of the handshake it mends. An error of the server and one that was made here leave it as two
types.

Imported with the first connection: it needs the SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

from mcp.shared.exceptions import MCPError
from mcp_types import REQUEST_TIMEOUT, Request
from pydantic import TypeAdapter

from operad_mcp.errors import ConnectionLost, Fault, NoAnswer, Said, Unreadable
from operad_mcp.wire.schemas import header_schema

if TYPE_CHECKING:
    import asyncio

    from mcp.shared.dispatcher import CallOptions, Dispatcher

Json = dict[str, Any]
_UNREADABLE = 0


class LocalError(MCPError):
    """An error that this process made, as the SDK's session wants errors."""

    def __init__(self, fault: Fault, code: int = _UNREADABLE) -> None:
        super().__init__(code=code, message=str(fault))
        self.fault = fault


class Slot:
    """Where the raw answer of one request goes.

    Args:
        headers: HTTP headers that it has besides those of the protocol.
        is_listing: whether the session is to learn of the tools which headers they want.
    """

    __slots__ = ("headers", "is_listing", "raw")

    def __init__(self, headers: Mapping[str, str] | None = None, *, is_listing: bool = False) -> None:
        self.raw: Any = None
        self.is_listing = is_listing
        self.headers = headers


slot: ContextVar[Slot | None] = ContextVar("operad_mcp_slot", default=None)
"""Set by whoever wants the raw answer of the request that it makes next in the same task."""

_STUBS: Mapping[str, Json] = {
    "tools/call": {"content": []},
    "tools/list": {"tools": []},
    "resources/read": {"contents": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "prompts/list": {"prompts": []},
    "prompts/get": {"messages": []},
    "completion/complete": {"completion": {"values": []}},
}
_MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class RawDispatcher:
    """A dispatcher of the SDK, with raw results, and with an end that can be awaited."""

    def __init__(
        self, inner: Dispatcher[Any], closed: asyncio.Event, notified: Callable[[str, Mapping[str, Any]], None]
    ) -> None:
        self._inner = inner
        self._closed = closed
        self._notified = notified
        self.on_stream_exception: Any = None

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Send a request; the answer, a stand-in for it, or the answer mended."""
        wanted = slot.get()
        # The answers of requests that the SDK makes on the way are its own.
        slot.set(None)
        if self._closed.is_set():
            raise LocalError(ConnectionLost("the connection has ended", sent=False))
        if wanted is None and method == "server/discover" and opts is not None:
            # The session would wait for so long and no longer, also while a person logs in: its asker has a limit.
            opts.pop("timeout", None)
        if wanted is not None and wanted.headers:
            own = (opts or {}).get("headers") or {}
            opts = {**(opts or {}), "headers": {**wanted.headers, **own}}
        try:
            raw: Any = await self._inner.send_raw_request(method, params, opts)
        except MCPError as error:
            raise _told_apart(error, method) from None
        if wanted is None:
            return _mended(method, raw)
        wanted.raw = raw
        if method == "server/discover":
            return _mended(method, raw)
        if method == "tools/list" and wanted.is_listing:
            return {**_MODERN, "tools": _tool_stubs(raw)}
        return {**_MODERN, **_STUBS.get(method, {})}

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification."""
        await self._inner.notify(method, params, opts)

    async def run(self, on_request: Any, on_notify: Any, *args: Any, **kwargs: Any) -> None:
        """Receive until the connection ends. Notifications are ours: the session would judge them."""
        try:
            await self._inner.run(on_request, self._notify, *args, **kwargs)
        finally:
            self._closed.set()

    async def _notify(self, _context: Any, method: str, params: Mapping[str, Any] | None) -> None:
        self._notified(method, params or {})


def _told_apart(error: MCPError, method: str) -> MCPError:
    """The error as what it is: the server's, or one of this process."""
    data = error.data
    if isinstance(data, Said):
        return MCPError(code=error.code, message=error.message, data=data.data)
    if isinstance(data, Fault):
        return LocalError(data)
    # What the dispatcher makes itself has no data, and only it makes errors that no transport marked.
    if error.code == REQUEST_TIMEOUT:
        return LocalError(NoAnswer(f"no answer to {method} in time"), error.code)
    return LocalError(ConnectionLost(error.message), error.code)


def _tool_stubs(raw: Any) -> list[Json]:
    """The tools, as far as the session needs them: the headers that their input schemas ask for."""
    listed = raw.get("tools") if isinstance(raw, dict) else None
    return [
        {"name": tool["name"], "inputSchema": header_schema(tool.get("inputSchema"))}
        for tool in (listed if isinstance(listed, list) else ())
        if isinstance(tool, dict) and isinstance(tool.get("name"), str)
    ]


def _mended(method: str, raw: Any) -> Json:
    """The answer to a request that the session makes for itself."""
    if not isinstance(raw, dict):
        raise LocalError(Unreadable(f"expected an object as the answer to {method}, got {raw!r:.200}"))
    if method not in ("initialize", "server/discover"):
        return raw
    mended = {**raw, "capabilities": _capabilities(raw.get("capabilities"))}
    if method == "initialize":
        found = raw.get("serverInfo")
        info = found if isinstance(found, dict) else {}
        mended["serverInfo"] = {
            **info, "name": str(info.get("name", "")), "version": str(info.get("version", "")),
        }  # fmt: skip
    elif "supportedVersions" in raw:
        mended = {**_MODERN, **mended}
    return mended


def _capabilities(found: Any) -> Json:
    if not isinstance(found, dict):
        return {}
    known = ("tools", "resources", "prompts", "logging", "completions", "experimental", "extensions", "tasks")
    return {
        name: value if isinstance(value, dict) else {}
        for name, value in found.items()
        if name in known and value is not None and value is not False
    }


ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)
"""What the session makes of an answer that it is not to judge."""

_AnyRequest = Request[dict[str, Any], str]


class _TaskRequest(Request[dict[str, Any], str]):
    """A request on a task, which HTTP names in a header for those that route by it."""

    name_param: ClassVar[str | None] = "taskId"


def request_of(method: str, params: dict[str, Any]) -> Request[Any, Any]:
    """A request of any method; the session stamps it like its own."""
    made = _TaskRequest if method.startswith("tasks/") and "taskId" in params else _AnyRequest
    return made(method=method, params=params)
