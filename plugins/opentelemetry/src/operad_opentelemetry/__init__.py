"""OpenTelemetry spans and metrics of operad calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad_opentelemetry.telemetry import Telemetry

__all__ = ["Telemetry"]


def __getattr__(name: str) -> Any:
    # Lazy: to find plugins, operad imports this package for its entry point alone.
    if name != "Telemetry":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from operad_opentelemetry.telemetry import Telemetry

    return Telemetry
