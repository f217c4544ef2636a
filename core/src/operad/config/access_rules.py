"""Access rules: the requirements that a configuration adds to a source's operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import attrs

from operad.access import AccessControl
from operad.config.places import below
from operad.errors import ConfigError
from operad.operations import Operation, OperationSpec


class AccessRules(NamedTuple):
    """Requirements by pattern, in order: the first shell pattern that fits an operation's name or id counts.

    They replace what the source itself says of the operation; where none fits, that stays.
    """

    rules: tuple[tuple[str, AccessControl], ...] = ()

    @classmethod
    def of(cls, access: AccessControl | Mapping[str, Any] | None, where: str) -> AccessRules:
        """The rules of an `AccessControl`, of its fields, or of ``{"pattern": either}``.

        Raises:
            ConfigError: an unknown field, or requirements that cannot be meant.
        """
        where = below(where, ".access")
        if access is None:
            return cls()
        if isinstance(access, AccessControl):
            return cls((("*", access),))
        if not isinstance(access, Mapping):
            raise ConfigError(f"{where}: expected a table, got {type(access).__name__}")
        if any(isinstance(value, (Mapping, AccessControl)) for value in access.values()):
            rules = [(text, _control(value, below(where, f'."{text}"'))) for text, value in access.items()]
            return cls(tuple(rules))
        return cls((("*", _control(access, where)),) if access else ())

    def apply(self, operation: Operation[..., Any]) -> Operation[..., Any]:
        """The operation with what is required of its callers."""
        control = self.control(operation.spec)
        if control is None:
            return operation
        return attrs.evolve(operation, spec=attrs.evolve(operation.spec, access_control=control))

    def control(self, spec: OperationSpec) -> AccessControl | None:
        """What is required of an operation's callers; ``None``: nothing is said."""
        return next((control for pattern, control in self.rules if _fits(spec, pattern)), None)

    def unused(self, specs: Iterable[OperationSpec]) -> list[str]:
        """The patterns that fit none of the operations: a misspelt one would leave an operation open."""
        listed = list(specs)
        return [
            pattern
            for pattern, _ in self.rules
            if pattern != "*" and not any(_fits(spec, pattern) for spec in listed)
        ]


def _fits(spec: OperationSpec, pattern: str) -> bool:
    return fnmatchcase(spec.name, pattern) or fnmatchcase(spec.id, pattern)


def _control(value: Any, where: str) -> AccessControl:
    from operad.config.structuring import structure  # cattrs comes with it: for who has rules

    return value if isinstance(value, AccessControl) else structure(AccessControl, value, where)
