"""Mutation testing: do the tests notice when the code says something else?

    python -m uv run --group mutants python tools/mutants.py --count 150
    python -m uv run --group mutants python tools/mutants.py --package operad_calls --without '*_steps.py::*'

Mutants are drawn by a seed, by default the hash of the commit, so that everybody draws the same ones. For each,
a fork of this process runs the tests that reach its line until one fails. Which those are is read from maps of
coverage, made once for each commit (`--maps`). What runs as its module is imported is changed by importing the
mutant in place of the module; of all else the code of the functions is exchanged, after the tests were collected
once for all. A mutant is noticed if a test fails with it twice and passes without it: on a busy machine some fail
by themselves. A mutant that survives is printed with its place; one that changes nothing that can be seen (speed,
a message that nobody reads) survives rightly, and is still counted; `equivalent_mutants.txt` says why of some.
`--from` and `--to` run a part of the draw. With `--without`, a mutant that the other tests do not notice is tried
with the tests that match: it lists those of them that have to stay, as few as are enough.

Not drawn, since nothing can come of it: texts, annotations, `TYPE_CHECKING`, defaults of signatures without a body
(overloads, protocols), `slots=` of a class, and `return None` as itself.

It takes minutes, so nothing runs it but a person.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import importlib.machinery
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    path.name: path
    for source in (ROOT / "core" / "src", ROOT / "schema" / "src", *ROOT.glob("plugins/*/src"))
    for path in source.iterdir()
    if (path / "__init__.py").exists()
}
"""The folders of all packages of the project, by name."""
PYTEST = [
    "-q", "-x", "-n0", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # of what is in WARM
]  # fmt: skip
FIRST = 40
"""How many of the tests that know most about a line are tried before the rest."""
BASELINE = 60
"""Seconds that the tests may take which are run without any mutant."""
SLOW = 0.3
"""A test that takes longer, in seconds, is run after all others."""
MEMORY = 4 << 30
"""How many bytes the tests of one mutant may use."""
WARM = [
    "pytest", "hypothesis", "hypothesis.stateful", "attrs", "cattrs", "msgspec", "pluggy", "jsonschema",
    "jsonschema_rs", "pydantic", "asyncio", "concurrent.futures",
]  # fmt: skip
"""What every fork has at hand: nothing of operad."""

REASONS = {
    mutant: reason
    for mutant, _, reason in (
        line.rpartition(" = ")
        for line in Path(__file__).with_name("equivalent_mutants.txt").read_text("utf-8").splitlines()
        if not line.startswith("#")
    )
}
"""Why what no test can tell from the code is the same: see the file."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.BitOr: ast.BitAnd,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change: the module, the line, what was there, the code of the module before and after, and whether the
    line runs as the module is imported."""

    path: Path
    line: int
    what: str
    before: CodeType
    code: CodeType
    at_import: bool = False


class _Change(ast.NodeTransformer):
    """Makes the change with a number, counting the possible ones as it walks."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted = wanted
        self.count = 0
        self.line = 0
        self.what = ""
        self.at_import = False
        self._depth = 0

    def _here(self, node: Any, what: str) -> bool:
        self.count += 1
        if self.count - 1 != self.wanted:
            return False
        self.at_import = not self._depth
        self.line, self.what = node.lineno, f"{what}: {ast.unparse(node).splitlines()[0][:90]}"
        return True

    def visit(self, node: ast.AST) -> Any:
        """The node, or what stands for it."""
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return node
        if isinstance(node, ast.arg):
            return node  # its annotation is nobody's behaviour
        return super().visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Only the value: an annotation is nobody's behaviour."""
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_keyword(self, node: ast.keyword) -> Any:
        """Not `slots=True`: it saves memory and shows nowhere."""
        return node if node.arg == "slots" else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """Body and defaults, not annotations and decorators; nothing of a signature without a body."""
        if all(isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in node.body):
            return node
        self._depth += 1
        node.body = [self.visit(one) for one in node.body]
        self._depth -= 1
        node.args.defaults = [self.visit(one) for one in node.args.defaults]
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815  # ast names it so

    def visit_Compare(self, node: ast.Compare) -> Any:
        """`<` as `<=`, `==` as `!=`, and so on."""
        self.generic_visit(node)
        other = COMPARISONS.get(type(node.ops[0]))
        if other is not None and self._here(node, f"compares by {other.__name__}"):
            node.ops[0] = other()
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """`and` as `or`."""
        self.generic_visit(node)
        if self._here(node, "and/or"):
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """`not x` as `x`."""
        self.generic_visit(node)
        return node.operand if isinstance(node.op, ast.Not) and self._here(node, "without not") else node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        """`+` as `-`, and so on."""
        self.generic_visit(node)
        other = OPERATIONS.get(type(node.op))
        if other is not None and self._here(node, f"computes by {other.__name__}"):
            node.op = other()
        return node

    def visit_Constant(self, node: ast.Constant) -> Any:
        """`n` as `n + 1`, `True` as `False`."""
        value = node.value
        if isinstance(value, bool):
            return ast.copy_location(ast.Constant(not value), node) if self._here(node, "the other bool") else node
        if isinstance(value, int) and self._here(node, "one more"):
            return ast.copy_location(ast.Constant(value + 1), node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        """Texts stay."""
        return node

    def visit_If(self, node: ast.If) -> Any:
        """`if x` as `if not x`."""
        self.generic_visit(node)
        if self._here(node, "if not"):
            node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        return node

    def visit_Return(self, node: ast.Return) -> Any:
        """`return x` as `return None`, where it is not that already."""
        self.generic_visit(node)
        nothing = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        if not nothing and self._here(node, "returns None"):
            node.value = ast.copy_location(ast.Constant(None), node)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        """An assignment to an attribute or an item, left out."""
        self.generic_visit(node)
        writes = any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
        return ast.copy_location(ast.Pass(), node) if writes and self._here(node, "left out") else node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """`x += y`, left out."""
        self.generic_visit(node)
        return ast.copy_location(ast.Pass(), node) if self._here(node, "left out") else node

    def visit_Expr(self, node: ast.Expr) -> Any:
        """A call for its effect, left out; a docstring stays."""
        if isinstance(node.value, ast.Constant):
            return node
        self.generic_visit(node)
        left = isinstance(node.value, ast.Call) and self._here(node, "left out")
        return ast.copy_location(ast.Pass(), node) if left else node

    def visit_Continue(self, node: ast.Continue) -> Any:
        """`continue` as `break`."""
        return ast.copy_location(ast.Break(), node) if self._here(node, "breaks") else node


def mutants(package: Path, rooms: list[str], count: int, seed: str) -> Iterator[Mutant]:
    """So many different mutants of some rooms of a package, or of single modules, drawn by a seed."""
    places: list[tuple[Path, int]] = []
    for room in rooms:
        place = package / room
        for path in [place] if place.suffix else sorted(place.rglob("*.py")):
            counted = _Change()
            counted.visit(ast.parse(path.read_text("utf-8")))
            places.extend((path, number) for number in range(counted.count))
    for path, number in random.Random(seed).sample(places, min(count, len(places))):  # noqa: S311  # no secret
        change = _Change(number)
        text = path.read_text("utf-8")
        tree = ast.fix_missing_locations(change.visit(ast.parse(text)))
        before = compile(text, str(path), "exec")
        yield Mutant(path, change.line, change.what, before, compile(tree, str(path), "exec"), change.at_import)


PLUGIN = """
import coverage, json, os, pytest
watch = coverage.Coverage(data_file=None, config_file=False, source=[os.environ["MUTANTS_SOURCE"]])
watch.start()
def pytest_configure(config):
    config.pluginmanager.register(Watch(), "mutants-watch")
class Watch:
    seconds = {}
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        watch.switch_context(item.nodeid)
        return (yield)
    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
    def pytest_sessionfinish(self):
        watch.stop()
        data = watch.get_data()
        source = os.environ["MUTANTS_SOURCE"]
        lines = {os.path.relpath(name, source): data.contexts_by_lineno(name) for name in data.measured_files()}
        with open(os.environ["MUTANTS_MAP"], "w") as file:
            json.dump({"lines": lines, "seconds": self.seconds}, file)
"""


def mapped(package: Path, tests: str, file: Path) -> Any:
    """What one folder of tests reaches of a package, from `file`, which is made where it is not there."""
    if not file.exists():
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "mutants_watch.py").write_text(PLUGIN, "utf-8")
            environment = {**os.environ, "MUTANTS_MAP": str(file), "MUTANTS_SOURCE": str(package),
                           "PYTHONPATH": folder}  # fmt: skip
            words = [word for word in PYTEST if word != "-x"]
            command = [sys.executable, "-m", "pytest", *words, "-p", "mutants_watch", tests]
            subprocess.run(command, cwd=ROOT, env=environment, check=False)
    return json.loads(file.read_text("utf-8"))


