"""Security schemes and requirements of a document."""

from __future__ import annotations

from collections.abc import Mapping

from operad_openapi._document.document import Document, Json, PointerError
from operad_openapi._document.listing import RawOperation


def schemes_of(document: Document) -> Json:
    """Return the security schemes of a document, keyed by name, as they are written."""
    if document.version == "2.0":
        schemes = document.root.get("securityDefinitions")
    else:
        components = document.root.get("components")
        schemes = components.get("securitySchemes") if isinstance(components, dict) else None
    return schemes if isinstance(schemes, dict) else {}


def scheme_of(document: Document, name: str) -> Json:
    """Return the security scheme ``name`` in the form of OpenAPI 3; ``{}`` if it does not exist."""
    try:
        scheme = document.resolve(schemes_of(document).get(name))
    except PointerError:
        return {}
    if not isinstance(scheme, dict):
        return {}
    if scheme.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    if scheme.get("type") == "oauth2" and "flow" in scheme:
        flow = {"application": "clientCredentials", "accessCode": "authorizationCode"}.get(
            str(scheme["flow"]), str(scheme["flow"])
        )
        urls = {key: scheme[key] for key in ("tokenUrl", "authorizationUrl", "scopes") if key in scheme}
        return {"type": "oauth2", "flows": {flow: urls}}
    return scheme


Key = tuple[str, str]
"""The location of an API key (``query``, ``header``, ``cookie``) and its name, in lower case for a header."""


def key_of(place: str, name: str) -> Key:
    """Return the `Key` of a parameter, to compare it with API keys."""
    return place, name.lower() if place == "header" else name


def key_parameters(document: Document, operation: RawOperation) -> set[Key]:
    """Return location and name of each API key in the security requirements of an operation."""
    security = operation.node.get("security", document.root.get("security"))
    found = set()
    for alternative in security if isinstance(security, list) else ():
        for name in alternative if isinstance(alternative, Mapping) else ():
            scheme = scheme_of(document, name)
            if scheme.get("type") == "apiKey":
                found.add(key_of(str(scheme.get("in")), str(scheme.get("name"))))
    return found
