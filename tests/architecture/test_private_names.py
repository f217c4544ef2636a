"""Private names of dependencies: each use is in a table with its reason and the test that covers it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

from tools import rooms

ROOT = Path(__file__).parents[2]
SOURCES = {source.parent.name: source for source in rooms.sources()}
MOST = 8
"""Private names of dependencies in the whole project."""

TABLE: dict[tuple[str, str], tuple[str, str, str]] = {
    ("operad_mcp.wire.memory", "_lowlevel_server"): (
        "mcp",
        "`MCPServer` has no public way to the server that it is made of; the SDK's own client takes this one",
        "test_a_server_object_in_this_process_is_a_source",
    ),
    ("operad_mcp.server.changes", "_connection"): (
        "mcp",
        "the SDK tells in no other way which connection a request came over",
        "test_a_session_of_the_handshake_generation_hears_that_tools_changed",
    ),
    ("operad_nats._client", "_process_msg"): (
        "nats-py",
        "a subject that is not UTF-8 ends nats-py's reader without a word",
        "test_a_subject_that_is_not_utf_8_does_not_end_the_connection",
    ),
    ("operad_testing._leaks", "_scheduled"): (
        "",
        "an event loop offers no list of its timers; one without this attribute is not asked",
        "test_a_timer_that_is_left_is_named",
    ),
}
"""(module, name) -> (the dependency, or "" for Python; why there is no public way; the test that covers it)."""

PUBLIC = {
    "_replace", "_asdict", "_fields", "_make", "_repr_html_", "_ipython_key_completions_", "_missing_", "_exit",
    "_current_frames",
}  # fmt: skip
"""Documented names with an underscore: of named tuples, notebooks, enums, `os._exit` and `sys._current_frames`."""


def nodes_of(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


class Use(NamedTuple):
    """A private name that a module uses and its distribution does not define."""

    module: str
    name: str
    line: int


def is_private(name: str) -> bool:
    """Whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the private names that a module defines: functions, classes, variables, attributes, slots."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
            if node.id == "__slots__":
                continue
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                yield node.attr
        elif isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__slots__" for target in node.targets
        ):
            for part in ast.walk(node.value):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def uses(package: str, name: str, nodes: list[ast.AST], own: frozenset[str]) -> Iterator[Use]:
    """Yield the private names of others in a module: attributes, constants of ``getattr``, imports."""
    here = frozenset(defined(nodes))
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            # What a class inherits may be defined in another module; another object's names are of its own module.
            of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if node.attr not in (own if of_itself else here):
                yield Use(name, node.attr, node.lineno)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr", "setattr", "delattr")
        ):
            constant = node.args[1] if len(node.args) > 1 else None
            text = constant.value if isinstance(constant, ast.Constant) else None
            if isinstance(text, str) and is_private(text) and text not in own:
                yield Use(name, text, node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = node.module.split(".") if node.module.partition(".")[0] != package else []
            names = [alias.name for alias in node.names if f"{node.module}.{alias.name}" not in own]
            yield from (Use(name, part, node.lineno) for part in (*modules, *names) if is_private(part))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] != package:
                    yield from (Use(name, part, node.lineno) for part in alias.name.split(".") if is_private(part))


def overridden(module: str, nodes: Iterable[ast.AST]) -> Iterator[Use]:
    """Yield the private methods and attributes of foreign base classes that classes of a module replace."""
    try:
        found = importlib.import_module(module)
    except ImportError:  # an optional dependency that is not installed here
        return
    package = module.partition(".")[0]
    for node in nodes:
        cls = getattr(found, node.name, None) if isinstance(node, ast.ClassDef) else None
        if not inspect.isclass(cls) or cls.__module__ != module:
            continue
        assert isinstance(node, ast.ClassDef)
        foreign = [base for base in cls.__mro__ if base.__module__.partition(".")[0] != package]
        if private := {name for base in foreign for name in vars(base) if is_private(name)}:
            own = defined(ast.walk(ast.Module(node.body, [])))
            yield from (Use(module, name, node.lineno) for name in own if name in private)


