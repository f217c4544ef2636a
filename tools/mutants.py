"""Mutation testing: do the tests notice when the code says something else?

    python -m uv run --group mutants python tools/mutants.py --rooms schemas --tests core/tests/schemas --count 60

Mutants are drawn by a seed, by default the hash of the commit, so that everybody draws the same ones. Each is
put into a copy of the package that stands before the real one on the path, and the tests that reach its line
run until one fails. Which those are is read from a map of coverage, made once for each commit (`--map`). A
mutant that survives is printed with its place; one that changes nothing that can be seen (speed, a message
that nobody reads) survives rightly, and is still counted.

It takes minutes to hours, so nothing runs it but a person.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "core" / "src"
PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-x",
    "--no-header",
    "-p",
    "no:cacheprovider",
    "--hypothesis-seed=0",
]
SECONDS = 180
"""How long the tests of one mutant may take; one that never ends is noticed, too."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.BitOr: ast.BitAnd,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change: the module, the line, what was there, and the whole text of the changed module."""

    path: Path
    line: int
    what: str
    text: str


class _Change(ast.NodeTransformer):
    """Makes the change with a number, counting the possible ones as it walks."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted = wanted
        self.count = 0
        self.line = 0
        self.what = ""

    def _here(self, node: Any, what: str) -> bool:
        self.count += 1
        if self.count - 1 != self.wanted:
            return False
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

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """Body and defaults, not annotations and decorators."""
        node.body = [self.visit(one) for one in node.body]
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
        """`return x` as `return None`."""
        self.generic_visit(node)
        if node.value is not None and self._here(node, "returns None"):
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


def mutants(rooms: list[str], count: int, seed: str) -> Iterator[Mutant]:
    """So many different mutants of the modules of some rooms, drawn by a seed."""
    places: list[tuple[Path, int]] = []
    for room in rooms:
        for path in sorted((SOURCE / "operad" / room).rglob("*.py")):
            counted = _Change()
            counted.visit(ast.parse(path.read_text("utf-8")))
            places.extend((path, number) for number in range(counted.count))
    for path, number in random.Random(seed).sample(places, min(count, len(places))):  # noqa: S311  # no secret
        change = _Change(number)
        tree = ast.fix_missing_locations(change.visit(ast.parse(path.read_text("utf-8"))))
        yield Mutant(path, change.line, change.what, ast.unparse(tree) + "\n")


PLUGIN = """
import atexit, coverage, os, pytest
watch = coverage.Coverage(data_file=None, config_file=False, source=[os.environ["MUTANTS_SOURCE"]])
watch.start()
def pytest_configure(config):
    config.pluginmanager.register(Watch(), "mutants-watch")
class Watch:
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        watch.switch_context(item.nodeid)
        return (yield)
    def pytest_sessionfinish(self):
        import json
        watch.stop()
        data = watch.get_data()
        lines = {name: data.contexts_by_lineno(name) for name in data.measured_files()}
        with open(os.environ["MUTANTS_MAP"], "w") as file:
            json.dump(lines, file)
"""


def reach(tests: list[str], file: Path) -> dict[str, dict[int, list[str]]]:
    """Which tests reach which line, by module; from `file`, which is made where it is not there."""
    if not file.exists():
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "mutants_watch.py").write_text(PLUGIN, "utf-8")
            environment = {**os.environ, "MUTANTS_MAP": str(file), "MUTANTS_SOURCE": str(SOURCE / "operad"),
                           "PYTHONPATH": folder}  # fmt: skip
            command = [word for word in PYTEST if word != "-x"]
            subprocess.run([*command, "-p", "mutants_watch", *tests], cwd=ROOT, env=environment, check=False)
    found = json.loads(file.read_text("utf-8"))
    return {name: {int(line): tests for line, tests in lines.items()} for name, lines in found.items()}


def survives(mutant: Mutant, tests: list[str], copy: Path) -> bool:
    """Whether the tests pass with a mutant."""
    place = copy / mutant.path.relative_to(SOURCE)
    place.write_text(mutant.text, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*PYTEST, *tests], cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    finally:
        shutil.copy(mutant.path, place)
    return done.returncode == 0


def main() -> None:
    """Draw mutants, try the tests on each, and say which survive."""
    parser = argparse.ArgumentParser(description="Mutation testing of the core.")
    parser.add_argument("--rooms", nargs="+", default=["schemas", "registry", "calls"])
    parser.add_argument("--tests", nargs="+", default=["core/tests"])
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--most", type=int, default=90, help="the tests tried before the rest")
    parser.add_argument("--seed", help="default: the hash of the commit")
    parser.add_argument("--map", type=Path, help="where the map of coverage is kept; default: a temporary file")
    options = parser.parse_args()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    seed = options.seed or head.stdout.strip()
    name = hashlib.sha256("\0".join([head.stdout, *options.tests]).encode()).hexdigest()[:12]
    lines = reach(options.tests, options.map or Path(tempfile.gettempdir(), f"operad-reach-{name}.json"))
    print(f"seed {seed}, {options.count} mutants of {', '.join(options.rooms)}", flush=True)
    weights = Counter(test for module in lines.values() for tests in module.values() for test in tests)
    figures = {"noticed": 0, "survived": 0, "not reached": 0}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(SOURCE / "operad", copy / "operad", ignore=shutil.ignore_patterns("__pycache__"))
        for mutant in mutants(options.rooms, options.count, seed):
            tests = [test for test in lines.get(str(mutant.path), {}).get(mutant.line, []) if test]
            tests.sort(key=lambda test: (weights[test], test))
            outcome = "not reached"
            if tests:
                # Those of little else know most about the line, those of everything see it all; then the rest.
                few = [*tests[: options.most], *tests[options.most :][-options.most // 3 :]]
                rest = tests[options.most : -options.most // 3]
                lives = survives(mutant, few, copy) and (not rest or survives(mutant, rest, copy))
                outcome = "survived" if lives else "noticed"
            figures[outcome] += 1
            if outcome != "noticed":
                place = mutant.path.relative_to(SOURCE)
                print(f"{outcome} ({len(tests)} tests): {place}:{mutant.line} {mutant.what}", flush=True)
    print(figures, f"{100 * figures['noticed'] / max(1, sum(figures.values())):.0f} % noticed")


if __name__ == "__main__":
    main()
