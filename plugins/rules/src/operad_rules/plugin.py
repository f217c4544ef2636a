"""The entry point: idempotency keys for a registry whose configuration has the table ``[idempotency]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operad.plugin import Table, hookimpl

if TYPE_CHECKING:
    from operad import OperationRegistry
    from operad.plugin import Interceptor


def _options() -> type[Any]:
    from operad_rules.options import IdempotencyOptions

    return IdempotencyOptions


@hookimpl
def operad_tables() -> list[Table]:
    """Return the table ``[idempotency]``."""
    return [Table("idempotency", _options, "Idempotency keys: a repeated request returns the first result.")]


@hookimpl
def operad_interceptors(registry: OperationRegistry) -> list[Interceptor]:
    """Return `FirstResults` if the configuration has the table ``[idempotency]``."""
    if registry.configuration is None or "idempotency" not in registry.configuration.tables:
        return []
    from operad_rules.options import IdempotencyOptions, interceptor

    return [interceptor(registry.configured("idempotency", IdempotencyOptions))]
