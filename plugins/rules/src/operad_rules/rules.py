"""Rules as interceptors, in an order that does not depend on the order of keys and tables.

From the outside in, the order is: audit, deny, approve, max_bytes, redact, select, cache, timeout, rate,
concurrency, retry, handler. So a denied call and a cached result do not use the rate or the concurrency, and the
cache contains the result of the handler. Audit and deny are outside of idempotency keys, all others inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import attrs

from operad import ConfigError, OperationContext, OperationSpec
from operad.plugin import Interceptor
from operad_rules.approvals import DECIDE, LIST, SCOPE, Queue, approval
from operad_rules.audit import Audit
from operad_rules.caching import Cache, MemoryStore, RedisStore, Store
from operad_rules.changes import changed
from operad_rules.results import READ, LargeResults, MaxBytes, Redact, Select
from operad_rules.rule import Rule, seconds
from operad_rules.steps import Concurrency, Deny, Rate, Retry, Step, Timeout

if TYPE_CHECKING:
    from operad import OperationRegistry

ORDERS = {
    "audit": -120, "deny": -110,
    "approve": -90, "max_bytes": -80, "redact": -70, "select": -60, "cache": -50, "cache_bytes": -50,
    "timeout": -40, "rate": -30, "per": -30, "concurrency": -20, "retry": -10,
}  # fmt: skip
"""The order of interceptors by key; a lower one is further outside. Idempotency keys are at -100. Keys that change
operations when they are registered have none and come first."""

CHANGES = ("hide", "set", "rename")
"""The keys that change operations when they are registered."""


@attrs.frozen
class Shared:
    """What all rules of a registry have in common: the rules themselves, large results, and pending approvals."""

    rules: list[Rule] = attrs.field(factory=list)
    results: LargeResults = attrs.field(factory=LargeResults)
    queue: Queue = attrs.field(factory=Queue)
    operations: set[str] = attrs.field(factory=set)
    """The ids of the operations that rules have registered."""

    async def explain(self, input: Mapping[str, Any], context: OperationContext) -> list[dict[str, Any]]:
        """Return `explained` for an operation. This is the handler of ``operad.rules.explain``."""
        return explained(self.rules, input["operation"])


_shared: WeakKeyDictionary[OperationRegistry, Shared] = WeakKeyDictionary()


@attrs.frozen
class Rules:
    """Rules of a registry, which may have others, too.

    Args:
        rules: the rules, in the order in which they are written.
        registry: the registry to which they apply.
        base_dir: the folder that relative paths start at.
    """

    rules: Sequence[Rule]
    registry: OperationRegistry
    base_dir: Path
    shared: Shared = attrs.field(init=False)
    audits: list[Audit] = attrs.field(factory=list, init=False)
    _pools: dict[str, Any] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "shared", _shared.setdefault(self.registry, Shared()))

    def interceptors(self) -> list[Interceptor]:
        """Return the interceptors of all rules.

        Raises `ConfigError` if a function of ``approve`` cannot be used, or if ``shared`` is set and its URL is
        invalid or the package redis is missing.
        """
        return [each for rule in self.rules for each in self._of(rule)]

    def _of(self, rule: Rule) -> Iterator[Interceptor]:
        match = rule.patterns
        if rule.hide or rule.set or rule.select or rule.redact or rule.max_bytes is not None:
            yield Interceptor(match=match, change=partial(changed, rule=attrs.evolve(rule, rename={})), order=-1)
        if rule.rename:  # after what other rules fix: they name the arguments as the operation has them
            yield Interceptor(
                match=match, change=partial(changed, rule=Rule(match=rule.match, rename=rule.rename))
            )
        for key, step in self._steps(rule):
            yield Interceptor(step.call, step.stream, match, ORDERS[key])

    def _steps(self, rule: Rule) -> Iterator[tuple[str, Step]]:
        kinds = self.registry.plugins.envelope_kinds
        if rule.deny:
            yield "deny", Deny(rule.deny if isinstance(rule.deny, str) else None)
        if rule.approve is not None:
            yield "approve", approval(rule.approve, self.shared.queue)
        if rule.max_bytes is not None:
            yield "max_bytes", MaxBytes(rule.max_bytes, self.shared.results, kinds)
        if rule.redact:
            yield "redact", Redact(rule.redact, kinds)
        if rule.select is not None:
            yield "select", Select(rule.select, kinds)
        if rule.cache is not None:
            kept = seconds(rule.cache)
            store: Store = (
                MemoryStore(kept, rule.cache_bytes) if rule.shared is None else RedisStore(self._pool(rule))
            )
            yield "cache", Cache(store, kept, kinds)
        if rule.timeout is not None:
            yield "timeout", Timeout(seconds(rule.timeout))
        if rule.rate is not None:
            yield "rate", Rate(rule.rate, rule.per, ",".join(rule.patterns), self._pool(rule))
        if rule.concurrency is not None:
            yield "concurrency", Concurrency(rule.concurrency)
        if rule.retry:
            yield "retry", Retry(rule.retry)

    def _pool(self, rule: Rule) -> Any:
        """Return the connections to the Redis server of a rule, or ``None``. Raises `ConfigError` on failure."""
        if (url := rule.shared) is None:
            return None
        if url not in self._pools:
            try:
                from redis.asyncio import ConnectionPool
            except ModuleNotFoundError:
                raise ConfigError("rules with `shared` need redis: pip install operad-rules[redis]") from None
            try:
                self._pools[url] = ConnectionPool.from_url(url, socket_timeout=5, socket_connect_timeout=5)
            except ValueError:  # its message may have a part of a password
                match = ", ".join(rule.patterns)
                expected = "expected a URL such as redis://HOST:PORT/DB or rediss://HOST:PORT/DB"
                raise ConfigError(f"the rule for {match}: shared: {expected}, got another text") from None
        return self._pools[url]

    async def aclose(self) -> None:
        """Close the audit logs and the connections to Redis servers; idempotent."""
        for audit in self.audits:
            audit.close()
        for pool in self._pools.values():
            await pool.disconnect()

    def start(self) -> None:
        """Register the operations that the rules need, and observe calls for ``audit`` until the registry closes.

        Raises `RegistrationError` if other rules of the registry have registered these operations.
        """
        shared = self.shared
        shared.rules.extend(self.rules)
        has_queue = any(rule.approve == "queue" for rule in self.rules)
        for spec, handler, is_needed in (
            (READ, shared.results.read, any(rule.max_bytes is not None for rule in self.rules)),
            (LIST, shared.queue.list, has_queue),
            (DECIDE, shared.queue.decide, has_queue),
            (EXPLAIN, shared.explain, bool(self.rules)),
        ):
            if is_needed and spec.id not in shared.operations:
                self.registry.register(spec, handler)
                shared.operations.add(spec.id)
        for rule in self.rules:
            if rule.audit is not None:
                audit = Audit(self.base_dir / Path(rule.audit).expanduser(), rule, ORDERS["audit"])
                audit.observe(self.registry)
                self.audits.append(audit)
        self.registry.on_close(self.aclose)


def explained(rules: Sequence[Rule], operation_id: str) -> list[dict[str, Any]]:
    """Return the rules that match an operation as ``{rule, match, keys}``; an empty list if no rule matches.

    ``rule`` is the number of the rule from 1, ``match`` its patterns, and ``keys`` its keys with their values. The
    order is from the outside in, so a rule appears again if keys of another rule come in between.
    """
    steps = [
        (_order(key), number, key, value)
        for number, rule in enumerate(rules, 1)
        if rule.matches(operation_id)
        for key, value in keys(rule).items()
    ]
    steps.sort(key=itemgetter(0))  # stable: keys of one order stay in the order of their rules
    return [
        {"rule": number, "match": list(rules[number - 1].patterns), "keys": {key: value for *_, key, value in own}}
        for number, own in groupby(steps, itemgetter(1))
    ]


def keys(rule: Rule) -> dict[str, Any]:
    """Return the keys of a rule that differ from their defaults, with their values, outermost interceptor first.

    ``match`` and ``shared`` are left out. The value of ``set`` is the sorted list of the argument names alone.
    """
    found = {
        field.name: getattr(rule, field.name)
        for field in attrs.fields(Rule)
        if field.name not in ("match", "shared") and getattr(rule, field.name) != field.default
    }
    if rule.set:
        found["set"] = sorted(rule.set)
    return {name: found[name] for name in sorted(found, key=_order) if found[name] or found[name] == 0}


def _order(key: str) -> int:
    return ORDERS.get(key, -200)


def add_rules(registry: OperationRegistry, *rules: Rule, base_dir: Path | None = None) -> Rules:
    """Add rules to a registry, in addition to those that it has, and return the added ones.

    ``hide``, ``set`` and ``rename`` apply to operations that are registered afterwards.

    Args:
        registry: the registry.
        rules: the rules to add.
        base_dir: the folder that relative paths in rules start at; default: the current folder.

    Raises:
        ConfigError: a function of ``approve`` cannot be used, or ``shared`` is set and its URL is invalid or the
            package redis is missing.
        RegistrationError: the application has an operation with an id of these rules, such as
            ``operad.rules.explain``.
    """
    added = Rules(rules, registry, Path() if base_dir is None else base_dir)
    for each in added.interceptors():
        registry.use(each.call, subscribe=each.subscribe, match=each.match, order=each.order, change=each.change)
    added.start()
    return added


EXPLAIN = OperationSpec(
    namespace="operad",
    name="rules.explain",
    type="query",
    description="List the rules that match an operation.",
    input_schema={
        "type": "object",
        "properties": {"operation": {"type": "string", "description": "the id of the operation"}},
        "required": ["operation"],
        "additionalProperties": False,
    },
    access_control={"required_scopes": [SCOPE]},
)
"""The operation that explains rules; the explorer uses it."""
