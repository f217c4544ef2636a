"""One normal form of operations, whatever the version of the document.

`list_operations` walks the paths once and looks at no more than it must; `parameters_of`, `body_of`,
`responses_of` and `servers_of` look at the rest when an operation is first used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from operad_openapi._document import Document, Json, PointerError
from operad_openapi._serialize import Parameter, essence

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_LOCATIONS = ("path", "query", "header", "cookie", "querystring")
# The first three by the specification; the others belong to the connection, and could smuggle a second request.
_NOT_INPUTS = frozenset(
    {"accept", "content-type", "authorization", "host", "content-length", "transfer-encoding", "connection"}
    | {"keep-alive", "upgrade", "te", "trailer", "proxy-authorization", "proxy-connection"}
)
STREAM_TYPES = frozenset(
    {
        "text/event-stream",
        "application/jsonl",
        "application/x-jsonl",
        "application/jsonlines",
        "application/x-jsonlines",
        "application/ndjson",
        "application/x-ndjson",
        "application/json-seq",
        "application/geo+json-seq",
    }
)
EVENT_STREAM = "text/event-stream"


_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


class NotUsableError(ValueError):
    """A part of the document cannot be used; the message says which and why."""


@attrs.frozen(eq=False)
class RawOperation:
    """An operation as the document has it."""

    method: str
    """Upper case."""
    path: str
    item: Json
    """The path item."""
    node: Json
    """The operation object."""
    pointer: str
    """Where it stands: ``#/paths/~1pets/get``."""

    @property
    def placeholders(self) -> list[str]:
        """The names in braces of its path."""
        return _PLACEHOLDER.findall(self.path.partition("#")[0].partition("?")[0]) if "{" in self.path else []


@attrs.frozen
class Diagnostic:
    """Something of a document that could not be used, and why."""

    pointer: str
    """Where in the document: a JSON pointer."""
    reason: str
    severity: str = "error"
    """``error``: an operation is missing; ``warning``: it is there, with a defect of the document."""

    def __str__(self) -> str:
        return f"{self.pointer}: {self.reason}"


def list_operations(document: Document) -> Iterator[RawOperation | Diagnostic]:
    """The operations of a document, and what cannot be one."""
    paths = document.root.get("paths")
    if paths is None:
        return
    if not isinstance(paths, dict):
        yield Diagnostic("#/paths", f"expected an object, got {type(paths).__name__}")
        return
    for path, raw_item in paths.items():
        if path.startswith("x-"):
            continue
        pointer = "#/paths/" + path.replace("~", "~0").replace("/", "~1")
        if not path.startswith("/"):
            yield Diagnostic(pointer, 'a path has to start with "/"')
            continue
        try:
            item = _path_item(document, raw_item)
        except (PointerError, NotUsableError) as error:
            yield Diagnostic(pointer, str(error))
            continue
        yield from _item_operations(path, item, pointer)


def _path_item(document: Document, raw: Any) -> Json:
    item = document.resolve(raw)
    if not isinstance(item, dict):
        raise NotUsableError(f"expected an object, got {type(item).__name__}")
    if item is not raw and len(raw) > 1:  # 3.x: members beside a path item's $ref are added to it
        return {**item, **{key: value for key, value in raw.items() if key != "$ref"}}
    return item


def _item_operations(path: str, item: Json, pointer: str) -> Iterator[RawOperation | Diagnostic]:
    for key, node in item.items():
        if key in METHODS:
            if isinstance(node, dict):
                yield RawOperation(key.upper(), path, item, node, f"{pointer}/{key}")
            else:
                yield Diagnostic(f"{pointer}/{key}", f"expected an object, got {type(node).__name__}")
        elif key == "additionalOperations" and isinstance(node, dict):
            for method, more in node.items():
                if isinstance(more, dict) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", method):
                    yield RawOperation(method, path, item, more, f"{pointer}/{key}/{method}")
                else:
                    yield Diagnostic(f"{pointer}/{key}/{method}", "expected a method name and an operation object")


# --- parameters --------------------------------------------------------------------------------------


def parameters_of(document: Document, operation: RawOperation) -> tuple[list[Parameter], list[Json], list[str]]:
    """The parameters that are inputs, Swagger 2.0's body and form parameters as they stand, and warnings.

    Raises:
        NotUsableError: a required parameter, or one of the path, cannot be used.
    """
    merged: dict[tuple[str, str], Json] = {}
    warnings: list[str] = []
    for source in (operation.item.get("parameters"), operation.node.get("parameters")):
        for index, raw in enumerate(source if isinstance(source, list) else ()):
            try:
                node = document.resolve(raw)
                if not isinstance(node, dict) or not isinstance(node.get("name"), str):
                    raise NotUsableError(f"parameter {index} has no name")
            except (PointerError, NotUsableError) as error:
                # Without it the request may still be right, unless it is required; nobody can know.
                raise NotUsableError(f"parameter {index}: {error}") from error
            merged[(node["name"], str(node.get("in")))] = node
    parameters: list[Parameter] = []
    body: list[Json] = []
    for (name, location), node in merged.items():
        if location in ("body", "formData"):
            body.append(node)
        elif location not in _LOCATIONS:
            warnings.append(f'parameter "{name}" is in "{location}", which is unknown; it is left out')
        elif location != "header" or name.lower() not in _NOT_INPUTS:
            parameters.append(normal_parameter(node, document.version, document))
    return parameters, body, warnings


