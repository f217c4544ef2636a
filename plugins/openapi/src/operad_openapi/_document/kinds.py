"""Discriminators of a base schema: find the kinds that no reference of the base leads to.

A mapping names them, or they are those that include the base in their ``allOf``, at any distance, and whose names
are the tags (OpenAPI 3.1.1, "Discriminator Object"; 2.0, "Schema Object", where some say theirs by
``x-ms-discriminator-value``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from operad_openapi._document.document import Document, Json, PointerError, pointer_tokens


def is_base(node: Json) -> bool:
    """Return True if a schema has a discriminator, and no alternatives of its own."""
    return "discriminator" in node and "oneOf" not in node and "anyOf" not in node


def mapped_kinds(node: Json) -> Iterator[str]:
    """Yield references to the schemas that the mapping of a discriminator names."""
    given = node.get("discriminator")
    mapping = given.get("mapping") if isinstance(given, dict) else None
    for target in mapping.values() if isinstance(mapping, dict) else ():
        if isinstance(target, str):
            yield target if target.startswith("#") else f"#/components/schemas/{target}"


def heirs(document: Document, reference: str) -> list[str]:
    """Yield references to the named schemas that have one in their ``allOf``, in the spelling of its `pointer`."""
    found: dict[str, None] = {}
    waiting = [reference]
    while waiting:
        for heir in _children(document).get(waiting.pop(), ()):
            if heir not in found:
                found[heir] = None
                waiting.append(heir)
    return list(found)


def tags_of_2_0(document: Document, reference: str) -> dict[str, str]:
    """Return the mapping of a base in a 2.0 document, from ``x-ms-discriminator-value`` of its heirs."""
    mapping = {}
    for heir in (reference, *heirs(document, reference)):
        node = document.lookup(heir)
        parts = [node, *(part for part in node.get("allOf", ()) if isinstance(part, dict))]
        for part in parts:
            if isinstance(tag := part.get("x-ms-discriminator-value"), str):
                mapping[tag] = heir
    return mapping


def _children(document: Document) -> dict[str, list[str]]:
    if document.children is None:
        document.children = {}
        place = ("definitions",) if document.version == "2.0" else ("components", "schemas")
        schemas: Any = document.root
        for token in place:
            schemas = schemas.get(token) if isinstance(schemas, dict) else None
        for name, schema in schemas.items() if isinstance(schemas, dict) else ():
            members = schema.get("allOf") if isinstance(schema, dict) else None
            for member in members if isinstance(members, list) else ():
                if isinstance(member, dict) and isinstance(reference := member.get("$ref"), str):
                    document.children.setdefault(_plain(reference), []).append(pointer((*place, str(name))))
    return document.children


def pointer(tokens: Iterable[str]) -> str:
    """Return the reference to a location, in its canonical spelling."""
    return "#" + "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)


def _plain(reference: str) -> str:
    try:
        return pointer(pointer_tokens(reference.removeprefix("#")))
    except PointerError:
        return reference
