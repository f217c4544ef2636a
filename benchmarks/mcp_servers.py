"""MCP servers that cost little themselves, so that what is measured are the clients.

    python mcp_servers.py stdio [TOOL]      # one, on standard streams
    python mcp_servers.py http N [TOOL]     # N on ports of 127.0.0.1, which it prints; ends with its input

With TOOL they have that one alone. They speak 2025-11-25 and answer from prepared text.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

FIELDS = {f"field{number}": {"type": "integer" if number % 2 else "string"} for number in range(20)}
RECORD = {name: number if number % 2 else f"value {number}" for number, name in enumerate(FIELDS)}
INPUT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
TOOLS = [
    {"name": "text", "description": "A text.", "inputSchema": INPUT},
    {
        "name": "record",
        "description": "A record of twenty fields.",
        "inputSchema": INPUT,
        "outputSchema": {"type": "object", "properties": FIELDS, "required": list(FIELDS)},
    },
]
RESULTS = {
    "text": {"content": [{"type": "text", "text": "It is so. " * 20}]},
    "record": {"content": [{"type": "text", "text": json.dumps(RECORD)}], "structuredContent": RECORD},
}
ANSWERS = {name: json.dumps({"jsonrpc": "2.0", "id": 0, "result": value}) for name, value in RESULTS.items()}
READY = {name: text.split('"id": 0', 1) for name, text in ANSWERS.items()}


def answer(message: dict[str, Any]) -> str | None:
    """The answer to a message; ``None`` for a notification."""
    if "id" not in message:
        return None
    method, number = message["method"], json.dumps(message["id"])
    if method == "tools/call":
        before, after = READY[message["params"]["name"]]
        return f'{before}"id": {number}{after}'
    if method == "initialize":
        info = {"name": "thin", "version": "1"}
        value: Any = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        value = {"tools": [tool for tool in TOOLS if only in (None, tool["name"])]}
    elif method == "ping":
        value = {}
    else:
        error = {"code": -32601, "message": "Method not found"}
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value})


class HTTP(asyncio.Protocol):
    """Enough of HTTP/1.1 for a client that keeps its connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._received = transport, b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].decode("latin-1").lower()
            fields = dict(line.split(":", 1) for line in head.split("\r\n")[1:])
            size = int(fields.get("content-length", 0))
            if len(self._received) < end + 4 + size:
                return
            body, self._received = self._received[end + 4 : end + 4 + size], self._received[end + 4 + size :]
            self._respond(head.partition(" ")[0], body)

    def _respond(self, verb: str, body: bytes) -> None:
        status, text = "405 Method Not Allowed", ""
        if verb == "delete":
            status = "200 OK"
        elif verb == "post":
            found = answer(json.loads(body))
            status, text = ("202 Accepted", "") if found is None else ("200 OK", found)
        content = text.encode()
        self._transport.write(
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nmcp-session-id: s\r\n"
            f"content-length: {len(content)}\r\n\r\n".encode()
            + content
        )


async def http(number: int) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(HTTP, "127.0.0.1", 0) for _ in range(number)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


kind, *more = sys.argv[1:]
number = int(more.pop(0)) if kind == "http" else 1
only = more[0] if more else None
if kind == "http":
    asyncio.run(http(number))
else:
    for line in sys.stdin:
        said = answer(json.loads(line))
        if said is not None:
            sys.stdout.write(f"{said}\n")
            sys.stdout.flush()
