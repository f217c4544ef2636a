"""Access requirements that a configuration puts on a source's operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import attrs

from operad._config import structure
from operad.access import AccessControl
from operad.errors import ConfigError
from operad.operations import Operation

_FIELDS = frozenset(field.name for field in attrs.fields(AccessControl))


def access_rules(
    access: AccessControl | Mapping[str, Any] | None, where: str
) -> Callable[[Operation[..., Any]], Operation[..., Any]]:
    """What puts the requirements on an operation. Raises `ConfigError` for an unknown field."""
    if access is None:
        return lambda operation: operation
    rules = _rules(access, f"{where}.access")

    def apply(operation: Operation[..., Any]) -> Operation[..., Any]:
        spec = operation.spec
        for pattern, control in rules:
            if fnmatchcase(spec.name, pattern) or fnmatchcase(spec.id, pattern):
                return attrs.evolve(operation, spec=attrs.evolve(spec, access_control=control))
        return operation

    return apply


def _rules(access: AccessControl | Mapping[str, Any], where: str) -> list[tuple[str, AccessControl]]:
    if isinstance(access, AccessControl):
        return [("*", access)]
    if not isinstance(access, Mapping):
        raise ConfigError(f"{where}: expected a table, got {type(access).__name__}")
    if access and not any(isinstance(value, (Mapping, AccessControl)) for value in access.values()):
        return [("*", _control(access, where))]
    return [(pattern, _control(value, f'{where}."{pattern}"')) for pattern, value in access.items()]


def _control(value: Any, where: str) -> AccessControl:
    if isinstance(value, AccessControl):
        return value
    try:
        return structure(AccessControl, value, where)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