class Reach:
    """Which tests reach which line, and how long each takes.

    Args:
        package: the folder of the package that is changed.
        tests: folders of tests.
        maps: the folder of the maps of coverage, one for each folder of tests.
    """

    def __init__(self, package: Path, tests: list[str], maps: Path) -> None:
        self.package = package
        self._lines: dict[str, dict[str, list[str]]] = {}
        self._seconds: dict[str, float] = {}
        maps.mkdir(parents=True, exist_ok=True)
        for folder in tests:
            found = mapped(package, folder, maps / f"{package.name}-{folder.replace('/', '-')}.json")
            self._seconds.update(found["seconds"])
            for module, lines in found["lines"].items():
                known = self._lines.setdefault(module, {})
                for line, names in lines.items():
                    known[line] = [*known.get(line, ()), *names]
        self._weights = Counter(
            test for module in self._lines.values() for tests in module.values() for test in tests
        )

    def imported(self, mutant: Mutant) -> bool:
        """Whether the line of a mutant runs as modules are imported, and in no test."""
        return mutant.at_import or set(self._of(mutant).get(str(mutant.line), ())) == {""}

    def tests(self, mutant: Mutant) -> list[str]:
        """Those that reach the line of a mutant; first quick ones of little else, which know most about it."""
        module = self._of(mutant)
        found = set(module.get(str(mutant.line), ()))
        if not found:
            # Python 3.11 does not tell coverage what follows an ``await`` that an exception was thrown into.
            first = max(
                code.co_firstlineno for code in _codes(mutant.before) if code.co_firstlineno <= mutant.line
            )
            found = {test for line in range(first, mutant.line) for test in module.get(str(line), ())}
        if self.imported(mutant):  # whatever uses the module reaches it, or names it: `test_figures[calls.flow]`
            name = f"[{'.'.join(mutant.path.relative_to(self.package).with_suffix('').parts)}]"
            found = {test for tests in module.values() for test in tests}
            found |= {test for test in self._seconds if test.endswith(name)}
        return sorted(
            filter(None, found), key=lambda test: (self.seconds([test]) > SLOW, self._weights[test], test)
        )

    def reaches(self, mutant: Mutant) -> bool:
        """Whether any test is known to reach the line of a mutant."""
        return mutant.at_import or str(mutant.line) in self._of(mutant)

    def _of(self, mutant: Mutant) -> dict[str, list[str]]:
        return self._lines.get(str(mutant.path.relative_to(self.package)), {})

    def some(self, count: int) -> list[str]:
        """Tests that reach little, to try whether they pass."""
        return [test for test, _ in reversed(self._weights.most_common()) if test][:count]

    def seconds(self, tests: Sequence[str]) -> float:
        """How long some tests took."""
        return sum(self._seconds.get(test, 0.0) for test in tests)


