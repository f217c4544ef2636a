"""The walls of the house: who may call upstairs, and what keeps each module small. A breach is planted for each."""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tools import rooms

ROOT = Path(__file__).parents[2]


CORE = rooms.modules(ROOT / "core" / "src")
SOURCES = rooms.sources()
NAMES = [source.parent.name for source in SOURCES]
FACES = {"operad", "operad.plugin", "operad.testing", "operad.auth", "operad.sync"}
"""What an author of a plugin needs of the core."""
GROUND = {name for name in CORE if name.count(".") == 1 and rooms.room(name) == "ground"}
PUBLIC = FACES | GROUND | {"operad.config"}
"""What a distribution may import of the core: the faces, the modules of the ground, and the face of `operad.config`."""
SKELETON = ROOT / "plugins" / "cli" / "src" / "operad_cli" / "template" / "skeleton"
AUTHORS = {
    "template": sorted(SKELETON.rglob("*.py.jinja")),
    **{
        example.name: [path for part in ("src", "tests") for path in (example / part).rglob("*.py")]
        for example in sorted(ROOT.glob("examples/operad-*"))
    },
}
"""The files of ours that are written as by any author of a plugin: they need the faces alone."""
BEYOND = {"operad-tcp-calls": {"operad.wire"}}
"""What else an author needs: a wire of one's own needs the strict JSON of the core."""
DISTRIBUTIONS = {source.parent.name: sorted(source.rglob("*.py")) for source in SOURCES[1:]}


# --- the rules ---------------------------------------------------------------------------------------


def climbs(found: dict[str, Path]) -> list[str]:
    """Imports from a room above the importer's own."""
    return [
        f"{name}:{line} imports {target}"
        for name, target, line in rooms.imports(found)
        if name not in rooms.FACES and rooms.floor(target) > rooms.floor(name)
    ]


def ring(found: dict[str, Path], but: Iterable[str] = ()) -> list[str]:
    """Modules that import one another in a circle, of the first circle that there is."""
    arrows: dict[str, set[str]] = {name: set() for name in found}
    for name, target, _ in rooms.imports(found):
        if name not in but:
            arrows[name].add(target)
    state: dict[str, int] = {}

    def visit(name: str, path: tuple[str, ...]) -> list[str]:
        if state.get(name) == 1:
            return [*path[path.index(name) :], name]
        if state.get(name) == 2:
            return []
        state[name] = 1
        for target in sorted(arrows[name]):
            if circle := visit(target, (*path, name)):
                return circle
        state[name] = 2
        return []

    for name in sorted(arrows):
        if circle := visit(name, ()):
            return circle
    return []


def too_long(found: dict[str, Path]) -> dict[str, int]:
    """The modules above the bound, outside the kit."""
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in found.items()}
    return {
        name: length
        for name, length in lengths.items()
        if length > rooms.LONGEST and not name.startswith("operad_testing")
    }


def flat(found: dict[str, Path]) -> list[str]:
    """The modules that lie side by side in the core itself."""
    return [
        name
        for name, path in found.items()
        if name.count(".") == 1 and path.name != "__init__.py" and name not in rooms.LAZY
    ]


def not_public(path: Path, public: Iterable[str] = frozenset(FACES)) -> list[str]:
    """The modules of the core that a file imports, or imports from, though they are not public."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jinja":
        text = re.sub(r"{{.*?}}", "x", text)
    found: set[str] = set()
    for node in rooms.facts(text).imports:
        found |= {node.module or ""} if isinstance(node, ast.ImportFrom) else {*rooms.targets(node)}
    return sorted(name for name in found - {*public} if name.partition(".")[0] == "operad")


def breaches(files: Iterable[Path], public: Iterable[str]) -> dict[str, list[str]]:
    """What files import though it is not public, by file."""
    return {str(path): names for path in files if (names := not_public(path, public))}


def over(sizes: dict[str, int]) -> dict[str, int]:
    """The rooms and distributions with more lines than their budget."""
    return {name: lines for name, lines in sizes.items() if lines > rooms.BUDGETS.get(name, 0)}


_IGNORE = re.compile(r"# (?:type: ignore(?:\[[^]]*\])?|noqa(?:: [A-Z0-9, ]+)?|pragma: no cover)(?P<reason>.*)$")


def unexplained(path: Path) -> list[str]:
    """Ignores of a checker with no reason beside them."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = ((number, _IGNORE.search(line)) for number, line in enumerate(lines, 1))
    return [f"{path.name}:{number}" for number, match in found if match and not match["reason"].strip(" #-")]


