"""Drop the parts of a document that the chosen operations do not use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from operad_openapi._document.document import Document, Json, PointerError, pointer_tokens
from operad_openapi._document.kinds import heirs, is_base, pointer
from operad_openapi._document.listing import METHODS, RawOperation

_KEPT = ("openapi", "swagger", "$self", "jsonSchemaDialect", "info", "servers", "security", "consumes", "produces")
_KEPT_2 = ("host", "basePath", "schemes", "securityDefinitions")
_ROOTS = {"components": 3, "definitions": 2, "parameters": 2, "responses": 2}


def pruned(document: Document, operations: Iterable[RawOperation]) -> Json:
    """Return a new root with only the parts that ``operations`` refer to; the parts themselves are not copied."""
    root: Json = {key: document.root[key] for key in (*_KEPT, *_KEPT_2) if key in document.root}
    components = document.root.get("components")
    if isinstance(components, dict) and "securitySchemes" in components:
        root["components"] = {"securitySchemes": components["securitySchemes"]}
    pending: list[str] = []
    for operation in operations:
        _collect(operation.node, pending)
        _collect({key: value for key, value in operation.item.items() if key not in METHODS}, pending)
    _collect(root, pending)
    done: set[str] = set()
    while pending:
        reference = pending.pop()
        if reference not in done:
            done.add(reference)
            _place(document, reference, root, pending)
    return root


def without_siblings(operation: RawOperation) -> Json:
    """Return a copy of the path item of an operation, without the members that are operations."""
    return {key: value for key, value in operation.item.items() if key not in (*METHODS, "additionalOperations")}


def _collect(node: Any, references: list[str]) -> None:
    """Add the references within ``node``, also those of discriminators, to ``references``; an iterative walk."""
    stack, seen = [node], set()
    while stack:
        current = stack.pop()
        if not isinstance(current, (dict, list)) or id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, list):
            stack.extend(current)
            continue
        reference = current.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            references.append(reference)
        mapping = current.get("mapping")
        if "propertyName" in current and isinstance(mapping, dict):
            references += [
                name if name.startswith("#") else f"#/components/schemas/{name}"
                for name in mapping.values()
                if isinstance(name, str)
            ]
        stack.extend(current.values())


def _place(document: Document, reference: str, root: Json, pending: list[str]) -> None:
    try:
        tokens = pointer_tokens(reference[1:])
        if not tokens:
            return
        # The whole component: pointers into it, and from it to itself, stay right.
        tokens = tokens[: _ROOTS.get(tokens[0], len(tokens))]
        target: Any = document.root
        for token in tokens:
            target = target[int(token) if isinstance(target, list) else token]
    except (PointerError, LookupError, TypeError, ValueError):
        return  # a broken reference stays broken
    node: Any = root
    for token in tokens[:-1]:
        node = node.setdefault(token, {})
        if not isinstance(node, dict):
            return  # an ancestor is in place already
    if node.get(tokens[-1]) is not target:
        node[tokens[-1]] = target
        _collect(target, pending)
        if isinstance(target, dict) and is_base(target):
            pending += heirs(document, pointer(tokens))
