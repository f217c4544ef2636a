"""Comparisons of a run as JSON, and bar charts of them: ``python -m benchmarks --save`` and ``--plots``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "OPERAD_BENCHMARK_RESULTS"
"""The environment variable with the file for the comparisons of a program; without it, none are kept."""
OURS, OTHERS = "#0b6b58", "#9aa8a3"


def compared(title: str, unit: str, figures: Mapping[str, float]) -> None:
    """Keep the figures of one comparison; names that contain ``operad`` or ``execute`` are ours."""
    if path := os.environ.get(FILE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"title": title, "unit": unit, "figures": dict(figures)}) + "\n")


def draw(folder: Path, into: Path) -> list[Path]:
    """Draw each comparison of the results in a folder; return the pictures."""
    import matplotlib  # type: ignore[import-not-found,unused-ignore]  # of the group benchmark

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "operad"  # the same picture of the same results
    made = []
    for path in sorted(folder.glob("*.json")):
        saved = json.loads(path.read_text(encoding="utf-8"))
        for number, comparison in enumerate(saved["comparisons"], 1):
            made.append(into / f"benchmark-{path.stem}-{number}.svg")
            _bars(comparison, saved["command"], made[-1])
    return made


def _bars(comparison: Mapping[str, Any], command: str, path: Path) -> None:
    from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]  # of the group benchmark

    names, values = list(comparison["figures"]), list(comparison["figures"].values())
    colours = [OURS if "operad" in name or "execute" in name else OTHERS for name in names]
    figure = Figure(figsize=(7.5, 1.3 + 0.32 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    bars = axes.barh(names, values, color=colours)
    axes.bar_label(bars, [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in values], padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(comparison["unit"])
    axes.set_title(f"{comparison['title']}\n{command}", fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
