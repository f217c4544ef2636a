"""The bounds of calls: the table ``[calls]`` of a configuration."""

from __future__ import annotations

from typing import Any

import attrs

from operad.records import record

_at_least_one: Any = attrs.validators.ge(1)
_above_zero: Any = attrs.validators.gt(0)


@record(kw_only=True)
class CallSettings:
    """The bounds of the calls that a `PendingRequestMap` makes and a `CallHandler` serves."""

    max_pending: int = attrs.field(default=10_000, validator=_at_least_one)
    """The maximum number of calls of a call map in flight; further calls fail with ``OVERLOADED``."""
    max_concurrent: int = attrs.field(default=10_000, validator=_at_least_one)
    """The maximum number of requests of a handler in progress; further requests fail with ``OVERLOADED``."""
    max_concurrent_per_peer: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(_at_least_one)
    )
    """The maximum number of requests in progress of one caller (an identity, or else a link). Default: half of
    ``max_concurrent``, and no limit within one process."""
    credit: int = attrs.field(default=64, validator=_at_least_one)
    """The maximum number of items of a stream in flight to a consumer."""
    credit_bytes: int = attrs.field(default=1024 * 1024, validator=_at_least_one)
    """The maximum number of bytes of a stream in flight to a consumer. A larger item is sent alone."""
    link_bytes: int = attrs.field(default=8 * 1024 * 1024, validator=_at_least_one)
    """The maximum number of bytes of large responses in flight to a link, and of large requests from it."""
    lease: float = attrs.field(default=30.0, validator=_above_zero)
    """Seconds after which a stream ends without a sign of life from the other side."""
    timeout: float = attrs.field(default=30.0, validator=_above_zero)
    """The default timeout of a single call, in seconds."""
    drain_timeout: float = attrs.field(default=10.0, validator=attrs.validators.ge(0))
    """Seconds for which a closing handler waits for requests in progress."""

    @property
    def per_peer(self) -> int:
        """The value of ``max_concurrent_per_peer``; if it is ``None``, half of ``max_concurrent``."""
        given = self.max_concurrent_per_peer
        return max(1, self.max_concurrent // 2) if given is None else given

    def updated(self, **given: Any) -> CallSettings:
        """Return a copy with the given settings that are not ``None``. Raises `ValueError` if one is invalid."""
        changes = {name: value for name, value in given.items() if value is not None}
        return attrs.evolve(self, **changes) if changes else self
