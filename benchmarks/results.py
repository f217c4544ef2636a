"""Comparisons of a run as JSON, and bar charts of them: ``python -m benchmarks --save`` and ``--plots``."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = "OPERAD_BENCHMARK_RESULTS"
"""The environment variable with the file for the comparisons of a program; without it, none are kept."""
OURS, OTHERS = "#14866f", "#9aa8a3"
STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", sans-serif !important; fill: #1c2321 !important; }
#patch_1 path { fill: #f6f8f7 !important; }
@media (prefers-color-scheme: dark) {
  text { fill: #e8efec !important; } #patch_1 path { fill: #16201d !important; }
}
"""
"""The colours that the reader's system asks for, as in the other pictures of the documentation."""


def compared(title: str, unit: str, figures: Mapping[str, float]) -> None:
    """Keep the figures of one comparison; names that contain ``operad`` or ``execute`` are ours."""
    if path := os.environ.get(FILE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"title": title, "unit": unit, "figures": dict(figures)}) + "\n")


def draw(folder: Path, into: Path) -> list[Path]:
    """Draw each result of a folder, a panel for each of its comparisons; return the pictures."""
    import matplotlib  # type: ignore[import-not-found,unused-ignore]  # of the group benchmark

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "operad"  # the same picture of the same results
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: small, and in the reader's font
    made = []
    for path in sorted(folder.glob("*.json")):
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved["comparisons"]:
            made.append(into / f"benchmark-{path.stem}.svg")
            _panels(saved["comparisons"], saved["command"], made[-1])
    return made


def _panels(comparisons: Sequence[Mapping[str, Any]], command: str, path: Path) -> None:
    """Draw bars for each comparison, from the top to the bottom; more than four of them in two columns."""
    from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]  # of the group benchmark

    columns = 2 if len(comparisons) > 4 else 1
    rows = [comparisons[place : place + columns] for place in range(0, len(comparisons), columns)]
    heights = [max(len(each["figures"]) for each in row) + 2.2 for row in rows]
    figure = Figure(figsize=(7.5 if columns == 1 else 11, 0.4 + 0.3 * sum(heights)), layout="constrained")
    figure.suptitle(command, fontsize=9, x=0.01, ha="left")
    grid = figure.subplots(len(rows), columns, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, comparison in zip(grid.flat, comparisons, strict=False):
        names, values = list(comparison["figures"]), list(comparison["figures"].values())
        colours = [OURS if "operad" in name or "execute" in name else OTHERS for name in names]
        bars = axes.barh(names, values, color=colours)
        axes.bar_label(bars, [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in values], padding=3)
        axes.set_facecolor("none")
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.xaxis.set_visible(False)
        axes.set_title(f"{comparison['title']} ({comparison['unit']})", fontsize=10, loc="left")
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    for axes in list(grid.flat)[len(comparisons) :]:
        axes.set_visible(False)
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    path.write_text(drawn.getvalue().replace("</defs>", f"</defs>\n <style>{STYLE}</style>", 1), encoding="utf-8")
