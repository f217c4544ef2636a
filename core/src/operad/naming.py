"""Operations of a registry and fields of their inputs, by the names that Python code has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from operad.names import attribute_names, keyword_names
from operad.operations import OperationSpec

_Tables = dict[str, dict[str, str]]


class Listed(Protocol):
    """What has operations; ``get_spec(id)`` is used where it is there."""

    def specs(self) -> Sequence[OperationSpec]:
        """All of them."""


_known: WeakKeyDictionary[Any, tuple[Sequence[OperationSpec], _Tables]] = WeakKeyDictionary()


def attributes_of(registry: Listed, namespace: str) -> dict[str, str]:
    """The names of a namespace's operations by attribute, made once for each state of the registry."""
    specs = registry.specs()
    tables = _tables(registry, specs)
    table = tables.get(namespace)
    if table is None:
        tables[namespace] = table = attribute_names(spec.name for spec in specs if spec.namespace == namespace)
    return table


def _tables(registry: Listed, specs: Sequence[OperationSpec]) -> _Tables:
    try:
        known, tables = _known.get(registry, (None, {}))
        if known is not specs:
            tables = {}
            _known[registry] = (specs, tables)
    except TypeError:  # an application's own registry need be neither hashable nor weakly referenced
        return {}
    return tables


def operation_name(registry: Listed, namespace: str, attribute: str) -> str:
    """The name of the operation that an attribute stands for; what stands for none is the name itself."""
    if _spec(registry, f"{namespace}.{attribute}") is not None:
        return attribute
    return attributes_of(registry, namespace).get(attribute, attribute)


def input_of(registry: Listed, operation_id: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The input object that keyword arguments make; only those that end in ``_`` may stand for other names."""
    if not any(name.endswith("_") for name in fields):
        return fields
    spec = _spec(registry, operation_id)
    names = {} if spec is None else keyword_names(properties_of(spec))
    return {names.get(name, name): value for name, value in fields.items()}


def properties_of(spec: OperationSpec) -> dict[str, Any]:
    """The properties of an operation's input, wherever its schema has them."""
    schema = spec.input_schema.bundled()
    definitions = schema.get("$defs", {}) if isinstance(schema, Mapping) else {}
    return object_members(schema, definitions, branches=True)[0]


def object_members(
    schema: Any, definitions: Mapping[str, Any], *, branches: bool = False
) -> tuple[dict[str, Any], set[str]]:
    """The properties of an exported object schema and which are required, with what ``$ref`` and ``allOf`` bring.

    Args:
        schema: as `Schema.bundled` answers it.
        definitions: what its references by ``#/$defs/`` mean.
        branches: those of ``anyOf`` and ``oneOf`` too; what is required there is not required of all.
    """
    found: dict[str, Any] = {}
    required: set[str] = set()
    waiting, seen = [(schema, True)], set()
    while waiting:
        node, is_sure = waiting.pop(0)
        if not isinstance(node, Mapping):
            continue
        for name, value in node.get("properties", {}).items():
            found.setdefault(name, value)
        if is_sure:
            required.update(node.get("required", ()))
        reference = node.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            waiting.append((definitions.get(definition_name(reference)), is_sure))
        waiting.extend((part, is_sure) for part in node.get("allOf", ()))
        if branches:
            waiting.extend((part, False) for key in ("anyOf", "oneOf") for part in node.get(key, ()))
    return found, required


def definition_name(reference: str) -> str:
    """The name that a reference by ``#/$defs/`` of an exported schema has there."""
    from urllib.parse import unquote

    return unquote(reference.removeprefix("#/$defs/")).replace("~1", "/").replace("~0", "~")


def _spec(registry: Any, operation_id: str) -> OperationSpec | None:
    get_spec = getattr(registry, "get_spec", None)
    found: OperationSpec | None = None if get_spec is None else get_spec(operation_id)
    return found
