"""What type checkers make of the public API: mypy and pyright, both strict, over programs that say the types."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_overloads

import pytest

import operad
import operad.plugin
import operad.sync
import operad.testing


def mypy(cache: str) -> list[str]:
    return [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache]


SAMPLES = Path(__file__).with_name("samples.py")
EXAMPLES = Path(__file__).parents[2] / "examples" / "embedding"
TYPED = [
    str(EXAMPLES / f"{name}.py") for name in ("interceptors", "typed_calls", "views", "idempotency", "notebook")
]
"""Examples that need the core alone."""
FACES = (operad, operad.plugin, operad.sync, operad.testing)


def generics() -> set[str]:
    """What is generic of the public names: ``operad.Operation`` (a class), ``operad.run``, ``operad.Registry.call``."""
    return {found for face in FACES for name in face.__all__ for found in _generic(face, name)}


def _generic(face: ModuleType, name: str) -> Iterator[str]:
    value, told = getattr(face, name), f"{face.__name__}.{name}"
    if not inspect.isclass(value):
        if getattr(value, "__parameters__", ()) or _has_variables(value):
            yield told
        return
    if getattr(value, "__parameters__", ()):
        yield told
    for key, member in inspect.getmembers_static(value):
        if (
            (key.startswith("__") or not key.startswith("_"))
            and key != "__attrs_init__"
            and _has_variables(member)
        ):
            yield f"{told}.{key}"


VARIABLE = re.compile(r"(?<![\w.])(T|T_co|R|R_co|P\.args|P)(?!\w)")


def _has_variables(member: object) -> bool:
    """Whether a function, method or property of ours says a type variable in its signatures."""
    member = getattr(member, "__func__", getattr(member, "fget", member))
    if not inspect.isfunction(member) or not member.__module__.startswith("operad"):
        return False
    signatures = (member, *get_overloads(member))
    return any(VARIABLE.search(str(hint)) for one in signatures for hint in one.__annotations__.values())


def test_every_public_generic_has_a_line_among_the_samples_that_says_its_type() -> None:
    assert generics() >= {"operad.OperationRegistry.call", "operad.sync.OperationRegistry.stream", "operad.unwrap"}
    assert generics() - set(proofs()) == set()
    assert set(proofs()) - generics() == set()


def proofs() -> dict[str, int]:
    """For each generic the line of the samples that would be an error if its type were another one."""
    lines = SAMPLES.read_text().splitlines()
    return {
        f"operad.{name}": number
        for number, line in enumerate(lines, 1)
        if (told := re.match(r" *(?:async )?\S.*  # proves ([^#]*?)(?: # wrong)?$", line))
        for name in told[1].split(", ")
    }


PYRIGHT = Path(__file__).parent / "node_modules" / "pyright" / "index.js"


def lines_with_errors(command: list[str], cwd: Path) -> set[int]:
    """The lines of the samples that a type checker complains of; it must not of anything else."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert not re.findall(r"^(?!.*samples\.py).* error: .*", done.stdout, re.MULTILINE), done.stdout
    return {int(number) for number in re.findall(r"samples\.py:(\d+):[\d: -]*error", done.stdout)}


def wrong() -> set[int]:
    lines = SAMPLES.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


def with_wrong_types() -> tuple[str, set[int]]:
    """The samples, whose proofs say a type that is not there, and the lines of those."""
    lines = SAMPLES.read_text().splitlines()
    changed = set()
    for number in proofs().values():
        line = lines[number - 1]
        if not line.endswith("# wrong"):
            said = ast.parse(line.strip().replace("await ", "      ")).body[0]
            assert isinstance(said, ast.Expr)
            assert isinstance(said.value, ast.Call)
            assert ast.unparse(said.value.func) == "assert_type", line
            start = len(line) - len(line.lstrip()) + said.value.args[1].col_offset
            lines[number - 1] = f"{line[:start]}Wrong)"
            changed.add(number)
    return "\n".join([*lines, "class Wrong: ..."]), changed


def test_mypy_sees_the_samples_as_they_say(tmp_path: Path, mypy_cache: str) -> None:
    assert lines_with_errors([*mypy(mypy_cache), str(SAMPLES), *TYPED], tmp_path) == wrong()
    text, changed = with_wrong_types()
    mutant = tmp_path / "mutant_samples.py"
    mutant.write_text(text)
    assert lines_with_errors([*mypy(mypy_cache), str(mutant)], tmp_path) == wrong() | changed


@pytest.mark.long
@pytest.mark.node
@pytest.mark.skipif(
    shutil.which("node") is None or not PYRIGHT.exists(),
    reason=f"needs node and pyright; run: npm install --prefix {PYRIGHT.parents[2]}",
)
def test_pyright_sees_the_samples_as_they_say(tmp_path: Path) -> None:
    settings = {
        "typeCheckingMode": "strict",
        "include": ["."],
        "reportUnusedExpression": False,  # a cell of a notebook ends with what it shows
    }
    for program in (str(SAMPLES), *TYPED):
        shutil.copy(program, tmp_path)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = ["node", str(PYRIGHT), "--pythonpath", sys.executable, "--project", str(tmp_path)]
    assert lines_with_errors(command, tmp_path) == wrong()
