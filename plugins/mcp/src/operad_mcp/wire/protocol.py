"""The names and numbers of the Model Context Protocol that a client needs."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import MutableMapping
from typing import Any

HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions that begin with a handshake, the oldest first."""
MODERN = "2026-07-28"
"""The first revision of the stateless protocol."""
TASKS = "io.modelcontextprotocol/tasks"
"""The extension by which a server may respond to a call with a task."""

META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CLIENT = "io.modelcontextprotocol/clientInfo"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
META_SERVER = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

VERSION_HEADER = "mcp-protocol-version"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"
NAMED_BY = {
    "tools/call": "name", "prompts/get": "name", "resources/read": "uri",
    "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId", "tasks/result": "taskId",
}  # fmt: skip
"""The parameter of each method that the header `NAME_HEADER` repeats, so that proxies can route by it."""

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
BUSY = -32000
UNSUPPORTED_VERSION = -32022

_PLAIN = re.compile(r"[!-~](?:[ -~]*[!-~])?|")


def header_value(text: str) -> str:
    """Return a text as the value of a header. If it is not printable ASCII, return ``=?base64?…?=``."""
    if _PLAIN.fullmatch(text) and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode('ascii')}?="


class ServerLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger for one server. Its messages begin with the server's name."""

    def __init__(self, name: str, logger: logging.Logger | None = None) -> None:
        super().__init__(logger or logging.getLogger("operad.mcp"), {})
        self._prefix = f"{name}: ".replace("%", "%%")

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the message with the server's name before it."""
        return f"{self._prefix}{msg}", kwargs
