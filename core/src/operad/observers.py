"""What observers of calls see (`operad_call_started` and `operad_call_finished`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import attrs

from operad.errors import CallError
from operad.operations import OperationType

logger = logging.getLogger("operad")


@attrs.frozen(eq=False)
class CallRecord:
    """A call, as observers see it."""

    request_id: str
    parent_request_id: str | None
    operation_id: str
    type: OperationType | None
    """``None`` for an operation that was not found."""
    identity_id: str | None
    started: float
    """Epoch ms."""
    state: dict[str, Any] = attrs.field(factory=dict)
    """Free for observers: what one keeps between start and finish."""


@attrs.frozen(eq=False)
class CallOutcome:
    """How a call ended."""

    duration_ms: float
    error: CallError | None = None
    """``None`` for success; ``ABORTED`` for a cancelled call."""
    items: int = 1
    """How many envelopes it answered."""


@attrs.frozen
class Observers:
    """The observers of an application. One that raises is logged and does not disturb the call."""

    started: tuple[Callable[..., None], ...] = ()
    finished: tuple[Callable[..., None], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.started or self.finished)

    def call_started(self, call: CallRecord) -> None:
        """Tell that a call begins."""
        for observer in self.started:
            try:
                observer(call=call)
            except Exception:
                logger.exception("observer %r failed at the start of %s", observer, call.operation_id)

    def call_finished(self, call: CallRecord, outcome: CallOutcome) -> None:
        """Tell that a call is over."""
        for observer in self.finished:
            try:
                observer(call=call, outcome=outcome)
            except Exception:
                logger.exception("observer %r failed at the end of %s", observer, call.operation_id)
