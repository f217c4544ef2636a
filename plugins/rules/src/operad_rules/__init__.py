"""Rules for calls, as interceptors: idempotency keys, limits, approval, caching, changes of operations."""

from operad.lazy import lazily

_HOMES = {
    "operad_rules.first_results": "FirstResults MemoryResults ResultStore",
    "operad_rules.rule": "Rule",
    "operad_rules.rules": "Rules add_rules",
}

# Imported when first used: finding plugins imports this package for its entry point alone.
__getattr__, __dir__ = lazily(__name__, _HOMES)
