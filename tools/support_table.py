"""Write docs/support.md: what each source, envelope kind and transport can do, from what their suites declare.

The declarations are read, not imported: ``capabilities = SourceCapabilities(…)`` in a class of a conformance test.
Transports declare theirs on the transport itself. ``--check`` only says whether the page is up to date.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

from operad import load_plugins
from operad_testing import (
    EnvelopeKindCapabilities,
    EnvelopeKindConformance,
    SourceCapabilities,
    SourceConformance,
    TransportConformance,
    support_table,
)

sys.path.insert(0, str(Path(__file__).parent.parent))
from tools import versions  # as a script, this file does not have the root on its path

ROOT = versions.ROOT
PAGE = ROOT / "docs" / "support.md"
SUITES: dict[str, tuple[type[Any], type[Any]]] = {
    "SourceConformance": (SourceConformance, SourceCapabilities),
    "EnvelopeKindConformance": (EnvelopeKindConformance, EnvelopeKindCapabilities),
}
URLS = ("ws://127.0.0.1:1", "nats://127.0.0.1:1", "redis://127.0.0.1:1")

INTRODUCTION = """\
# What each plugin can do

Made by `tools/support_table.py` from what the conformance tests of each plugin declare, and therefore test. The
classes of the kit (`operad.testing`) document what each word means.
"""

SUITE = """\
Run by `tests/peers/mcp/test_mcp_suite.py`, through a registry. The skills extension (SEP-2640) does not apply:
skills are not offered.
"""

VERSIONS = """\
Every change is tested with CPython 3.11 and the pinned versions of `pyproject.toml`. The other runs are made
before a release, and write their rows: `nox -s floors newest pythons`. Other versions are not tested.

Linux is tested. The workflows have rows for macOS and Windows, but these systems are not verified yet.

MCP and serving are tested under uvloop, too: `nox -s uvloop`.

CPython 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 have a defect in asyncio (CVE-2024-12254): `StreamWriter.drain` does
not wait. operad-nats works around it; newer patch releases do not need that.
"""


def declared(files: list[Path], base: str) -> list[type[Any]]:
    """The suites of a kind in test files, as classes that hold what was declared; the first one of each source."""
    suite, capabilities = SUITES[base]
    found: dict[Any, type[Any]] = {}
    for file in files:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and any(ast.unparse(parent) == base for parent in node.bases):
                members = _members(node, capabilities)
                subject = members.get("source", members.get("kind_source", node.name))
                found.setdefault(subject, type(node.name, (suite,), members))
    return list(found.values())


def _members(node: ast.ClassDef, capabilities: type[Any]) -> dict[str, Any]:
    members: dict[str, Any] = {"capabilities": capabilities()}
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, value = statement.targets[0].id, statement.value
            if name == "capabilities" and isinstance(value, ast.Call):
                keywords = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in value.keywords}
                members[name] = capabilities(**keywords)
            elif name in ("source", "kind_source"):
                members[name] = ast.literal_eval(value)
    return members


def transports() -> list[type[Any]]:
    """A class for each transport: its scheme and its capabilities."""
    from operad import InProcessTransport

    plugins = load_plugins(strict=True)
    made = [(url.partition(":")[0], plugins.transport(url)) for url in URLS]
    made.append(("nats, durable", plugins.transport("nats://127.0.0.1:1", durable=True)))
    made.append(("in process", InProcessTransport()))
    return [
        type(name, (TransportConformance,), {"name": name, "capabilities": transport.capabilities})
        for name, transport in made
    ]


def suite_of_mcp() -> str:
    """Which runs of the official conformance suite of MCP the tests make, and hold to pass."""
    test = ROOT / "tests" / "peers" / "mcp" / "test_mcp_suite.py"
    for node in ast.parse(test.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RUNS":
            runs = ast.literal_eval(node.value)
            break
    else:
        raise SystemExit(f"{test} has no RUNS")
    lines = [f"| `{name}` | {count} | all |" for name, (_, count) in runs.items()]
    return "\n".join(["| run | scenarios | pass |", "|---|---|---|", *lines])


def page() -> str:
    """The whole page."""
    files = sorted(
        [*ROOT.glob("plugins/*/tests/test_*conformance.py"), *ROOT.glob("examples/*/tests/*conformance.py")]
    )
    tables = {
        "Sources": declared(files, "SourceConformance"),
        "Envelope kinds": declared(files, "EnvelopeKindConformance"),
        "Transports": transports(),
    }
    parts = [f"## {title}\n\n{support_table(suites)}\n" for title, suites in tables.items()]
    parts.append(f"## MCP: the official conformance suite, as a client\n\n{SUITE}\n{suite_of_mcp()}\n")
    parts.append(f"## Versions\n\n{VERSIONS}\n{versions.block()}")
    return "\n".join([INTRODUCTION, *parts])


def main() -> int:
    """Write the page, or check it."""
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