def normal_parameter(node: Json, version: str, document: Document | None = None) -> Parameter:
    """A parameter object of any version in normal form."""
    location = node["in"]
    common: Json = {
        "name": node["name"],
        "location": location,
        "required": location == "path" or node.get("required") is True,
        "description": node.get("description") if isinstance(node.get("description"), str) else "",
        "deprecated": node.get("deprecated") is True,
    }
    if version.startswith("2"):
        return _swagger_parameter(node, common)
    content = node.get("content")
    if isinstance(content, dict) and content:
        media_type, media = next(iter(content.items()))
        media = document.resolve(media) if document is not None else media
        schema = media.get("schema", True) if isinstance(media, dict) else True
        return Parameter(**common, schema=schema, content_type=media_type)
    return Parameter(
        **common,
        schema=node.get("schema", True),
        style=node.get("style"),
        explode=node.get("explode") if isinstance(node.get("explode"), bool) else None,
        allow_reserved=node.get("allowReserved") is True,
    )


_SWAGGER_NOT_SCHEMA = {"name", "in", "required", "collectionFormat", "allowEmptyValue", "description"}


def _swagger_parameter(node: Json, common: Json) -> Parameter:
    schema = {key: value for key, value in node.items() if key not in _SWAGGER_NOT_SCHEMA}
    formats: list[str] = []
    items = node.get("items")
    while isinstance(items, dict) and items.get("type") == "array" and len(formats) < 16:
        formats.append(str(items.get("collectionFormat", "csv")))
        items = items.get("items")
    collection = str(node.get("collectionFormat", "csv"))
    return Parameter(**common, schema=schema, collection_format=collection, item_formats=tuple(formats))


# --- bodies ------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Body:
    """A request body in normal form."""

    content: dict[str, Json]
    """Media type as written -> media type object (``schema``, ``encoding``)."""
    required: bool
    description: str = ""


def body_of(document: Document, operation: RawOperation, swagger_parameters: list[Json]) -> Body | None:
    """The body of an operation, or ``None``. Raises `NotUsableError`, `PointerError`."""
    if document.version == "2.0":
        return _swagger_body(document, operation, swagger_parameters)
    raw = operation.node.get("requestBody")
    if raw is None:
        return None
    node = document.resolve(raw)
    if not isinstance(node, dict) or not isinstance(node.get("content"), dict):
        raise NotUsableError("requestBody: expected an object with content")
    content = {media_type: _media(document, media) for media_type, media in node["content"].items()}
    if not content:
        return None
    description = node.get("description")
    return Body(content, node.get("required") is True, description if isinstance(description, str) else "")


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
        schema = {key: value for key, value in node.items() if key not in _SWAGGER_NOT_SCHEMA}
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


def response_content(document: Document, operation: RawOperation, node: Any) -> dict[str, Json]:
    """Media types and their objects of one response. Raises `PointerError`."""
    response = document.resolve(node)
    if not isinstance(response, dict):
        return {}
    if document.version != "2.0":
        content = response.get("content")
        return {k: _media(document, v) for k, v in content.items()} if isinstance(content, dict) else {}
    schema = response.get("schema")
    if schema is None:
        return {}
    if isinstance(schema, dict) and schema.get("type") == "file":
        return {"application/octet-stream": {}}
    produces = operation.node.get("produces", document.root.get("produces"))
    media_types = produces if isinstance(produces, list) and produces else ["application/json"]
    return {str(media_type): {"schema": schema} for media_type in media_types}


def responses_of(operation: RawOperation) -> Mapping[str, Any]:
    """Status -> response object, as they stand."""
    responses = operation.node.get("responses")
    return responses if isinstance(responses, dict) else {}


def success_responses(operation: RawOperation) -> list[tuple[str, Any]]:
    """The 2xx responses, exact ones before ``2XX``; ``default`` where there is no 2xx at all."""
    responses = responses_of(operation)
    found = [(status, node) for status, node in responses.items() if str(status)[:1] == "2"]
    if not found and "default" in responses:
        found = [("default", responses["default"])]
    return sorted(found, key=lambda item: str(item[0])) if len(found) > 1 else found


def success_media(document: Document, operation: RawOperation) -> list[tuple[str, str, Json]]:
    """``(status, media type, media object)`` of every 2xx response; broken references are left out."""
    found: list[tuple[str, str, Json]] = []
    for status, node in success_responses(operation):
        try:
            content = response_content(document, operation, node)
        except PointerError:
            continue
        found += [(status, media_type, media) for media_type, media in content.items()]
    return found
