"""Output schemas of operations, and of the items of their streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operad_openapi._document.contents import response_content, success_media, success_responses
from operad_openapi._document.document import Document, Json, PointerError
from operad_openapi._document.listing import RawOperation
from operad_openapi._document.mediatypes import EVENT_STREAM, JSON, essence, is_json
from operad_openapi._document.schemas import SchemaView

# Draft 4, and so OpenAPI 3.0, has no other way to write null alone.
_NULL: Json = {"enum": [None]}


def output_schema(document: Document, raw: RawOperation, view: SchemaView) -> Any:
    """Return the union of the schemas of an operation's `success_responses`.

    HEAD, 204 and 205 have the schema of null, texts the schema of a string. Returns ``True`` if a response
    allows any value or is a broken reference, or if no successful response is declared.
    """
    if raw.method == "HEAD":
        return _NULL
    unique: list[Any] = []
    for status, node in success_responses(raw):
        try:
            schemas = _body_schemas(status, response_content(document, raw, node), view)
        except PointerError:
            return True
        for schema in schemas:
            if schema is True or schema == {}:
                return True
            if schema not in unique:
                unique.append(schema)
    if not unique:
        return True
    return unique[0] if len(unique) == 1 else {"anyOf": unique}


def _body_schemas(status: str, content: Mapping[str, Json], view: SchemaView) -> list[Any]:
    if status in ("204", "205"):
        return [_NULL]
    found = [
        view.schema(media.get("schema", True))
        for media_type, media in content.items()
        if is_json(essence(media_type))
    ]
    if found:
        return found
    kinds = [essence(media_type) for media_type in content]
    return [{"type": "string"}] if kinds and all(kind.startswith("text/") for kind in kinds) else [True]


def item_schema(document: Document, raw: RawOperation, stream_type: str, view: SchemaView) -> Any:
    """Return the schema of one item of a stream: ``itemSchema`` (OpenAPI 3.2), else ``schema``, else ``True``.

    An item of ``text/event-stream`` is the data of an event, so only that part of ``itemSchema`` is returned.
    """
    for _, media_type, media in success_media(document, raw):
        if essence(media_type) == stream_type or (stream_type == JSON and is_json(essence(media_type))):
            if "itemSchema" not in media:
                return view.schema(media.get("schema", True))
            schema = view.schema(media["itemSchema"])
            return _event_data(schema, view) if essence(media_type) == EVENT_STREAM else schema
    return True


def is_text_item(schema: Any, view: SchemaView) -> bool:
    """Return True if the schema of a stream's items has the type string; such items are not parsed as JSON."""
    try:
        node = view.resolve(schema)
    except PointerError:
        return False
    return isinstance(node, dict) and node.get("type") == "string"


def _event_data(schema: Any, view: SchemaView) -> Any:
    """Return the schema of an event's data, given the schema of the whole event (OpenAPI 3.2)."""
    try:
        node = view.resolve(schema)
        properties = node.get("properties") if isinstance(node, dict) else None
        data = properties.get("data") if isinstance(properties, dict) else None
        data = view.resolve(data)
    except PointerError:
        return True
    if not isinstance(data, dict):
        return True
    if is_json(essence(str(data.get("contentMediaType", "")))):
        return data.get("contentSchema", True)
    return data
