"""Draw the pictures of the documentation: ``python tools/pictures.py`` writes docs/images/*.svg.

A picture brings its own background and follows the colours that the reader's system asks for.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
STYLE = """
text { font: 15px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1c2321; }
.head { font-weight: 650; }
.small { font-size: 12.5px; fill: #55605c; }
.code { font-family: ui-monospace, monospace; font-size: 13px; }
.back { fill: #f6f8f7; } .box { fill: #fff; stroke: #c6d0cc; } .core { fill: #e0f0ea; stroke: #0b6b58; }
.line { stroke: #0b6b58; fill: none; stroke-width: 1.6; } .tip { fill: #0b6b58; }
@media (prefers-color-scheme: dark) {
  text { fill: #e8efec; }
  .small { fill: #a7b5b0; } .back { fill: #16201d; } .box { fill: #1f2b27; stroke: #43544e; }
  .core { fill: #12392f; stroke: #5fd0b5; } .line { stroke: #5fd0b5; } .tip { fill: #5fd0b5; }
}
"""
SOURCES = (
    ("Functions", "type hints"),
    ("REST APIs", "OpenAPI"),
    ("MCP servers", "stdio, HTTP"),
    ("Other processes", "hub, NATS, Redis"),
    ("Your adapter", "a plugin"),
)
DOORS = (
    ("Python", "await registry.execute(…)"),
    ("HTTP", "OpenAPI, explorer"),
    ("MCP hosts", "Claude, Cursor, VS Code"),
    ("Model APIs", "tools, code mode"),
    ("Other processes", "hub, NATS, Redis"),
)
STEPS = (
    ("find", "shop.getBook"),
    ("access", "scopes, resources"),
    ("input", "JSON Schema"),
    ("rules", "limits, approval, cache"),
    ("run", "deadline, cancellation"),
    ("result", "envelope or CallError"),
)


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    """Return a box with round corners."""
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="9" class="{kind}"/>'


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """Return a curved arrow that ends horizontally, to the right."""
    middle = (x + to_x) / 2
    curve = f'<path class="line" d="M{x} {y} C{middle} {y} {middle} {to_y} {to_x - 7} {to_y}"/>'
    return f'{curve}<path class="tip" d="M{to_x} {to_y} l-9 -4.5 v9 z"/>'


def overview() -> str:
    """Return the picture of concepts: callers, the path of a call, sources."""
    parts = [box(0, 0, 960, 430, "back")]
    heads = (("Callers", 30), ("One registry, one path for every call", 320), ("Sources of operations", 730))
    for title, x in heads:
        parts.append(text(x, 36, title, "head"))
    for number, ((door, about), (source, what)) in enumerate(zip(DOORS, SOURCES, strict=True)):
        y = 56 + number * 72
        middle = y + 28
        parts += [box(30, y, 205, 56), text(46, y + 24, door, "head"), text(46, y + 44, about, "small")]
        parts += [box(730, y, 200, 56), text(746, y + 24, source, "head"), text(746, y + 44, what, "small")]
        parts.append(arrow(235, middle, 320, 228 + (number - 2) * 16))
        parts.append(arrow(640, 228 + (number - 2) * 16, 730, middle))
    parts.append(box(320, 56, 320, 344, "core"))
    for number, (step, about) in enumerate(STEPS):
        y = 74 + number * 53
        parts += [box(340, y, 280, 43), text(356, y + 27, step, "head")]
        parts.append(text(604, y + 27, about, "code" if "." in about else "small", "end"))
    return _picture(960, 430, "Callers reach sources through one registry", parts)


def _picture(width: int, height: int, title: str, parts: list[str]) -> str:
    view = f'viewBox="0 0 {width} {height}" role="img" aria-label="{title}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {view}>'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


def pictures() -> dict[str, str]:
    """Return each picture by its name in docs/images."""
    return {"overview.svg": overview()}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    for name, picture in pictures().items():
        (folder / name).write_text(picture, encoding="utf-8")