class _Replaced(MetaPathFinder, Loader):
    """Imports the mutant where its module is asked for."""

    def __init__(self, mutant: Mutant, package: Path) -> None:
        self._mutant = mutant
        parts = mutant.path.relative_to(package.parent).with_suffix("").parts
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The spec of the one module."""
        if name != self._name:
            return None
        place = [str(self._mutant.path.parent)] if self._mutant.path.stem == "__init__" else None
        spec = importlib.machinery.ModuleSpec(name, self, origin=str(self._mutant.path))
        spec.submodule_search_locations = place
        spec.has_location = True
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Run the mutant's code."""
        exec(self._mutant.code, module.__dict__)  # noqa: S102  # the project's own source, changed in one place


class _Chosen:
    """Of the tests of a few files those that are wanted, in the order in which they are."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._order = {test: number for number, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out all others."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
        )


class _Begun:
    """The test that a fork began last, for its parent to read."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # open until this process ends

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write the test down."""
        os.ftruncate(self._file.fileno(), 0)
        os.pwrite(self._file.fileno(), nodeid.encode(), 0)

    def clear(self) -> None:
        """Forget the test of an earlier fork."""
        os.ftruncate(self._file.fileno(), 0)

    def read(self) -> str:
        """The test; empty if none was begun."""
        return os.pread(self._file.fileno(), 65_536, 0).decode()


BEGUN = _Begun()


def fails(run: Callable[[], int], seconds: float) -> bool:
    """Whether a run in a fork of this process ends with another code than 0, or not in time."""
    BEGUN.clear()
    child = os.fork()
    if child == 0:
        _alone(run)
    end = time.monotonic() + seconds
    failed = True
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            failed = os.waitstatus_to_exitcode(status) != 0
            break
        time.sleep(0.005)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # with what it started and left
    with suppress(ChildProcessError):
        os.waitpid(child, 0)
    return failed


def _alone(run: Callable[[], int]) -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))  # a mutant may ask for all there is
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    sys.dont_write_bytecode = True
    try:
        os._exit(run())
    except BaseException:  # noqa: BLE001  # whatever it is, the mutant was noticed
        os._exit(70)


def import_instead(mutant: Mutant, package: Path, tests: Sequence[str]) -> int:
    """Import a mutant in place of its module, which was not imported yet, and run tests; their exit code."""
    import pytest

    sys.meta_path.insert(0, _Replaced(mutant, package))
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    return int(pytest.main([*PYTEST, *files], plugins=[_Chosen(tests), BEGUN]))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def exchanged(mutant: Mutant) -> dict[tuple[str, int], CodeType] | None:
    """The code of each function that a mutant changes, by name and first line; None where that does not tell."""
    before, after = list(_codes(mutant.before)), list(_codes(mutant.code))
    if len(before) != len(after):
        return None
    places = Counter((code.co_qualname, code.co_firstlineno) for code in before)
    changed = {}
    for old, new in zip(before, after, strict=True):
        place = (old.co_qualname, old.co_firstlineno)
        if old != new:
            if places[place] > 1 or old.co_freevars != new.co_freevars:
                return None
            changed[place] = new
    return changed


class Session:
    """A session of pytest that collected all tests and runs some of them again and again, in forks."""

    def __init__(self, work: Callable[[Session], None]) -> None:
        self._work = work
        self._items: dict[str, Any] = {}
        self._functions: dict[str, list[FunctionType]] = {}

    def pytest_runtestloop(self, session: Any) -> bool:
        """Do the work in place of running every test once."""
        self._pytest = session
        self._items = {item.nodeid: item for item in session.items}
        gc.collect()
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                self._functions.setdefault(one.__code__.co_filename, []).append(one)
        gc.freeze()
        self._work(self)
        return True

    def run(self, tests: Sequence[str]) -> int:
        """Run some tests; 1 if one fails."""
        session, hook = self._pytest, self._pytest.config.hook
        session.items = [self._items[test] for test in tests]
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                break
        session._setupstate.teardown_exact(None)
        return int(session.testsfailed > 0)

    def exchange(self, mutant: Mutant, package: Path, tests: Sequence[str]) -> int:
        """Run some tests with the code of a mutant; 1 if one fails."""
        sys.meta_path.insert(
            0, _Replaced(mutant, package)
        )  # a module that only a test imports has no functions yet
        codes = exchanged(mutant) or {}
        for function in self._functions.get(str(mutant.path), ()):
            code = codes.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if code is not None:
                function.__code__ = code
        return self.run(tests)


Run = Callable[[Sequence[str]], int]
"""Runs tests; returns 0 if all pass."""


class Trial:
    """Tries mutants and says what becomes of each.

    Args:
        reach: which tests reach what.
        cap: how many seconds of tests are run for one mutant at most; what they do not notice counts as surviving.
        patience: how many seconds longer than before the tests of one mutant may take.
        without: patterns of tests that are tried last, to tell what would be lost without them.
    """

    def __init__(self, reach: Reach, cap: float, patience: float, without: Sequence[str]) -> None:
        self._reach = reach
        self._without = without
        self._cap = cap
        self._patience = patience
        self.figures: Counter[str] = Counter()
        self.needed: Counter[str] = Counter()
        """Tests that match `without` and notice mutants which no other test notices."""

    def of(self, number: int, mutant: Mutant, run: Run, plain: Run) -> None:
        """Try one, by a function that runs tests with it, and one that runs them without."""
        self._run, self._plain = run, plain
        began = time.monotonic()
        tests = self._reach.tests(mutant)
        last = [test for test in tests if any(fnmatchcase(test, pattern) for pattern in self._without)]
        found = self._found(self._capped([test for test in tests if test not in last]))
        if last and found != "noticed" and (needed := self._first(last)):
            self.needed[needed] += 1
            found = f"noticed by {needed} alone"
        if found == "survived" and not self._reach.reaches(mutant):
            found = "not reached"
        self.figures["noticed by tests left out alone" if found.endswith(" alone") else found] += 1
        module = mutant.path.relative_to(self._reach.package.parent)
        place = f"{module}:{mutant.line} {mutant.what}"
        if found == "survived" and (reason := REASONS.get(f"{module}: {mutant.what}")):
            place += f" (equivalent: {reason})"
        print(
            f"{number} {found} ({len(tests)} tests, {time.monotonic() - began:.1f} s): {place}",
            file=sys.__stdout__,
            flush=True,
        )

    def _found(self, tests: list[str]) -> str:
        for part in (tests[:FIRST], tests[FIRST:]):
            left = part
            while left and self._fails(self._run, left):
                last = BEGUN.read()
                if last not in left or (self._fails(self._run, [last]) and not self._fails(self._plain, [last])):
                    return "noticed"
                left = left[left.index(last) + 1 :]  # the test fails now and then, or for another reason
        return "survived" if tests else "not reached"

    def _fails(self, run: Run, tests: list[str]) -> bool:
        return fails(partial(run, tests), self._patience + 3 * self._reach.seconds(tests))

    def _first(self, tests: list[str]) -> str | None:
        """A test that notices the mutant: one that is needed already, or the first that fails."""
        stay = [test for test in tests if test in self.needed]
        for some in (stay, self._capped([test for test in tests if test not in self.needed])):
            if self._found(some) == "noticed":
                # The shortest beginning that fails ends with the test.
                few, many = 0, len(some)
                while many - few > 1:
                    half = (few + many) // 2
                    few, many = (few, half) if self._found(some[:half]) == "noticed" else (half, many)
                return some[many - 1]
        return None

    def _capped(self, tests: list[str]) -> list[str]:
        seconds = 0.0
        for number, test in enumerate(tests):
            seconds += self._reach.seconds([test])
            if seconds > self._cap:
                return tests[:number]
        return tests


def main() -> None:
    """Draw mutants, try the tests on each, and say which survive."""
    parser = argparse.ArgumentParser(description="Mutation testing of one package.")
    parser.add_argument("--package", choices=sorted(PACKAGES), default="operad")
    parser.add_argument("--rooms", nargs="+", default=[""], help="folders of the package, or modules: ids/tags.py")
    parser.add_argument("--tests", nargs="+", help="folders of tests; default: those of the distribution")
    parser.add_argument("--without", nargs="+", default=[],
                        help="tests, as '*_steps.py::*': tell what is lost without them")  # fmt: skip
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--from", type=int, default=0, dest="start", help="the first mutant of the draw to try")
    parser.add_argument("--to", type=int, help="the first one that is not tried any more")
    parser.add_argument("--seed", help="default: the hash of the commit")
    parser.add_argument("--cap", type=float, default=120, help="seconds of tests for one mutant at most")
    parser.add_argument("--patience", type=float, default=15, help="how many seconds longer than before the tests "
                        "of one mutant may take; one that never ends is noticed, too")  # fmt: skip
    parser.add_argument("--maps", type=Path, help="where the maps of coverage are kept; default: temporary files")
    options = parser.parse_args()
    os.chdir(ROOT)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    seed = options.seed or head.strip()
    package = PACKAGES[options.package]
    tests = options.tests or [str(package.parents[1].relative_to(ROOT) / "tests")]
    reach = Reach(package, tests, options.maps or Path(tempfile.gettempdir(), f"operad-reach-{head.strip()[:12]}"))
    for module in WARM:
        importlib.import_module(module)
    print(f"seed {seed}, {options.count} mutants of {package.name}", file=sys.__stdout__, flush=True)
    drawn = list(enumerate(mutants(package, options.rooms, options.count, seed)))[options.start : options.to]
    trial = Trial(reach, options.cap, options.patience, options.without)
    tried = _import_all(drawn, reach, trial)
    _exchange_all([one for one in drawn if one[0] not in tried], tests, reach, trial)
    for test, number in sorted(trial.needed.items()):
        print(f"needed for {number}: {test}", file=sys.__stdout__)
    noticed = 100 * trial.figures["noticed"] / max(1, sum(trial.figures.values()))
    print(dict(trial.figures), f"{noticed:.0f} % noticed", file=sys.__stdout__)


def _import_all(drawn: list[tuple[int, Mutant]], reach: Reach, trial: Trial) -> set[int]:
    """Try what has to be imported, before this process imports the project; which those were."""
    wanted = [(number, mutant) for number, mutant in drawn if reach.imported(mutant) or exchanged(mutant) is None]
    same = reach.package / "__init__.py"
    code = compile(same.read_text("utf-8"), str(same), "exec")
    plain = partial(import_instead, Mutant(same, 0, "", code, code), reach.package)
    if fails(partial(plain, reach.some(FIRST)), BASELINE):
        sys.exit("the tests fail without any mutant: run them, mend that, and remove the maps of coverage")
    for number, mutant in wanted:
        trial.of(number, mutant, partial(import_instead, mutant, reach.package), plain)
    return {number for number, _ in wanted}


def _exchange_all(drawn: list[tuple[int, Mutant]], tests: list[str], reach: Reach, trial: Trial) -> None:
    """Try all others, in one session of pytest."""
    import pytest

    def work(session: Session) -> None:
        if fails(partial(session.run, reach.some(FIRST)), BASELINE):
            sys.exit("the tests fail without any mutant: run them, mend that, and remove the maps of coverage")
        for number, mutant in drawn:
            trial.of(number, mutant, partial(session.exchange, mutant, reach.package), session.run)

    if drawn:
        # Not the streams' descriptors: what one fork leaves in them would be read by the next.
        pytest.main([*PYTEST, "--capture=sys", *tests], plugins=[Session(work), BEGUN])


if __name__ == "__main__":
    main()
