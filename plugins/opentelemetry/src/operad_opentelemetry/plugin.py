"""The plugin ``opentelemetry``: observers of calls. OpenTelemetry is imported for the first call to record."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from operad.plugin import hookimpl

if TYPE_CHECKING:
    from operad_opentelemetry.telemetry import Telemetry


_NAMED = {"OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER"}
"""The environment variables by which the API of OpenTelemetry makes providers at the first use."""


@cache
def _telemetry() -> Telemetry:
    """Return the observer that uses the tracer provider and meter provider of the process."""
    from operad_opentelemetry.telemetry import Telemetry

    return Telemetry()


@cache
def _is_named() -> bool:
    return any(name in os.environ for name in _NAMED)


def _is_set_up() -> bool:
    """Return True if OpenTelemetry was imported, or the environment names a provider."""
    return "opentelemetry" in sys.modules or _is_named()


def _is_idle() -> bool:
    """Return True if no provider would record a call. This is called before each call."""
    return ("opentelemetry" not in sys.modules and not _is_named()) or _telemetry().is_idle()


@hookimpl
def operad_call_started(call: Any) -> None:
    """Start a span for a call, if OpenTelemetry was imported or the environment names a provider."""
    if _is_set_up():
        _telemetry().operad_call_started(call)


@hookimpl
def operad_call_reported(call: Any, report: Any) -> None:
    """Add a report of a call to its span, as an event, and count stalls of streams."""
    if _is_set_up():
        _telemetry().operad_call_reported(call, report)


@hookimpl
def operad_call_finished(call: Any, outcome: Any) -> None:
    """End the span of a call, and record its duration and items."""
    if _is_set_up():
        _telemetry().operad_call_finished(call, outcome)


for _each in (operad_call_started, operad_call_reported, operad_call_finished):
    vars(_each)["is_idle"] = _is_idle
del _each  # it would look like a hook of that name