PAGE = ROOT / "docs" / "architecture.md"
_FILE = r"(?:\w+/)*\w+\.py"
_DEFINED = re.compile(r"^ *(?:class|(?:async )?def) (\w+)|^ *(?:self\.)?(\w+)(?:: | = )", re.MULTILINE)


def unclear(found: dict[str, Path]) -> dict[str, str]:
    """The modules whose first line is not a sentence: it is missing, or goes on in the next line."""
    lines = {name: rooms.facts_of(path).first for name, path in found.items()}
    return {name: line for name, line in lines.items() if not line.endswith((".", "…"))}


@cache
def _known() -> dict[str, set[str]]:
    """The names that files define, by each end of a file's path; by the empty one all of them, and parts of paths."""
    known: dict[str, set[str]] = defaultdict(set)
    for folder in [*SOURCES, *(source.parent / "tests" for source in SOURCES), ROOT / "tools", ROOT / "tests"]:
        for here, below, files in os.walk(folder):
            below[:] = [name for name in below if name != "node_modules" and not name.startswith(".")]
            for path in (Path(here, name) for name in files if name.endswith(".py")):
                text, parts = path.read_text(encoding="utf-8"), path.relative_to(ROOT).parts
                names = {name for pair in _DEFINED.findall(text) for name in pair}
                for start in range(len(parts)):
                    known["/".join(parts[start:])] |= names
                known[""] |= names | {*parts[:-1], path.stem}
    return known


def missing_names(page: str) -> list[str]:
    """What the page names and does not exist: files, names, and names in the file beside them."""
    known = _known()
    names = [("", name) for name in re.findall(r"`([A-Z]\w+(?:\.\w+)*|\w+_\w+)`", page)]
    names += [(file, name) for name, file in re.findall(rf"`([\w.]+)` \(`({_FILE})`\)", page)]
    wrong = [f"{name} in {file}" for file, name in names if not known.get(file, set()).issuperset(name.split("."))]
    return wrong + [file for file in re.findall(rf"`({_FILE})`", page) if file not in known]


# --- the walls ---------------------------------------------------------------------------------------


def test_nobody_in_the_core_imports_from_a_room_above() -> None:
    assert climbs(CORE) == []


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_no_modules_import_one_another_in_a_circle(source: Path) -> None:
    assert ring(rooms.modules(source), rooms.FACES) == []


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_no_module_is_longer_than_the_bound(source: Path) -> None:
    assert too_long(rooms.modules(source)) == {}


def test_few_modules_lie_side_by_side_in_the_core() -> None:
    assert len(flat(CORE)) <= rooms.FLAT


@pytest.mark.parametrize("author", AUTHORS)
def test_the_template_and_the_example_import_what_is_public_and_nothing_else(author: str) -> None:
    assert AUTHORS[author]
    assert breaches(AUTHORS[author], FACES | BEYOND.get(author, set())) == {}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_distribution_imports_of_the_core_what_is_public(distribution: str) -> None:
    assert DISTRIBUTIONS[distribution]
    assert breaches(DISTRIBUTIONS[distribution], PUBLIC) == {}


def test_the_schema_engine_imports_nothing_of_operad() -> None:
    assert breaches(DISTRIBUTIONS["schema"], ()) == {}


def test_each_room_and_distribution_is_within_its_budget() -> None:
    assert over(rooms.sizes()) == {}
    assert rooms.sizes().keys() <= rooms.BUDGETS.keys()


@pytest.mark.parametrize("folder", [source.parent for source in SOURCES], ids=NAMES)
def test_each_ignore_of_a_checker_carries_its_reason(folder: Path) -> None:
    files = [path for part in ("src", "tests") for path in (folder / part).rglob("*.py")]
    assert [breach for path in files for breach in unexplained(path)] == []


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_a_distribution_imports_the_distributions_that_the_table_names(source: Path) -> None:
    packages = {path.name for path in source.iterdir()} & rooms.DISTRIBUTIONS.keys()
    assert len(packages) == 1, "a new distribution needs a line in DISTRIBUTIONS of tools/rooms.py"
    assert rooms.imported(source) == rooms.allowed(packages.pop())


def test_the_page_is_written_from_the_tables_and_the_modules() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert rooms.written(text) == text, "run: python tools/rooms.py"


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_the_first_line_of_each_module_says_what_it_is_for(source: Path) -> None:
    assert unclear(rooms.modules(source)) == {}


def test_the_page_names_files_classes_and_functions_that_exist() -> None:
    assert missing_names(PAGE.read_text(encoding="utf-8")) == []


# --- that each wall holds ----------------------------------------------------------------------------


