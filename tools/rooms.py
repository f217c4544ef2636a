"""The rooms of the project, the walls between them and their budgets: one table for tests and drawings.

``python tools/rooms.py`` writes the drawing of docs/architecture.md and prints the size of every room.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

FLOORS: tuple[tuple[str, ...], ...] = (
    ("operad", "plugin", "sync"),
    ("registry",),
    ("plugins",),
    ("functions", "config"),
    ("ground",),
)
"""The rooms of the core, the highest floor first. A module imports from its own floor and the floors below it."""

WHAT = {
    "operad": "the public names, imported when they are first used",
    "plugin": "what authors of plugins need",
    "sync": "the same for programs without an event loop",
    "registry": "the one path of a call: look up, admit, run, finish",
    "plugins": "find plugins, check them, hold what they contribute",
    "functions": "typed functions as operations, and typed calls",
    "config": "operad.toml, its variables and tables",
    "ground": "the nouns: errors, envelopes, operations, contexts, transports",
}

FACES = frozenset({"operad", "operad.plugin", "operad.hookspecs", "operad.auth", "operad.testing"})
"""Modules that may name anything: signatures are their content."""

LAZY = frozenset({"operad.auth", "operad.testing"})
"""Names of other distributions; they are not modules of the ground."""

KERNEL = ("ground", "registry", "plugins")
"""The rooms that somebody who wants to understand operad reads first."""

BUDGETS: dict[str, int] = {
    "operad/ground": 3600,
    "operad/registry": 2850,
    "operad/plugins": 820,
    "operad/functions": 1800,
    "operad/config": 1250,
    "operad/sync": 760,
    "operad_auth": 2900,
    "operad_calls": 5300,  # with the base of broker links, which operad_nats and operad_redis share
    "operad_cli": 4100,
    "operad_llm": 1150,
    "operad_mcp": 10120,
    "operad_nats": 1800,
    "operad_openapi": 8700,
    "operad_opentelemetry": 300,
    "operad_redis": 1450,
    "operad_rules": 280,
    "operad_scanner": 400,
    "operad_schema": 5800,
    "operad_search": 360,
    "operad_serve": 4000,
    "operad_testing": 3750,  # frames and published schemas are checked, 90 lines
    "operad_websocket": 3300,
}
"""Lines of Python that a room or a distribution may have; whoever raises one writes the reason beside it."""

LONGEST = 450
"""Lines of a module; a longer one is split at its seams."""

FLAT = 24
"""Modules that may lie side by side in the core itself."""


class Import(NamedTuple):
    """One module imports another, in whatever way."""

    importer: str
    imported: str
    line: int


def sources() -> list[Path]:
    """Return the ``src`` folders of all distributions, the core first."""
    return [ROOT / "core" / "src", ROOT / "schema" / "src", *sorted((ROOT / "plugins").glob("*/src"))]


def modules(source: Path) -> dict[str, Path]:
    """Return the modules below a ``src`` folder, by their dotted names."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(found: dict[str, Path]) -> Iterator[Import]:
    """Yield every import of one of the modules by another: at the top, in a function, for type checkers."""
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
    """Return the room of a module of the core; one that FLOORS does not name is of the ground."""
    head = module.split(".")[1] if "." in module else "operad"
    return head if head in WHAT else "ground"


def floor(module: str) -> int:
    """Return how high a module of the core lies; 0 is the lowest floor."""
    return next(height for height, rooms in enumerate(reversed(FLOORS)) if room(module) in rooms)


def sizes() -> dict[str, int]:
    """Return the lines of Python of each room of the core and of each other distribution, as in `BUDGETS`."""
    counted: dict[str, int] = {}
    for source in sources():
        for name, path in modules(source).items():
            package = name.partition(".")[0]
            where = room(name) if package == "operad" else ""
            if where in ("operad", "plugin"):  # the two faces are part of the ground
                where = "ground"
            key = f"{package}/{where}" if where else package
            counted[key] = counted.get(key, 0) + len(path.read_text(encoding="utf-8").splitlines())
    return counted


def drawing() -> str:
    """Return the floors as text, the highest first, and what each room is for."""
    there = {room(name) for name in modules(ROOT / "core" / "src")}
    lines = []
    for rooms in FLOORS:
        lines += [f"| {name:<9} | {WHAT[name]:<62} |" for name in rooms if name in there]
        lines.append(f"+{'-' * 76}+")
    return "\n".join([lines[-1], *lines])


BEGIN, END = "<!-- rooms: written by tools/rooms.py -->\n```text\n", "\n```\n<!-- end of rooms -->"


def main() -> None:
    """Write the drawing into the page, and print the sizes."""
    page = ROOT / "docs" / "architecture.md"
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    fresh = f"{head}{BEGIN}{drawing()}{END}{tail}"
    page.write_text(fresh, encoding="utf-8")
    counted = sizes()
    for name, lines in sorted(counted.items()):
        print(f"{name:<24}{lines:>7} of {BUDGETS.get(name, 0)}")
    print(f"{'kernel':<24}{sum(counted[f'operad/{name}'] for name in KERNEL):>7}")
    print(f"{'all':<24}{sum(counted.values()):>7}")


if __name__ == "__main__":
    main()
