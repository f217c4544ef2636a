"""The entry point: ``[idempotency]`` and ``[[rules]]`` of a configuration, and the command ``operad rules``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from operad.plugin import Table, hookimpl

if TYPE_CHECKING:
    from operad import OperationRegistry
    from operad.plugin import Interceptor
    from operad_rules.rules import Rules

_rules: WeakKeyDictionary[OperationRegistry, Rules] = WeakKeyDictionary()
"""The rules of each registry, between the two hooks that add them."""


def _options() -> type[Any]:
    from operad_rules.options import IdempotencyOptions

    return IdempotencyOptions


def _rule() -> type[Any]:
    from operad_rules.rule import Rule

    return Rule


@hookimpl
def operad_tables() -> list[Table]:
    """Return the tables ``[idempotency]`` and ``[[rules]]``."""
    return [
        Table("idempotency", _options, "Idempotency keys: a repeated request returns the first result."),
        Table("rules", _rule, "Limits, approval, caching and changes for the calls of some operations."),
    ]


@hookimpl
def operad_interceptors(registry: OperationRegistry) -> list[Interceptor]:
    """Return `FirstResults` for the table ``[idempotency]``, and the interceptors of the tables ``[[rules]]``.

    The list is empty if the configuration has neither. Raises `ConfigError` if a table is invalid.
    """
    configuration, found = registry.configuration, list["Interceptor"]()
    if configuration is None:
        return found
    if "idempotency" in configuration.tables:
        from operad_rules.options import IdempotencyOptions, interceptor

        found.append(interceptor(registry.configured("idempotency", IdempotencyOptions)))
    if "rules" in configuration.tables:
        from operad_rules.rule import Rule
        from operad_rules.rules import Rules

        _rules[registry] = rules = Rules(configuration.array("rules", Rule), registry, configuration.base_dir)
        found += rules.interceptors()
    return found


@hookimpl
def operad_register_operations(registry: OperationRegistry) -> None:
    """Register the operations that the rules of a configuration need, such as ``operad.results.read``."""
    if registry in _rules:
        _rules.pop(registry).start()


@hookimpl
def operad_commands(cli: Any) -> None:
    """Add the command ``operad rules``."""
    from operad_rules.command import rules

    cli.add_command(rules)
