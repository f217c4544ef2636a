"""Metrics in the OpenMetrics text format 1.0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Values = float | Mapping[str, float]
"""The value of a metric, or of each sample by the suffix of its name, such as ``{status="200"}``."""


def metrics_text(metrics: Iterable[tuple[str, str, str, Values]]) -> str:
    """Return metrics in the OpenMetrics text format.

    Args:
        metrics: a name, a type (``gauge``, ``counter``, ``histogram``), a help text and the values of each metric.
            ``_total`` is added to the names of the samples of a counter.
    """
    lines = []
    for name, kind, text, values in metrics:
        sample = f"{name}_total" if kind == "counter" else name
        lines += [f"# TYPE {name} {kind}", f"# HELP {name} {text}"]
        samples = values if isinstance(values, Mapping) else {"": values}
        lines += [f"{sample}{end} {value}" for end, value in samples.items()]
    return "\n".join([*lines, "# EOF\n"])
