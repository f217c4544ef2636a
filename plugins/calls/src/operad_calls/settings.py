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
    """How many calls of a call map may wait at once; more fail with ``OVERLOADED``."""
    max_concurrent: int = attrs.field(default=10_000, validator=_at_least_one)
    """How many requests a handler may have in progress; more fail with ``OVERLOADED``."""
    max_concurrent_per_peer: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(_at_least_one)
    )
    """How many of those one caller (its identity, else its link) may have. Default: half of ``max_concurrent``,
    and no bound in process."""
    credit: int = attrs.field(default=64, validator=_at_least_one)
    """How many items of a stream may be in flight to a consumer."""
    credit_bytes: int = attrs.field(default=1024 * 1024, validator=_at_least_one)
    """How many bytes of a stream may be in flight to its consumer; one larger item goes alone."""
    link_bytes: int = attrs.field(default=8 * 1024 * 1024, validator=_at_least_one)
    """How many bytes of large responses and items may be in flight to one link, and of large requests from it."""
    lease: float = attrs.field(default=30.0, validator=_above_zero)
    """Seconds that a stream lives without a sign of life from its other side."""
    timeout: float = attrs.field(default=30.0, validator=_above_zero)
    """Default timeout of a single call in seconds."""
    drain_timeout: float = attrs.field(default=10.0, validator=attrs.validators.ge(0))
    """Seconds that requests in progress get when a handler closes."""

    @property
    def per_peer(self) -> int:
        """The value of ``max_concurrent_per_peer``, or its default."""
        given = self.max_concurrent_per_peer
        return max(1, self.max_concurrent // 2) if given is None else given

    def updated(self, **given: Any) -> CallSettings:
        """Return these settings with some of them replaced; ``None`` means not given. Raises `ValueError`."""
        changes = {name: value for name, value in given.items() if value is not None}
        return attrs.evolve(self, **changes) if changes else self
