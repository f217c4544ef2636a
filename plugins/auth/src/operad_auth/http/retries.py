"""Rules for retries: when a request to a server is sent again, and after which delay. This module sends nothing.

Sources: RFC 9110, 9.2.2 (idempotent methods) and 10.2.3 (Retry-After); RFC 6585, 4 (429); the IETF draft
"RateLimit header fields for HTTP", and the ``X-RateLimit-*`` that came before it.
"""

from __future__ import annotations

import email.utils
import random
import re
import time
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import attrs

from operad.errors import ConfigError
from operad.records import record

_METHODS = ("GET", "HEAD", "PUT", "DELETE")
_STATUSES = (408, 429, 502, 503, 504)
_PREFIXES = ("ratelimit", "x-ratelimit", "x-rate-limit")
_FIELD = re.compile(r";\s*([rt])\s*=\s*([0-9]{1,9})")
_MAX_KEYS = 1_000
# Seconds of an interval are fewer than this, seconds since 1970 more.
_EPOCH = 1_000_000_000


def _at_least_0(policy: Any, field: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ConfigError(f"retries: {field.name}: expected a number of 0 or more, got {value!r}")


def _methods(value: Any) -> frozenset[str]:
    if isinstance(value, str) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f'retries: methods: expected a list such as ["GET", "PUT"], got {value!r}')
    return frozenset(item.upper() for item in value)


def _statuses(value: Any, name: str = "statuses") -> frozenset[int]:
    if isinstance(value, str) or not all(isinstance(item, int) and 100 <= item <= 599 for item in value):
        raise ConfigError(f"retries: {name}: expected a list of statuses such as [429, 503], got {value!r}")
    return frozenset(value)


def _also(value: Mapping[str, Iterable[int]]) -> dict[str, frozenset[int]]:
    return {method.upper(): _statuses(statuses, f"also.{method}") for method, statuses in value.items()}


@record(kw_only=True)
class RetryPolicy:
    """The rules by which a failed request is sent again.

    A request is repeated after a lost connection or one of ``statuses`` if its method is one of ``methods``, or
    if it has an ``Idempotency-Key``. It is also repeated after the statuses that ``also`` lists for its method.
    The delay is that of ``Retry-After``, or else random and at most ``backoff * 2 ** attempt`` seconds.
    """

    attempts: int = attrs.field(default=2, validator=_at_least_0)
    """The maximum number of further attempts."""
    backoff: float = attrs.field(default=0.25, validator=_at_least_0)
    """The longest first delay, in seconds. It doubles with each attempt."""
    max_delay: float = attrs.field(default=10.0, validator=_at_least_0)
    """The longest delay, in seconds. A request with a longer ``Retry-After`` fails immediately."""
    methods: frozenset[str] = attrs.field(default=_METHODS, converter=_methods)
    """Methods that are repeated without an ``Idempotency-Key``."""
    statuses: frozenset[int] = attrs.field(default=_STATUSES, converter=_statuses)
    """Statuses after which a request is sent again."""
    also: dict[str, frozenset[int]] = attrs.field(factory=dict, converter=_also)
    """Further statuses after which a method is repeated, such as ``{"POST": [429]}``. The server must send them
    before it does anything."""
    rate_limit: bool = False
    """Whether a request waits, up to ``max_delay`` seconds, if the server has announced an exhausted limit."""

    @classmethod
    def of(cls, value: RetryPolicy | int | Mapping[str, Any]) -> RetryPolicy:
        """Return the policy for a number of attempts or a table of options; return a policy as it is.

        Raises:
            ConfigError: an option is unknown, or its value is not valid.
        """
        if isinstance(value, RetryPolicy):
            return value
        if isinstance(value, Mapping):
            unknown = value.keys() - {field.name for field in attrs.fields(cls)}
            if unknown:
                known = ", ".join(field.name for field in attrs.fields(cls))
                raise ConfigError(f"retries: unknown option {sorted(unknown)[0]!r}; known: {known}")
            return cls(**value)
        return cls(attempts=value)

    def wait(
        self,
        attempt: int,
        method: str,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        repeatable: bool = False,
    ) -> float | None:
        """Return the seconds to wait before a failed request is sent again; ``None`` if it must not be.

        Args:
            attempt: the number of earlier retries, from 0.
            method: the HTTP method, in upper case.
            status: the status of the response; ``None`` after a lost connection.
            headers: the headers of the response, with names in lower case.
            repeatable: whether the request has an ``Idempotency-Key``.
        """
        if attempt >= self.attempts:
            return None
        is_safe = repeatable or method in self.methods
        if status is None:
            return self.jitter(attempt) if is_safe else None
        if not (is_safe and status in self.statuses) and status not in self.also.get(method, ()):
            return None
        wished = wait_of(headers or {})
        if wished is None:
            return self.jitter(attempt)
        return wished if wished <= self.max_delay else None

    def jitter(self, attempt: int) -> float:
        """Return a random delay in seconds for an attempt (from 0): up to ``backoff * 2 ** attempt``.

        The delay is not longer than ``max_delay``.
        """
        return random.uniform(0, min(self.max_delay, self.backoff * 2**attempt))  # noqa: S311  # no secret


