"""The metrics of a hub, in the OpenMetrics text format 1.0."""

from __future__ import annotations

from collections.abc import Iterable

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def metrics_text(values: Iterable[tuple[str, str, str, float]]) -> str:
    """Return the text of metrics, each with name, type (``gauge`` or ``counter``), help and value."""
    lines = []
    for name, kind, text, value in values:
        sample = f"{name}_total" if kind == "counter" else name
        lines += [f"# TYPE {name} {kind}", f"# HELP {name} {text}", f"{sample} {value:g}"]
    return "\n".join([*lines, "# EOF\n"])
