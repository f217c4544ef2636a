"""The JSON Schemas of the events of the call protocol, and a check of events against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from operad.context import LONGEST_KEY
from operad.transports import Event
from operad_calls.protocol import ABORTED, CHANGED, COMPLETED, CREDIT, ERROR, MAX_ID_LENGTH, REQUESTED, RESPONDED

_DRAFT_7 = "http://json-schema.org/draft-07/schema#"
_ID = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
_MILLISECONDS = {"type": "number", "description": "epoch ms"}
_IDENTITY = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "scopes": {"type": "array", "items": {"type": "string"}},
        "resources": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
    },
    "required": ["id", "scopes"],
}
_ENVELOPE = {
    "type": "object",
    "properties": {
        "data": {},
        "meta": {"type": "object", "properties": {"source": {"type": "string"}}, "required": ["source"]},
    },
    "required": ["data", "meta"],
}


def _event_schema(type: str, required: Mapping[str, Any], optional: Mapping[str, Any]) -> dict[str, Any]:
    required = {"requestId": _ID, **required}
    payload = {"type": "object", "properties": {**required, **optional}, "required": list(required)}
    return _frame_schema(type, {"type": {"const": type}, "id": _TEXT, "payload": payload})


def _frame_schema(type: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": type,
        "type": "object",
        "properties": properties,
        "required": ["type", "payload"],
    }


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}


def _described(schema: Mapping[str, Any], description: str) -> Mapping[str, Any]:
    return {**schema, "description": description}


_HANDLER = _described(_TEXT, "the handler's inbox, inbox:<id>; on a broker")
_SENDER = _described(_TEXT, "on a broker: the sender's inbox, inbox:<id>")

CallEventMap: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        REQUESTED: _event_schema(
            REQUESTED,
            {"operationId": _TEXT, "input": {}},
            {
                "parentRequestId": _TEXT,
                "deadline": _MILLISECONDS,
                "identity": _IDENTITY,
                "timeoutMs": {"type": "number", "minimum": 0},
                "replyTo": _described(_TEXT, "the caller's inbox, inbox:<id>; a hub sets it"),
                "credit": _described({"type": "integer", "minimum": 1}, "for a stream: its first total of items"),
                "creditBytes": _described(_COUNT, "the first totalBytes; without it bytes are not counted"),
                "sentBytes": _described(_COUNT, "of a request above 64 KiB: its own size"),
                "traceparent": _TEXT,
                "tracestate": _TEXT,
                "baggage": _TEXT,
                "delegation": {"type": "string", "description": "a compact JWS, RFC 7515"},
                "idempotencyKey": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
            },
        ),
        RESPONDED: _event_schema(
            RESPONDED,
            {"output": _ENVELOPE},
            {
                "seq": _described(_COUNT, "the item's number, from 0"),
                "replyTo": _HANDLER,
                "sentBytes": _described(_COUNT, "of all items so far, this one included"),
            },
        ),
        ERROR: _event_schema(ERROR, {"code": _TEXT, "message": _TEXT}, {"details": {}}),
        ABORTED: _event_schema(ABORTED, {}, {"replyTo": _SENDER}),
        COMPLETED: _event_schema(COMPLETED, {"count": _described(_COUNT, "items in all")}, {}),
        CREDIT: _event_schema(
            CREDIT,
            {"total": _described(_COUNT, "from a caller: items that may be sent in all")},
            {
                "totalBytes": _described(_COUNT, "from a caller: bytes that may be sent in all"),
                "wantsBytes": _described(_COUNT, "from a handler: bytes that it asks to send in all"),
                "replyTo": _SENDER,
            },
        ),
        CHANGED: _frame_schema(
            CHANGED,
            {
                "type": {"const": CHANGED},
                "id": _TEXT,
                "to": _described({"const": f"all:{CHANGED}"}, "to a hub: the address"),
                "payload": {"type": "object", "properties": {"instance": _TEXT}},
            },
        ),
    }
)
"""The JSON Schema of each event of the call protocol, by the type of the event."""


class FrameCheck:
    """A check of events against the schemas of their types. An event of an unknown type is accepted.

    The schemas are compiled with fastjsonschema as draft 7, because they use no newer keywords.

    Args:
        schemas: the schemas by type of event. Python code is generated from them, so they must be trusted.

    Raises:
        ModuleNotFoundError: fastjsonschema is not installed.
    """

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]] = CallEventMap) -> None:
        import fastjsonschema

        self._invalid: type[Exception] = fastjsonschema.JsonSchemaValueException
        self._checks: dict[str, Callable[[Any], Any]] = {
            type_: fastjsonschema.compile({**schema, "$schema": _DRAFT_7}, use_default=False, use_formats=False)
            for type_, schema in schemas.items()
        }

    def error(self, event: Event) -> str | None:
        """Return a message that states why an event is invalid, or ``None`` if it is valid."""
        check = self._checks.get(event["type"])
        if check is not None:
            try:
                check(event)
            except self._invalid as error:
                return f"{event['type']}: {error}"
        return None
