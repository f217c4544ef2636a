"""Parameters, in one form for all versions of OpenAPI."""

from __future__ import annotations

import re
from typing import Any

from operad.plugin import record
from operad_openapi._document.document import Document, Json, PointerError
from operad_openapi._document.listing import NotUsableError, RawOperation

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")  # RFC 9110, 5.6.2
_LOCATIONS = ("path", "query", "header", "cookie", "querystring")
# The first three by the specification; the others belong to the connection, and could smuggle a second request.
_NOT_INPUTS = frozenset(
    {"accept", "content-type", "authorization", "host", "content-length", "transfer-encoding", "connection"}
    | {"keep-alive", "upgrade", "te", "trailer", "proxy-authorization", "proxy-connection"}
)


@record
class Parameter:
    """A parameter, in one form for all versions of OpenAPI."""

    name: str
    location: str
    """``path``, ``query``, ``header``, ``cookie`` or ``querystring``."""
    schema: Any = True
    required: bool = False
    style: str | None = None
    """``None`` for the default of the location."""
    explode: bool | None = None
    """``None`` for the default of the style."""
    allow_reserved: bool = False
    keeps_slashes: bool = False
    """Whether the value of a path parameter may have several segments."""
    content_type: str | None = None
    """The media type of a ``content`` parameter; ``None`` for a parameter with ``schema``."""
    collection_format: str | None = None
    """``collectionFormat`` of Swagger 2.0, which replaces ``style`` and ``explode``; ``None`` for 3.x."""
    item_formats: tuple[str, ...] = ()
    """Swagger 2.0's collection formats of arrays within the array, outermost first."""
    description: str = ""
    deprecated: bool = False


def is_token(name: str) -> bool:
    """Return True if ``name`` can be the name of a header: a token (RFC 9110, 5.6.2)."""
    return _TOKEN.match(name) is not None


def is_reserved_header(name: str) -> bool:
    """Return True if a header is never an input, because the body, a credential or the connection sets it."""
    return name.lower() in _NOT_INPUTS


def unusable(name: str, location: str) -> str | None:
    """Return the reason why a parameter cannot be sent, or ``None`` if it can."""
    if location in ("body", "formData"):
        return None
    if location not in _LOCATIONS:
        return f'parameter "{name:.100}": in: expected one of {", ".join(_LOCATIONS)}, got "{location:.100}"'
    if location == "header" and not is_token(name):
        return f'parameter {name!r:.100}: expected a name that a header can have: letters, digits, "-" or "_"'
    return None


def parameters_of(document: Document, operation: RawOperation) -> tuple[list[Parameter], list[Json]]:
    """Return the parameters that are inputs, and Swagger 2.0's body and form parameters unchanged.

    Headers that are never inputs, and optional parameters that cannot be sent, are left out.

    Raises:
        NotUsableError: a required parameter cannot be sent, or a parameter has no name or is a broken reference.
        PointerError: the media type of a parameter is a broken reference.
    """
    merged: dict[tuple[str, str], Json] = {}
    for source in (operation.item.get("parameters"), operation.node.get("parameters")):
        for index, raw in enumerate(source if isinstance(source, list) else ()):
            try:
                node = document.resolve(raw)
                if not isinstance(node, dict) or not isinstance(node.get("name"), str):
                    got = "one without" if isinstance(node, dict) else type(node).__name__
                    raise NotUsableError(f"expected an object with a name, got {got}")
            except (PointerError, NotUsableError) as error:
                # It may be required: without it, a request could be wrong.
                raise NotUsableError(f"parameter {index}: {error}") from error
            merged[(node["name"], str(node.get("in")))] = node
    parameters: list[Parameter] = []
    body: list[Json] = []
    for (name, location), node in merged.items():
        if location in ("body", "formData"):
            body.append(node)
        elif reason := unusable(name, location):
            if node.get("required") is True:
                raise NotUsableError(reason)
        elif location != "header" or not is_reserved_header(name):
            parameters.append(normal_parameter(node, document.version, document))
    return parameters, body


def normal_parameter(node: Json, version: str, document: Document | None = None) -> Parameter:
    """Return a parameter object of OpenAPI ``version`` as a `Parameter`.

    A reference in its ``content`` is resolved in ``document``, if that is not ``None``. Raises `PointerError` if
    the reference is broken.
    """
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
    if isinstance(content, dict) and isinstance(media_type := next(iter(content), None), str):
        media = content[media_type]
        media = document.resolve(media) if document is not None else media
        schema = media.get("schema", True) if isinstance(media, dict) else True
        return Parameter(**common, schema=schema, content_type=media_type)
    return Parameter(
        **common,
        schema=node.get("schema", True),
        style=node.get("style") if isinstance(node.get("style"), str) else None,
        explode=node.get("explode") if isinstance(node.get("explode"), bool) else None,
        allow_reserved=node.get("allowReserved") is True,
    )


SWAGGER_NOT_SCHEMA = {"name", "in", "required", "collectionFormat", "allowEmptyValue", "description"}


def _swagger_parameter(node: Json, common: Json) -> Parameter:
    schema = {key: value for key, value in node.items() if key not in SWAGGER_NOT_SCHEMA}
    formats: list[str] = []
    items = node.get("items")
    while isinstance(items, dict) and items.get("type") == "array" and len(formats) < 16:
        formats.append(str(items.get("collectionFormat", "csv")))
        items = items.get("items")
    collection = str(node.get("collectionFormat", "csv"))
    return Parameter(**common, schema=schema, collection_format=collection, item_formats=tuple(formats))
