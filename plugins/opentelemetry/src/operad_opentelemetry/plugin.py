"""The entry point: observers of calls. OpenTelemetry is imported with the first call that it may record."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from operad.plugin import hookimpl

if TYPE_CHECKING:
    from operad_opentelemetry.telemetry import Telemetry


_NAMED = {"OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER"}
"""Variables by which OpenTelemetry's own API makes a provider when it is first asked for one."""


@cache
def _telemetry() -> Telemetry:
    """Of the providers that the process has set, or will set: OpenTelemetry has one of each per process."""
    from operad_opentelemetry.telemetry import Telemetry

    return Telemetry()


@cache
def _is_named() -> bool:
    return any(name in os.environ for name in _NAMED)


def _is_set_up() -> bool:
    """Whether somebody may have set a provider: for that OpenTelemetry has to be imported, or named outside."""
    return "opentelemetry" in sys.modules or _is_named()


def _is_idle() -> bool:
    """Asked before each call: nothing would be recorded."""
    return ("opentelemetry" not in sys.modules and not _is_named()) or _telemetry().is_idle()


@hookimpl
def operad_call_started(call: Any) -> None:
    """Start a span."""
    if _is_set_up():
        _telemetry().operad_call_started(call)


@hookimpl
def operad_call_reported(call: Any, report: Any) -> None:
    """Put what it tells of itself into the span."""
    if _is_set_up():
        _telemetry().operad_call_reported(call, report)


@hookimpl
def operad_call_finished(call: Any, outcome: Any) -> None:
    """End it, and measure the call."""
    if _is_set_up():
        _telemetry().operad_call_finished(call, outcome)


for _each in (operad_call_started, operad_call_reported, operad_call_finished):
    vars(_each)["is_idle"] = _is_idle
del _each  # which would look like a hook of that name