def _planted(tmp_path: Path, **files: str) -> dict[str, Path]:
    for name, text in {"__init__": "", **files}.items():
        file = (tmp_path / "src" / "operad").joinpath(*name.split("__0__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found: dict[str, Path] = rooms.modules(tmp_path / "src")
    return found


@pytest.mark.parametrize(
    "text",
    [
        "from operad.registry.map import X",
        "def f():\n    from operad.registry.map import X",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from operad.registry.map import X",
        "import operad.registry.map",
    ],
)
def test_a_planted_import_upward_is_found(tmp_path: Path, text: str) -> None:
    assert climbs(_planted(tmp_path, errors=text, registry__0__map="X = 1"))


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    planted = _planted(tmp_path, a="from operad.b import x", b="def f():\n    from operad.a import y")
    assert ring(planted) == ["operad.a", "operad.b", "operad.a"]


def test_a_planted_module_above_the_bound_is_found(tmp_path: Path) -> None:
    planted = _planted(tmp_path, a="\n" * rooms.LONGEST, b="\n" * (rooms.LONGEST + 1))
    assert too_long(planted) == {"operad.b": rooms.LONGEST + 1}


def test_planted_modules_side_by_side_are_counted_and_those_of_a_room_are_not(tmp_path: Path) -> None:
    assert flat(_planted(tmp_path, a="", b="", registry__0__map="")) == ["operad.a", "operad.b"]


@pytest.mark.parametrize(
    "text",
    [
        "from operad.registry.map import X",
        "import operad.registry.map as m",
        "def f():\n    from operad import x\n    import operad.errors",
    ],
)
def test_a_planted_import_of_what_is_not_public_is_found(tmp_path: Path, text: str) -> None:
    file = tmp_path / "planted.py"
    file.write_text("import operad\nimport operad_x\nfrom operad.plugin import Source\n")
    assert not_public(file) == []
    file.write_text(text)
    assert not_public(file)


def test_a_room_that_outgrows_its_budget_is_found() -> None:
    lines = rooms.BUDGETS["operad/registry"]
    assert over({"operad/registry": lines, "operad_mcp": 1}) == {}
    assert over({"operad/registry": lines + 1}) == {"operad/registry": lines + 1}
    assert over({"operad_new": 1}) == {"operad_new": 1}


def test_a_room_that_the_drawing_lacks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "FLOORS", ((*rooms.FLOORS[0], "attic"), *rooms.FLOORS[1:]))
    monkeypatch.setitem(rooms.WHAT, "attic", "a room without a line in the drawing")
    monkeypatch.setattr(rooms, "room", lambda name: "attic" if name == "operad.errors" else "ground")
    assert "attic" in rooms.drawing()
    text = PAGE.read_text(encoding="utf-8")
    assert rooms.written(text) != text


def test_a_planted_import_of_another_distribution_is_found(tmp_path: Path) -> None:
    package = tmp_path / "operad_search"
    package.mkdir()
    (package / "index.py").write_text("import operad\n")
    assert rooms.imported(tmp_path) == rooms.allowed("operad_search")
    (package / "plugin.py").write_text("def f():\n    from operad_mcp.client import x")
    assert rooms.imported(tmp_path) - rooms.allowed("operad_search") == {"mcp"}


def test_a_module_that_the_lists_lack_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _planted(tmp_path, attic='"""Keep old things."""')
    monkeypatch.setattr(rooms, "sources", lambda: [tmp_path / "src"])
    assert rooms.lists().endswith("- `attic`: Keep old things.")


@pytest.mark.parametrize("text", ["", '"""A first line that goes on\nin the next one."""'])
def test_a_planted_module_without_a_first_line_is_found(tmp_path: Path, text: str) -> None:
    found = _planted(tmp_path, a=text)
    assert "operad.a" in unclear(found)


@pytest.mark.parametrize(
    "text", ["`no_such_name`", "`Entry.no_such_name`", "`no/such_file.py`", "`check_access` (`registry/entry.py`)"]
)
def test_a_planted_name_that_does_not_exist_is_found(text: str) -> None:
    assert missing_names("`check_access` (`access.py`), `Entry.admit`, `registry/entry.py`") == []
    assert missing_names(text)


def test_a_planted_ignore_without_a_reason_is_found(tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    bare, checker = "ignore[x]", "no" + "qa: E501"
    file.write_text(f"a = 1  # type: {bare}\nb = 2  # type: {bare}  # why\nc = 3  # {checker}\n")
    assert unexplained(file) == ["planted.py:1", "planted.py:3"]
