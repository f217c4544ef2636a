"""Write docs/protocol/: JSON Schemas of the call protocol's frames and specs, and an AsyncAPI 3 document of a hub.

Both are made of the schemas that the code has: ``python tools/protocol.py`` writes them, ``--check`` tells whether
they are up to date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operad import CallEventMap
from operad.operations import OPERATION_SPEC_SCHEMA
from operad_websocket._schemas import LINK_FRAMES
from operad_websocket.config import MAX_PAYLOAD, SUBPROTOCOL

FOLDER = Path(__file__).parents[1] / "docs" / "protocol"

SPOKE = {
    "call.requested": "Ask for an operation.",
    "call.responded": "Answer a request, or one item of a stream.",
    "call.error": "A request has failed.",
    "call.aborted": "End a request: the caller wants it no longer, or the handler gives it up.",
    "call.completed": "A stream has ended.",
    "call.credit": "How much more may be sent; of a handler: where it is, and how much it wants.",
    "operad.changed": "Tell, with `to: all:operad.changed`, that other operations are served than before.",
    "link.register": "Serve addresses.",
    "link.unregister": "Serve addresses no longer.",
    "link.topics": "Ask which of some addresses a serving instance has registered.",
    "link.authenticate": "Who connects, in the first frame.",
}
"""What a spoke sends."""
HUB = {
    **{name: text for name, text in SPOKE.items() if not name.startswith("link.")},
    "link.registered": "What is served now, and what is refused.",
    "link.topics": "Those of the addresses that the instance has registered.",
    "link.error": "A frame that cannot be used and is of no request.",
    "link.authenticated": "Who the hub takes the spoke for.",
}
"""What a hub sends."""


def plain(value: Any) -> Any:
    """Read-only mappings as dicts."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def schemas() -> dict[str, Any]:
    """The schema of each frame, by type."""
    return {name: plain(schema) for name, schema in {**CallEventMap, **LINK_FRAMES}.items()}


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3.0 document of a hub."""
    messages = {
        name: {"name": name, "title": name, "contentType": "application/json", "payload": {"$ref": f"{name}.json"}}
        for name in schemas()
    }
    refs = {name: {"$ref": f"#/components/messages/{name}"} for name in messages}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "The call protocol of operad, on a WebSocket hub",
            "version": "1.0.0",
            "description": f"Subprotocol {SUBPROTOCOL}, or none. One event per message, text or binary, JSON in "
            f"UTF-8, {MAX_PAYLOAD} bytes at most unless the hub is configured otherwise. See protocol.md.",
        },
        "defaultContentType": "application/json",
        "servers": {"local": {"host": "127.0.0.1:8765", "protocol": "ws"}},
        "channels": {"hub": {"address": "/", "messages": refs}},
        "operations": {
            "fromSpoke": operation("receive", SPOKE, "What a hub takes from a spoke."),
            "toSpoke": operation("send", HUB, "What a hub sends to a spoke."),
        },
        "components": {"messages": messages},
    }


def operation(action: str, frames: Mapping[str, str], summary: str) -> dict[str, Any]:
    """One direction."""
    return {
        "action": action,
        "summary": summary,
        "channel": {"$ref": "#/channels/hub"},
        "messages": [{"$ref": f"#/channels/hub/messages/{name}"} for name in frames],
    }


def files() -> dict[str, str]:
    """What the folder holds, by file name."""
    documents = {f"{name}.json": schema for name, schema in schemas().items()}
    documents |= {"asyncapi.json": asyncapi(), "operation.json": plain(OPERATION_SPEC_SCHEMA)}
    return {name: json.dumps(value, indent=2, ensure_ascii=False) + "\n" for name, value in documents.items()}


def outdated() -> list[str]:
    """The files that are missing, differ, or should not be there."""
    wanted = files()
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    return sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))


def main() -> int:
    """Write the folder, or check it."""
    if "--check" in sys.argv[1:]:
        print("\n".join(outdated()))
        return 1 if outdated() else 0
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        path.unlink()
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
