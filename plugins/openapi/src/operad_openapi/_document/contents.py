"""Bodies of requests and responses, in one form for all versions of OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from operad_openapi._document.document import Document, Json, PointerError
from operad_openapi._document.listing import NotUsableError, RawOperation
from operad_openapi._document.mediatypes import essence
from operad_openapi._document.parameters import SWAGGER_NOT_SCHEMA

# --- bodies ------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class Body:
    """A request body, in one form for all versions of OpenAPI."""

    content: dict[str, Json]
    """Media type as written -> media type object (``schema``, ``encoding``)."""
    required: bool
    description: str = ""


def body_of(document: Document, operation: RawOperation, swagger_parameters: list[Json]) -> Body | None:
    """Return the request body of an operation, or ``None`` if the document declares no content for it.

    Args:
        document: the document.
        operation: the operation.
        swagger_parameters: in OpenAPI 2.0, the operation's parameters in ``body`` and ``formData``.

    Raises:
        NotUsableError: ``requestBody`` is not an object with ``content``.
        PointerError: a reference in it has no target, or leads in a circle.
    """
    if document.version == "2.0":
        return _swagger_body(document, operation, swagger_parameters)
    raw = operation.node.get("requestBody")
    if raw is None:
        return None
    node = document.resolve(raw)
    if not isinstance(node, dict) or not isinstance(node.get("content"), dict):
        got = "one without" if isinstance(node, dict) else type(node).__name__
        raise NotUsableError(f'requestBody: expected an object with "content", got {got}')
    content = _content(document, node["content"])
    if not content:
        return None
    description = node.get("description")
    return Body(content, node.get("required") is True, description if isinstance(description, str) else "")


def _content(document: Document, raw: Any) -> dict[str, Json]:
    """Return media type objects by media type, without keys that are not text."""
    if not isinstance(raw, dict):
        return {}
    return {name: _media(document, media) for name, media in raw.items() if isinstance(name, str)}


def _media(document: Document, raw: Any) -> Json:
    media = document.resolve(raw)
    return media if isinstance(media, dict) else {}


def _swagger_body(document: Document, operation: RawOperation, parameters: list[Json]) -> Body | None:
    if not parameters:
        return None
    consumes = operation.node.get("consumes", document.root.get("consumes"))
    media_types = [m for m in consumes if isinstance(m, str)] if isinstance(consumes, list) else []
    whole = [node for node in parameters if node["in"] == "body"]
    if whole:
        node = whole[0]
        media = {"schema": node.get("schema", True)}
        return Body(
            dict.fromkeys(media_types or ["application/json"], media),
            node.get("required") is True,
            str(node.get("description", "")),
        )
    properties: Json = {}
    encoding: Json = {}
    for node in parameters:
        name, kind = node["name"], node.get("type")
        schema = {key: value for key, value in node.items() if key not in SWAGGER_NOT_SCHEMA}
        if kind == "file":
            schema = {**schema, "type": "string", "format": "binary"}
        elif kind == "array":
            encoding[name] = {"collectionFormat": str(node.get("collectionFormat", "csv"))}
        if "description" in node:
            schema["description"] = node["description"]
        properties[name] = schema
    required = [node["name"] for node in parameters if node.get("required") is True]
    has_file = any(node.get("type") == "file" for node in parameters)
    forms = [m for m in media_types if essence(m) in (_FORM, _MULTIPART)]
    if has_file:
        forms = [m for m in forms if essence(m) == _MULTIPART] or [_MULTIPART]
    schema = {"type": "object", "properties": properties, "required": required}
    if not required:
        del schema["required"]
    media = {"schema": schema, "encoding": encoding}
    return Body(dict.fromkeys(forms or [_FORM], media), bool(required))


_FORM, _MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"


# --- responses ---------------------------------------------------------------------------------------


_WITH_CONTENT = frozenset({"content", "schema", "$ref"})


def response_content(document: Document, operation: RawOperation, node: Any) -> dict[str, Json]:
    """Return the media type objects of a response, keyed by media type.

    Raises `PointerError` for a broken reference.
    """
    response = document.resolve(node)
    if not isinstance(response, dict):
        return {}
    if document.version != "2.0":
        content = response.get("content")
        return _content(document, content)
    schema = response.get("schema")
    if schema is None:
        return {}
    if isinstance(schema, dict) and schema.get("type") == "file":
        # What the document produces by default is not the type of a file.
        own = operation.node.get("produces")
        kinds = own if isinstance(own, list) and own else ["application/octet-stream", "*/*"]
        return {str(kind): {} for kind in kinds}
    produces = operation.node.get("produces", document.root.get("produces"))
    media_types = produces if isinstance(produces, list) and produces else ["application/json"]
    return {str(media_type): {"schema": schema} for media_type in media_types}


def responses_of(operation: RawOperation) -> Mapping[str, Any]:
    """Return the response objects of an operation, keyed by status. References are not resolved."""
    responses = operation.node.get("responses")
    return responses if isinstance(responses, dict) else {}


def success_responses(operation: RawOperation) -> list[tuple[str, Any]]:
    """Return status and response object of each 2xx response, ``2XX`` last.

    Without a 2xx response, the list has only ``default``; it is empty if ``default`` is missing, too.
    """
    responses = responses_of(operation)
    found = [(status, node) for status, node in responses.items() if str(status)[:1] == "2"]
    if not found and "default" in responses:
        found = [("default", responses["default"])]
    return sorted(found, key=lambda item: str(item[0])) if len(found) > 1 else found


def success_media(document: Document, operation: RawOperation) -> list[tuple[str, str, Json]]:
    """Return ``(status, media type, media type object)`` for each content of the `success_responses`.

    Responses that are broken references are left out.
    """
    found: list[tuple[str, str, Json]] = []
    for status, node in success_responses(operation):
        if isinstance(node, dict) and not node.keys() & _WITH_CONTENT:
            continue  # of a large document, half of them
        try:
            content = response_content(document, operation, node)
        except PointerError:
            continue
        found += [(status, media_type, media) for media_type, media in content.items()]
    return found
