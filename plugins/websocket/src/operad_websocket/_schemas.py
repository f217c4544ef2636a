"""The JSON Schemas of frames between a spoke and its hub."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from operad_websocket._authenticating import AUTHENTICATE, AUTHENTICATED
from operad_websocket._desk import ERROR, REGISTER, REGISTERED, TOPICS, UNREGISTER

_TOPIC = {"type": "string", "maxLength": 1_024, "pattern": "^(op|all):.", "description": "an address"}
_TOPICS = {"type": "array", "items": _TOPIC}
_TEXT = {"type": "string"}


def _frame(
    type_: str, required: Mapping[str, Any], optional: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    payload = {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
    }
    return MappingProxyType(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": type_,
            "type": "object",
            "properties": {
                "type": {"const": type_},
                "id": {"description": "returned in the response"},
                "payload": payload,
            },
            "required": ["type", "payload"],
        }
    )


_REFUSED = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"topic": _TEXT, "reason": _TEXT},
        "required": ["topic", "reason"],
    },
    "description": "at most 1,000; an address in neither list is refused too",
}

LINK_FRAMES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        REGISTER: _frame(REGISTER, {"topics": _TOPICS}, {"group": {"type": ["string", "null"]}}),
        UNREGISTER: _frame(UNREGISTER, {"topics": _TOPICS}),
        REGISTERED: _frame(REGISTERED, {"topics": _TOPICS, "refused": _REFUSED}),
        TOPICS: _frame(TOPICS, {"instance": _TEXT, "topics": _TOPICS}),
        ERROR: _frame(ERROR, {"code": _TEXT, "message": _TEXT}),
        AUTHENTICATE: _frame(AUTHENTICATE, {"token": {"type": "string", "maxLength": 16_384}}),
        AUTHENTICATED: _frame(AUTHENTICATED, {"identity": _TEXT}),
    }
)
"""The JSON Schema of each frame for the hub itself, by the type of the frame."""
