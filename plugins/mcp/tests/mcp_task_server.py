"""A stdio server of 2026-07-28, without the SDK, whose tool becomes a task that plays the states it is given.

Its tasks are in the folder of the first argument, so that they outlive the process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
TASKS = "io.modelcontextprotocol/tasks"
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
    "ttlMs": 0,
    "cacheScope": "private",
}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("play", "heard")]


class Refusal(Exception):
    """A JSON-RPC error."""


def noted(line: str | None = None) -> list[str]:
    """What was asked of the server, with one thing more."""
    file = FOLDER / "heard"
    if line is not None:
        with file.open("a") as log:
            log.write(f"{line}\n")
    return file.read_text().split("\n")[:-1] if file.exists() else []


def called(params: dict[str, Any]) -> dict[str, Any]:
    if params["name"] == "heard":
        return {"resultType": "complete", "content": [], "structuredContent": noted()}
    noted("play")
    if TASKS not in params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"]:
        raise Refusal("the client does not know tasks")
    number = len(list(FOLDER.glob("task*")))
    (FOLDER / f"task{number}").write_text(json.dumps(params["arguments"]["states"]))
    return {"resultType": "task", **state(f"task{number}", {"status": "working"})}


def state(task_id: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"taskId": task_id, "ttlMs": 60_000, "pollIntervalMs": 20, **fields}


def looked(params: dict[str, Any]) -> dict[str, Any]:
    file = FOLDER / params["taskId"]
    if not file.exists():
        raise Refusal("no such task")
    states = json.loads(file.read_text())
    if states[0] == "die":
        file.write_text(json.dumps(states[1:]))
        os._exit(1)
    if len(states) > 1:
        file.write_text(json.dumps(states[1:]))
    return {"resultType": "complete", **state(params["taskId"], states[0])}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "server/discover":
        return DISCOVERED
    if method == "tools/list":
        return {"resultType": "complete", "tools": TOOLS, "ttlMs": 0, "cacheScope": "private"}
    if method == "tools/call":
        return called(params)
    if method == "tasks/get":
        return looked(params)
    noted(f"{method} {json.dumps(params.get('inputResponses'))}")
    return {"resultType": "complete"}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = answer(message["method"], message.get("params") or {})
        except Refusal as refusal:
            reply["error"] = {"code": -32602, "message": str(refusal)}
        print(json.dumps(reply), flush=True)
