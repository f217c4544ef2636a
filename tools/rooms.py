"""The rooms of the project, the walls between them and their budgets: one table for tests and drawings.

``python tools/rooms.py`` writes the drawing and the lists of modules of docs/architecture.md, and prints the size
of every room.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]

FLOORS: tuple[tuple[str, ...], ...] = (
    ("operad", "plugin", "sync"),
    ("registry", "loading"),
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
    "loading": "sources in a registry: load them, follow their changes",
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

DISTRIBUTIONS: dict[str, tuple[str, str]] = {
    "operad_schema": ("JSON Schema: check, cast, explain, formats", ""),
    "operad": ("the kernel, typed functions, configuration, `operad.sync`", "schema"),
    "operad_calls": ("the call protocol: call map, call handler, source `remote`, transport in process", "operad"),
    "operad_auth": ("identities of callers, logins, stored tokens; host rules and retries over HTTP", "operad"),
    "operad_serve": (
        "the HTTP API, the explorer, the front door of `operad serve`",
        "operad, schema, auth, calls, cli (its command only)",
    ),
    "operad_search": ("ranked search, through the hook `operad_search`", "operad"),
    "operad_rules": (
        "idempotency keys and rules for calls, as interceptors",
        "operad, schema; cli (its command only)",
    ),
    "operad_testing": ("conformance kit, fixtures, cassettes", "operad, schema, calls, rules"),
    "operad_openapi": ("REST APIs described by OpenAPI documents, as operations", "operad, schema, auth"),
    "operad_mcp": (
        "MCP servers as operations; a registry as an MCP server",
        "operad, auth, serve (over HTTP only), cli (its command only)",
    ),
    "operad_cli": ("the command `operad`", "operad, schema, auth; calls and serve if they are installed"),
    "operad_code": ("code mode: programs over operations, in a sandbox", "operad, cli (its stubs, its command)"),
    "operad_websocket": ("a WebSocket hub and its spokes", "operad, auth, calls"),
    "operad_nats": ("the transport NATS", "operad, calls; testing in its own `testing.py`"),
    "operad_redis": ("the transport Redis", "operad, calls; testing in its own `testing.py`"),
    "operad_llm": ("operations as tools of language models", "operad"),
    "operad_opentelemetry": ("spans and metrics of calls", "operad"),
    "operad_scanner": ("a folder of Python files as operations", "operad"),
}
"""What each distribution is, and the distributions that it imports."""

BUDGETS: dict[str, int] = {
    # Docstrings have a summary line of their own, and sections for errors: 1 to 3 of 100 lines of each room.
    # With the registry of a source, 2 lines, and credentials of callers in contexts, 5; hints of errors, 3.
    # And patterns that are enforced or refused, 11; observers
    # of some operations, 21; lifespans, 95, and the use of sources, 54, from the registry.
    # And inputs in records of calls, and cheaper observers, 18.
    # And errors that ran nothing, where a source raised, and what a caller does not have, 17; docstrings, 2.
    # And observers whose own attributes fail, and bounded ids, 13.
    "operad/ground": 3670,
    # With interceptors that change operations when they are registered, 46 lines; nested plain functions that run
    # in the thread that waits for them, 93; an index of search that grows in steps, 50; Python values as inputs,
    # 16; interceptors that outlive their call, 19; patterns, 4; what closes with the registry, and observers of
    # some operations, 30; lifespans, 39; copies of inputs for interceptors, 12.
    "operad/registry": 2566,  # and inputs in records of calls, 17; docstrings, 14
    # With sessions in states, 4 lines; reloads without a gap, 155; reasons for unknown ids, 12.
    "operad/loading": 472,  # and an empty source of an unknown id, 3; docstrings, 16
    "operad/plugins": 782,  # with the variable that names a missing plugin, 6
    # With what notebooks show, what is written in classes, and sections of docstrings; errors of envelopes, 26;
    # optional contexts, 8.
    "operad/functions": 2035,  # and docstrings, 15
    # With arrays of tables, 25 lines, the tables of sources, 80, and words for types, 18; docstrings, 10.
    "operad/config": 1237,
    "operad/sync": 660,  # with docstrings, 10
    # With the parser of server-sent events for openapi and mcp, 180 lines; metrics, 10; the interface `Login`, 30.
    # And what callers see of errors of upstream servers, 45 lines from operad_serve.
    # And docstrings with arguments, errors and special values, and messages with what was received, 240.
    # And passwords with slashes in shown URLs, 5.
    "operad_auth": 4289,  # and credentials of callers, 305; accounts that users connect, 330; introspection, 215;
    # messages with what was received, 53
    # With the base of broker links, which operad_nats and operad_redis share; 10 for the options of the hook.
    # And Python values in inputs, 20.
    "operad_calls": 5187,  # with the docstrings of its three folders, 3
    # Files, pages, completed values, 250 lines; entries of MCP hosts, init, 250; docstrings; held operations, 5.
    "operad_cli": 4820,
    "operad_code": 1660,  # with its reasons of a timeout and of printed text, 4
    "operad_llm": 1150,
    # With the bound of results, CORS, clean descriptions of remote servers, and code mode; sessions of callers,
    # 265 lines; links to open, 20.
    # And held definitions in a file, and the command for them, 190; servers of a file that all fail, 5.
    # And held tools that are new, 25.
    # Notifications of changed resources for each caller alone, 47.
    # And subscriptions that are made again, bounded callbacks of sessions, and ports of URLs, 25.
    # And messages with their place and fix, 25.
    "operad_mcp": 10857,  # and a check of server objects, 5; docstrings that say more, 430; a 405, 2; URIs, 9
    "operad_nats": 1838,  # with docstrings, 35, and messages with a fix, 2
    # Streams of JSON values, inputs by intent, hooks of requests and responses, links to follow: 650 lines;
    # credentials of callers, 40; and newer ones after a refusal, 20; declared values of Accept-Encoding, 20;
    # references into unions, 20; closed members of an `allOf`, and bounds of compositions, 73.
    # And hosts of proxies and documents, 7; messages with their place and fix, 9.
    "operad_openapi": 9610,  # files of Python as objects, 8; a warning of one page, 5 lines; docstrings, 283
    "operad_opentelemetry": 312,  # with bounded codes of errors, 12
    # And ports of URLs, 4.
    "operad_redis": 1482,  # with docstrings, 27
    # With the keys of `[[rules]]`, 1,330 lines, and what closes with the registry.
    # And explanations in the order in which rules apply, 10; observers of some operations, 30; fixed arguments in
    # parts of schemas, and names that collide, 45; fields of objects, 15.
    # And audit logs that are moved, and lines that are lost, 27.
    "operad_rules": 2046,  # and fixed arguments of adapted inputs, 8; bounds of one caller, 15; docstrings, 103;
    # messages, 11;
    # rules that are added to others, 23; large results by caller, 12
    "operad_scanner": 465,  # with the lifespan of a folder, 60 lines, and docstrings, 22
    # With casts of three modes, 45 lines; patterns in two engines, and a list of those that are not checked, 90.
    "operad_schema": 6057,  # with docstrings that say more, 65
    "operad_search": 373,  # with postings of bytes, 10 lines; docstrings, 3
    # Tokens on the command line, and what needs no credentials, 60 lines; access log, metrics, HTTPS,
    # health with failed sources and bounded results, 350; programs, workers, reloading, 350; uploads, 150; what
    # upstreams are kept inside, and what the explorer needs, 150; pages where users connect accounts, 250; the
    # authorization server for MCP hosts and browsers, 1,590, its logins for those pages, 100, and renewals, 40.
    "operad_serve": 7086,  # and docstrings, 175; messages with what was received, 63
    # With checks of frames and published schemas, 90 lines, and of results that a store cannot keep, 20; the JSON
    # Schema of envelopes, 65.
    "operad_testing": 3986,  # threads that a test leaves behind, 60 lines; docstrings, 18
    # With anonymous spokes beside authenticated ones, 30 lines, checked frames, 50, and docstrings, 25; the file
    # of an encrypted key and the minimum of a drain, 10.
    "operad_websocket": 3419,
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


class Facts(NamedTuple):
    """What these tools read of the text of a module."""

    first: str
    """The first line of its docstring; empty if there is none."""
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    """Its absolute imports: at the top, in functions, for type checkers."""


@cache
def facts(text: str) -> Facts:
    """Read the text of a module; each text is parsed once."""
    tree = ast.parse(text)
    found: list[ast.Import | ast.ImportFrom] = []
    # Statements only: expressions are most of a tree, and import nothing.
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level):
            found.append(node)
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            stack += getattr(node, field, ())
    first = (ast.get_docstring(tree) or "").partition("\n")[0]
    return Facts(first, tuple(sorted(found, key=lambda node: node.lineno)))


def facts_of(path: Path) -> Facts:
    """Read a module."""
    return facts(path.read_text(encoding="utf-8"))


def targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that an import names, or what it takes of one."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}.{alias.name}" for alias in node.names]


def imports(found: dict[str, Path]) -> Iterator[Import]:
    """Yield every import of one of the modules by another: at the top, in a function, for type checkers."""
    for name, path in found.items():
        for node in facts_of(path).imports:
            for target in targets(node):
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


def imported(source: Path) -> set[str]:
    """Return the short names of the other distributions that a distribution imports, wherever it does so."""
    found = set()
    for path in source.rglob("*.py"):
        if "template" in path.parts:
            continue
        found |= {name.partition(".")[0] for node in facts_of(path).imports for name in targets(node)}
    own = {path.name for path in source.iterdir()}
    return {short(name) for name in (found & DISTRIBUTIONS.keys()) - own}


def short(package: str) -> str:
    """Return the name of a distribution in the table: ``calls`` for ``operad_calls``."""
    return package.removeprefix("operad_")


def allowed(package: str) -> set[str]:
    """Return the short names of the distributions that DISTRIBUTIONS lets one import."""
    names = {short(name) for name in DISTRIBUTIONS}
    text = re.sub(r"`[^`]*`|\([^)]*\)", "", DISTRIBUTIONS[package][1])
    return names & set(re.findall(r"\w+", text))


def table() -> str:
    """Return the table of the distributions."""
    folders = {path.name: source.parent for source in sources() for path in source.iterdir() if path.is_dir()}
    lines = ["| distribution | folder | what it is | imports |", "|---|---|---|---|"]
    for package, (what, imports_) in DISTRIBUTIONS.items():
        folder = folders[package].relative_to(ROOT).as_posix()
        lines.append(f"| `{package.replace('_', '-')}` | `{folder}/` | {what} | {imports_ or 'none'} |")
    return "\n".join(lines)


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


def lists() -> str:
    """Return what each module is for: one list for each room of the core and of each distribution."""
    found: dict[str, dict[str, Path]] = {}
    for source in sources():
        for name, path in modules(source).items():
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            found.setdefault(package, {})[name] = path
    lines = []
    for package, members in found.items():
        if len(members) == 1 and package in members:  # only the package itself: its room has no modules
            continue
        level = "###" if "." not in package else "####"
        lines += [f"{level} `{package}`", ""]
        if package in members:
            lines += [facts_of(members[package]).first, ""]
        lines += [
            f"- `{name.rpartition('.')[2]}`: {facts_of(path).first}"
            for name, path in members.items()
            if name != package
        ]
        lines.append("")
    return "\n".join(lines[:-1])


DRAWING = ("<!-- rooms: written by tools/rooms.py -->\n```text\n", "\n```\n<!-- end of rooms -->")
TABLE = ("<!-- distributions: written by tools/rooms.py -->\n\n", "\n\n<!-- end of distributions -->")
LISTS = ("<!-- modules: written by tools/rooms.py -->\n\n", "\n\n<!-- end of modules -->")


def written(text: str) -> str:
    """Return the page with the table, the drawing and the lists as they have to be now."""
    for (begin, end), fresh in ((TABLE, table()), (DRAWING, drawing()), (LISTS, lists())):
        head, found, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"docs/architecture.md: expected {begin.strip()!r} and {end.strip()!r}")
        text = f"{head}{begin}{fresh}{end}{tail}"
    return text


PAGE = ROOT / "docs" / "architecture.md"


def main() -> None:
    """Write the page, and print the sizes."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    counted = sizes()
    for name, lines in sorted(counted.items()):
        print(f"{name:<24}{lines:>7} of {BUDGETS.get(name, 0)}")
    print(f"{'kernel':<24}{sum(counted[f'operad/{name}'] for name in KERNEL):>7}")
    print(f"{'all':<24}{sum(counted.values()):>7}")


if __name__ == "__main__":
    main()
