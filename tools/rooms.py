"""The rooms of the project and the walls between them: one table, which tests and drawing share.

``python tools/rooms.py`` writes the drawing of docs/architecture.md anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

FLOORS: tuple[tuple[str, ...], ...] = (
    ("operad", "plugin", "testing", "sync"),
    ("calls",),
    ("registry",),
    ("plugins",),
    ("functions", "config", "auth"),
    ("ground",),
    ("schemas",),
)
"""The rooms of the core, the highest floor first. A module imports from its own floor and the floors below."""

WHAT = {
    "operad": "the public names, lazily",
    "plugin": "all that authors of plugins need",
    "testing": "the conformance kit",
    "sync": "the same for programs without an event loop",
    "calls": "the call protocol: calling and serving over any transport",
    "registry": "the one path of a call: look up, admit, run, finish",
    "plugins": "finding plugins, checking them, holding what they contribute",
    "functions": "typed functions as operations",
    "config": "operad.toml, its variables and tables",
    "auth": "who calls, and what this process shows to others",
    "ground": "the nouns: errors, envelopes, operations, contexts, transports",
    "schemas": "JSON Schema; knows nothing of operad",
}

FACES = frozenset({"operad", "operad.plugin", "operad.hookspecs"})
"""What may name anything: signatures are their content."""

LONGEST = 450
"""Lines of a module; what is longer comes apart at its seams."""

FLAT = 20
"""Modules that may lie side by side in the core itself."""


class Import(NamedTuple):
    """One module imports another, in whatever way."""

    importer: str
    imported: str
    line: int


def modules(source: Path) -> dict[str, Path]:
    """The modules below a ``src`` folder, by their dotted names."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(found: dict[str, Path]) -> Iterator[Import]:
    """Every import of one of the modules by another one: at the top, in a function, for type checkers."""
    for name, path in found.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for target in targets:
                while target and target not in found:
                    target = target.rpartition(".")[0]
                if target and target != name:
                    yield Import(name, target, node.lineno)


def room(module: str) -> str:
    """The room of a module of the core; a package or module that FLOORS does not name lies on the ground."""
    head = module.split(".")[1] if "." in module else "operad"
    return head if head in WHAT else "ground"


def floor(module: str) -> int:
    """How high a module of the core lies; 0 is the lowest floor."""
    return next(height for height, rooms in enumerate(reversed(FLOORS)) if room(module) in rooms)


def drawing() -> str:
    """The floors as text, the highest first, and what each room is for."""
    there = {room(name) for name in modules(ROOT / "core" / "src")}
    lines = []
    for rooms in FLOORS:
        lines += [f"| {name:<9} | {WHAT[name]:<62} |" for name in rooms if name in there]
        lines.append(f"+{'-' * 76}+")
    return "\n".join([lines[-1], *lines])


BEGIN, END = "<!-- rooms: written by tools/rooms.py -->\n```text\n", "\n```\n<!-- end of rooms -->"


def main() -> None:
    """Write the drawing into the page."""
    page = ROOT / "docs" / "architecture.md"
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    fresh = f"{head}{BEGIN}{drawing()}{END}{tail}"
    page.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
