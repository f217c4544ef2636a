"""The table ``[idempotency]``, and the interceptor that it describes."""

from __future__ import annotations

import pkgutil
from typing import Any

import attrs

from operad import ConfigError
from operad.plugin import Interceptor
from operad_rules.first_results import FirstResults, MemoryResults, ResultStore

_ORDER = -100
"""Outside other interceptors: a repeated request returns before they count or change it."""


@attrs.frozen(kw_only=True)
class IdempotencyOptions:
    """The table ``[idempotency]``; see `FirstResults`. An empty table turns idempotency keys on."""

    match: list[str] = attrs.field(factory=lambda: ["*"])
    """Shell patterns of the ids of the operations to which keys apply."""
    seconds: float = attrs.field(default=86_400.0, validator=attrs.validators.gt(0))
    """Seconds for which a result is kept."""
    capacity: int = attrs.field(default=10_000, validator=attrs.validators.gt(0))
    """Maximum number of results in this process; the oldest are dropped first. Ignored if ``store`` is set."""
    store: str | None = None
    """``module:name`` of a `ResultStore` or of a function that returns one; default: memory of this process."""


def interceptor(options: IdempotencyOptions) -> Interceptor:
    """Return the interceptor that the table describes.

    Raises `ConfigError` if ``store`` cannot be loaded, or lacks a method of `ResultStore`.
    """
    results = FirstResults(_store(options), seconds=options.seconds)
    return Interceptor(results, match=tuple(options.match), order=_ORDER)


def _store(options: IdempotencyOptions) -> ResultStore:
    if options.store is None:
        return MemoryResults(options.capacity)
    try:
        found: Any = pkgutil.resolve_name(options.store)
        store: ResultStore = found if hasattr(found, "claim") and not isinstance(found, type) else found()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        expected = f'idempotency.store: expected "module:name" of a store or of a function, got "{options.store}"'
        raise ConfigError(f"{expected}, which cannot be loaded: {reason}") from error
    missing = [name for name in ("claim", "put", "drop") if not callable(getattr(store, name, None))]
    if missing:
        names = ", ".join(missing)
        expected = "idempotency.store: expected a store with the methods claim, put and drop"
        raise ConfigError(f'{expected}, got "{options.store}" without {names}')
    return store
