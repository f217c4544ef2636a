"""The Python names of operations and of the fields of their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from operad.names import attribute_names, keyword_names
from operad.operations import OperationSpec
from operad_schema import object_members

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


def _spec(registry: Any, operation_id: str) -> OperationSpec | None:
    get_spec = getattr(registry, "get_spec", None)
    found: OperationSpec | None = None if get_spec is None else get_spec(operation_id)
    return found
