"""The entry point: observers of calls. OpenTelemetry is imported for the first call that it may record."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from operad.plugin import hookimpl

if TYPE_CHECKING:
    from operad_opentelemetry.telemetry import Telemetry


_NAMED = {"OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER"}
"""Environment variables with which OpenTelemetry's API makes providers on first use."""


@cache
def _telemetry() -> Telemetry:
    """Return the observer for the providers of the process, which has one of each kind."""
    from operad_opentelemetry.telemetry import Telemetry

    return Telemetry()


@cache
def _is_named() -> bool:
    return any(name in os.environ for name in _NAMED)


def _is_set_up() -> bool:
    """Return True if the process may have set a provider, by importing OpenTelemetry or in its environment."""
    return "opentelemetry" in sys.modules or _is_named()


def _is_idle() -> bool:
    """Return True if nothing would be recorded; called before each call."""
    return ("opentelemetry" not in sys.modules and not _is_named()) or _telemetry().is_idle()


@hookimpl
def operad_call_started(call: Any) -> None:
    """Start a span."""
    if _is_set_up():
        _telemetry().operad_call_started(call)


@hookimpl
def operad_call_reported(call: Any, report: Any) -> None:
    """Add a report of the call to its span."""
    if _is_set_up():
        _telemetry().operad_call_reported(call, report)


@hookimpl
def operad_call_finished(call: Any, outcome: Any) -> None:
    """End the span, and measure the call."""
    if _is_set_up():
        _telemetry().operad_call_finished(call, outcome)


for _each in (operad_call_started, operad_call_reported, operad_call_finished):
    vars(_each)["is_idle"] = _is_idle
del _each  # it would look like a hook of that name
