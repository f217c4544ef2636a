"""Access rules: the requirements that a configuration sets for a source's operations."""

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
    """Access requirements by shell pattern; the first pattern that matches an operation's name or id applies.

    They replace the requirements that a source declares. If no pattern matches, the source's requirements remain.
    """

    rules: tuple[tuple[str, AccessControl], ...] = ()

    @classmethod
    def of(cls, access: AccessControl | Mapping[str, Any] | None, where: str) -> AccessRules:
        """Return the rules for an `AccessControl`, for its fields, or for a mapping from patterns to either.

        If ``access`` is ``None``, the result has no rules.

        Raises:
            ConfigError: ``access`` is not a mapping, has an unknown field, or has unusable requirements.
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
        """Return the operation with the requirements of the first rule that matches; unchanged without a match."""
        control = self.control(operation.spec)
        if control is None:
            return operation
        return attrs.evolve(operation, spec=attrs.evolve(operation.spec, access_control=control))

    def control(self, spec: OperationSpec) -> AccessControl | None:
        """Return the requirements of the first rule that matches an operation; ``None`` if no rule matches."""
        return next((control for pattern, control in self.rules if _fits(spec, pattern)), None)

    def unused(self, specs: Iterable[OperationSpec]) -> list[str]:
        """Return the patterns except ``*`` that match no operation; a misspelt one may leave an operation open."""
        listed = list(specs)
        return [
            pattern
            for pattern, _ in self.rules
            if pattern != "*" and not any(_fits(spec, pattern) for spec in listed)
        ]


def _fits(spec: OperationSpec, pattern: str) -> bool:
    return fnmatchcase(spec.name, pattern) or fnmatchcase(spec.id, pattern)


def _control(value: Any, where: str) -> AccessControl:
    from operad.config.structuring import structure  # imports cattrs: only if there are rules

    return value if isinstance(value, AccessControl) else structure(AccessControl, value, where)
