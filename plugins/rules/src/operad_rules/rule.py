"""The table ``[[rules]]``: limits, approval and changes for the calls of some operations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

import attrs

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def seconds(value: str | float) -> float:
    """Return a duration in seconds.

    It is given as a number of seconds, or as text with one of the units ``ms``, ``s`` (the default), ``m``, ``h``
    and ``d``: ``60``, ``"60"``, ``"5m"``, ``"250ms"``.

    Raises:
        ValueError: ``value`` is not a duration, or is not positive and finite.
    """
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise ValueError(f'expected a duration such as "60s", "5m" or 60, got "{value}"')
        value = float(found[1]) * _SECONDS[found[2]]
    if isinstance(value, bool) or not value > 0 or value == float("inf"):
        raise ValueError(f"expected a finite duration of more than 0 seconds, got {value}")
    return float(value)


def _duration(_: object, attribute: attrs.Attribute[Any], value: str | float | None) -> None:
    if value is not None:
        try:
            seconds(value)
        except ValueError as error:
            raise ValueError(f"{attribute.name}: {error}") from None


def _rate(_: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None:
        from limits import parse

        try:
            parse(value)
        except ValueError:
            raise ValueError(f'{attribute.name}: expected a rate such as "100/minute", got "{value}"') from None


def _expression(_: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None:
        import jmespath

        try:
            jmespath.compile(value)
        except jmespath.exceptions.JMESPathError as error:
            raise ValueError(f"{attribute.name}: expected a JMESPath expression: {error}") from None


def _approval(_: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and value not in ("client", "terminal", "queue") and ":" not in value:
        known = '"client", "terminal", "queue" or "module:function"'
        raise ValueError(f'{attribute.name}: expected {known}, got "{value}"')


def _renamed(_: object, attribute: attrs.Attribute[Any], value: Mapping[str, str]) -> None:
    olds = list(value.values())
    repeated = sorted({str(old) for old in olds if olds.count(old) > 1})
    if repeated:
        raise ValueError(
            f"{attribute.name}: expected one new name for each argument, got several for {repeated[0]}"
        )


_more_than_0 = attrs.validators.optional(attrs.validators.gt(0))


@attrs.frozen(kw_only=True)
class Rule:
    """One table of ``[[rules]]``. Several rules may match an operation; then all of them apply."""

    match: str | list[str]
    """Shell patterns of the ids of the operations: ``"github.*"``, or a list of them."""
    deny: bool | str = False
    """Reject every call with ``ACCESS_DENIED``; a string is the message."""
    hide: bool = False
    """Whether the operations are not registered, so that they are neither listed nor callable."""
    set: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Arguments that always have these values; callers can neither see nor set them. Use the names that the
    operation declares, even if a rule renames them."""
    rename: Mapping[str, str] = attrs.field(factory=dict, validator=_renamed)
    """New names for arguments: ``{new = "old"}``."""
    approve: str | None = attrs.field(default=None, validator=_approval)
    """Who approves each call: ``"client"`` asks the user of the caller's MCP host, ``"terminal"`` asks in the
    terminal of this process, ``"queue"`` waits for the operation ``operad.approvals.decide``, and
    ``"module:function"`` calls an async function with the call, which returns True to allow it."""
    rate: str | None = attrs.field(default=None, validator=_rate)
    """The maximum rate, such as ``"100/minute"`` or ``"5/second"``. Further calls fail with ``OVERLOADED``."""
    per: Literal["caller", "operation", "rule"] = "caller"
    """Whether the rate applies to each caller, to each operation of each caller, or to all calls together."""
    concurrency: int | None = attrs.field(default=None, validator=_more_than_0)
    """The maximum number of calls at the same time in this process; further calls wait, at most until their
    deadline."""
    timeout: str | float | None = attrs.field(default=None, validator=_duration)
    """The time limit of a call, such as ``"10s"``, unless the caller's deadline is earlier. Not for streams."""
    retry: int = attrs.field(default=0, validator=[attrs.validators.ge(0), attrs.validators.le(10)])
    """How many more times a query or an idempotent mutation is tried if it is unavailable or overloaded."""
    cache: str | float | None = attrs.field(default=None, validator=_duration)
    """How long the result of a query is kept for the same caller and input, such as ``"60s"``."""
    cache_bytes: int = attrs.field(default=64 * 2**20, validator=attrs.validators.gt(0))
    """The maximum size of the results that ``cache`` keeps in this process, in bytes; the oldest are dropped
    first. Ignored if ``shared`` is set."""
    select: str | None = attrs.field(default=None, validator=_expression)
    """A JMESPath expression; its value replaces the data of the result."""
    redact: list[str] = attrs.field(factory=list)
    """Shell patterns of keys, such as ``"*password*"``; their values in results and error details become
    ``"[redacted]"``."""
    max_bytes: int | None = attrs.field(default=None, validator=_more_than_0)
    """The maximum size of a result as JSON, in bytes. A larger result is kept for 15 minutes, and the caller gets
    a handle for the operation ``operad.results.read``."""
    audit: str | None = None
    """A file to which one line of JSON is appended for each call before its result is returned."""
    shared: str | None = attrs.field(default=None, repr=False)
    """The URL of a Redis server, ``redis://…``, which keeps the rate and the cache for all processes."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The shell patterns of ``match``."""
        return (self.match,) if isinstance(self.match, str) else tuple(self.match)

    def matches(self, operation_id: str) -> bool:
        """Return True if the rule applies to the operation."""
        return any(fnmatchcase(operation_id, pattern) for pattern in self.patterns)