def retry_after(value: str | None, now: float | None = None) -> float | None:
    """Return the delay in a ``Retry-After`` header, in seconds; ``None`` if it is missing or malformed.

    Args:
        value: the value of the header, a number of seconds or a date (RFC 9110, 10.2.3).
        now: the current time in seconds since 1970; default: the time of the system.
    """
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        when = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, when - (time.time() if now is None else now))


def wait_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait by ``Retry-After-Ms``, or else ``Retry-After``; ``None`` if neither is valid.

    Names of ``headers`` are in lower case.
    """
    millis = headers.get("retry-after-ms", "").strip()
    if millis.isascii() and millis.isdigit() and len(millis) < 12:
        return int(millis) / 1000
    return retry_after(headers.get("retry-after"))


class RateLimits:
    """The rate limits that servers have announced, and when they end.

    They are read from ``X-RateLimit-Remaining: 0`` with ``X-RateLimit-Reset``, from ``RateLimit: …;r=0;t=30``, and
    from the ``Retry-After`` of a 429. A key identifies what a server limits, such as an origin and a credential.
    """

    def __init__(self) -> None:
        self._until: dict[Hashable, float] = {}

    def observe(self, key: Hashable, status: int, headers: Mapping[str, str], now: float | None = None) -> None:
        """Record the limit that a response announces. If it announces none, forget the limit of the key.

        Names of ``headers`` are in lower case. ``now`` is in seconds since 1970; default: the time of the system.
        """
        now = time.time() if now is None else now
        wait = retry_after(headers.get("retry-after"), now) if status == 429 else None
        if wait is None:
            wait = _exhausted(headers, now)
        if wait is None:
            self._until.pop(key, None)
            return
        if len(self._until) >= _MAX_KEYS:
            self._until.pop(next(iter(self._until)))
        self._until[key] = now + wait

    def wait(self, key: Hashable, now: float | None = None) -> float:
        """Return the seconds until the limit of a key ends; 0 if a request may be sent at ``now``.

        ``now`` is in seconds since 1970; default: the time of the system.
        """
        until = self._until.get(key)
        if until is None:
            return 0.0
        left = until - (time.time() if now is None else now)
        if left <= 0:
            self._until.pop(key, None)
        return max(0.0, left)


def _exhausted(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds to wait if the limit is exhausted, else ``None``."""
    for prefix in _PREFIXES:
        if headers.get(f"{prefix}-remaining", "").strip() == "0":
            return _reset(headers.get(f"{prefix}-reset", ""), now)
    fields = dict(_FIELD.findall(headers.get("ratelimit", "")))
    return float(fields["t"]) if fields.get("r") == "0" and "t" in fields else None


def _reset(text: str, now: float) -> float | None:
    """Return the seconds until a ``-Reset``, which is in seconds from now, or in s or ms since 1970."""
    try:
        value = float(text)
    except ValueError:
        return None
    if not 0 <= value < 1e15:
        return None
    if value >= _EPOCH * 1000:
        value /= 1000
    return max(0.0, value - now) if value >= _EPOCH else value