@cache
def private_names(source: Path) -> list[Use]:
    """Return the uses of private names of others in a distribution."""
    modules = {name: nodes_of(path.read_text(encoding="utf-8")) for name, path in rooms.modules(source).items()}
    own = frozenset(name for nodes in modules.values() for name in defined(nodes)) | modules.keys()
    found = []
    for name, nodes in modules.items():
        found += [*uses(name.partition(".")[0], name, nodes, own), *overridden(name, nodes)]
    return found


@pytest.mark.parametrize("distribution", SOURCES)
def test_each_private_name_of_a_dependency_is_in_the_table(distribution: str) -> None:
    assert [use for use in private_names(SOURCES[distribution]) if (use.module, use.name) not in TABLE] == []


def test_each_entry_of_the_table_is_used_and_names_a_test_that_exists() -> None:
    used = {(use.module, use.name) for source in SOURCES.values() for use in private_names(source)}
    assert TABLE.keys() - used == set()
    tests = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("plugins/*/tests/**/test_*.py"))
    assert [test for _, _, test in TABLE.values() if f"def {test}(" not in tests] == []
    assert len({name for _, name in TABLE}) <= MOST


def bounded(requirements: list[str], dependency: str) -> bool:
    """Whether requirements name a dependency, and each that does has an upper bound."""
    named = [each for each in map(Requirement, requirements) if each.name == dependency]
    return bool(named) and all(
        any(part.operator in ("<", "<=", "==") for part in each.specifier) for each in named
    )


def test_each_dependency_with_a_private_name_has_an_upper_bound() -> None:
    for (module, _), (dependency, _, _) in TABLE.items():
        folder = SOURCES[module.partition(".")[0].removeprefix("operad_")].parent
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert not dependency or bounded(project["dependencies"], dependency), (folder.name, dependency)


def test_a_planted_requirement_without_an_upper_bound_is_found() -> None:
    assert bounded(["nats-py>=2.16,<2.17"], "nats-py")
    assert not bounded(["nats-py>=2.16"], "nats-py")
    assert not bounded(["attrs>=25"], "nats-py")


@pytest.mark.parametrize(
    "text",
    [
        "import asyncio\nasyncio.get_event_loop()._ready",
        "import asyncio\ngetattr(asyncio, '_get_running_loop')",
        "from opentelemetry.metrics._internal import X",
        "from asyncio import _get_running_loop",
        "import mcp.shared._httpx_utils",
        "class A:\n    def f(self):\n        return self._transport",
        "from operad_x.b import _x",
        "import operad_x.b\noperad_x.b._x()",
        "from operad_x import c\nc._x = 1",
    ],
)
def test_a_planted_private_name_is_found(text: str) -> None:
    nodes = nodes_of(text)
    assert list(uses("operad_x", "operad_x.planted", nodes, frozenset(defined(nodes))))


def test_a_planted_override_of_a_private_method_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import string\nclass A(string.Formatter):\n    def _vformat(self):\n        return 1\n"
    (tmp_path / "planted_override.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [use.name for use in overridden("planted_override", nodes_of(text))] == ["_vformat"]


def test_names_of_its_own_are_no_breach() -> None:
    text = "class A:\n    __slots__ = ('_x',)\n    def f(self, other):\n        return other._x\n"
    nodes = nodes_of(text)
    assert not list(uses("operad_x", "operad_x.planted", nodes, frozenset(defined(nodes))))


MOST_IN_TESTS = 34
"""Uses of private names in tests: lower it with each one that goes."""


PRIVATE = re.compile(r"(?<!\bself)(?<!\bcls)\._[a-zA-Z]")


def uses_in_tests() -> Counter[str]:
    """Count `x._name` by file, for every `x` other than `self` and `cls`."""
    found: Counter[str] = Counter()
    for path in [*ROOT.glob("*/tests/**/*.py"), *ROOT.glob("*/*/tests/**/*.py"), *ROOT.glob("tests/**/*.py")]:
        if any(part.startswith(".") or part == "node_modules" for part in path.relative_to(ROOT).parts):
            continue
        text = path.read_text("utf-8")
        if not PRIVATE.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                found[str(path.relative_to(ROOT))] += not own
    return found


def test_tests_use_few_private_names() -> None:
    uses = uses_in_tests()
    assert uses.total() <= MOST_IN_TESTS, (
        f"{uses.total()} uses of private names; most of them: {uses.most_common(5)}"
    )
