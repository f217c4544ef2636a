"""Find the variants of a base schema that has a discriminator but no references to its variants.

The mapping of the discriminator names the variants, or they include the base in their ``allOf``, directly or
through other schemas, and their names are the values of the discriminator (OpenAPI 3.1.1, "Discriminator Object";
2.0, "Schema Object"). In some 2.0 documents, ``x-ms-discriminator-value`` of a variant is its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from operad_openapi._document.document import Document, Json, PointerError, pointer_tokens


def is_base(node: Json) -> bool:
    """Return True if a schema has a discriminator, but neither ``oneOf`` nor ``anyOf``."""
    return "discriminator" in node and "oneOf" not in node and "anyOf" not in node


def mapped_kinds(node: Json) -> Iterator[str]:
    """Yield references to the schemas in the mapping of a schema's discriminator."""
    given = node.get("discriminator")
    mapping = given.get("mapping") if isinstance(given, dict) else None
    for target in mapping.values() if isinstance(mapping, dict) else ():
        if isinstance(target, str):
            yield target if target.startswith("#") else f"#/components/schemas/{target}"


def heirs(document: Document, reference: str) -> list[str]:
    """Return references to the named schemas that have ``reference`` in their ``allOf``, directly or indirectly.

    All references are spelled as `pointer` spells them.
    """
    found: dict[str, None] = {}
    waiting = [reference]
    while waiting:
        for heir in _children(document).get(waiting.pop(), ()):
            if heir not in found:
                found[heir] = None
                waiting.append(heir)
    return list(found)


def tags_of_2_0(document: Document, reference: str) -> dict[str, str]:
    """Return references to a base in a 2.0 document and to its `heirs`, keyed by ``x-ms-discriminator-value``."""
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
    """Return the reference that consists of ``tokens``, such as ``#/components/schemas/Pet`` (RFC 6901)."""
    return "#" + "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)


def _plain(reference: str) -> str:
    try:
        return pointer(pointer_tokens(reference.removeprefix("#")))
    except PointerError:
        return reference
