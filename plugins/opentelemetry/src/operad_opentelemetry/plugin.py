"""The entry point: observers of calls. OpenTelemetry is imported with the first call."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from operad.plugin import hookimpl

if TYPE_CHECKING:
    from operad_opentelemetry.telemetry import Telemetry


@cache
def _telemetry() -> Telemetry:
    """Of the providers that the process has set, or will set: OpenTelemetry has one of each per process."""
    from operad_opentelemetry.telemetry import Telemetry

    return Telemetry()


@hookimpl
def operad_call_started(call: Any) -> None:
    """Start a span."""
    _telemetry().operad_call_started(call)


@hookimpl
def operad_call_finished(call: Any, outcome: Any) -> None:
    """End it, and measure the call."""
    _telemetry().operad_call_finished(call, outcome)
