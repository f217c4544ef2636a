"""What type checkers make of the public API: mypy and pyright, both strict, over programs that say the types."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import operad
import operad.plugin
import operad.sync
import operad.testing

PROGRAM = """
from typing import Any, ClassVar

import attrs

from operad import (
    EnvelopeKind, Operation, OperationContext, OperationRegistry, OperationSpec, Plugins, ResponseEnvelope,
    load_plugins, local_envelope, operation, unwrap,
)
from operad.plugin import Source, SourceContext, SourceSession, TransportFactory, hookimpl
from operad.testing import Example, SourceCapabilities, SourceConformance

@operation
async def plain(a: int, b: str = "x") -> list[int]:
    return [a]

@operation(namespace="math", type="query", title="Add")
async def add(a: int, b: int) -> int:
    return a + b

reveal_type(plain)                      # Operation[[a: int, b: str =], Coroutine[Any, Any, list[int]]]
reveal_type(add)                        # Operation[[a: int, b: int], Coroutine[Any, Any, int]]
answer = add(1, 2)
reveal_type(answer)                     # Coroutine[Any, Any, int]
wrong = add("one", 2)                   # error: arg-type
reveal_type(unwrap(ResponseEnvelope(3, None)))  # int
reveal_type(ResponseEnvelope("x", None))        # ResponseEnvelope[str]
reveal_type(ResponseEnvelope("x", None).data)   # str

def number(envelope: ResponseEnvelope[int]) -> int:
    return envelope.data

number(ResponseEnvelope(1, None))
number(ResponseEnvelope("x", None))     # error: arg-type
wider: ResponseEnvelope[object] = ResponseEnvelope(1, None)

async def use(registry: OperationRegistry) -> None:
    reveal_type(await registry.execute("math.add", {"a": 1}))  # ResponseEnvelope[Any]
    async for envelope in registry.subscribe("math.count"):
        reveal_type(envelope)           # ResponseEnvelope[Any]
    async with OperationRegistry(load_plugins()) as opened:
        reveal_type(opened)             # OperationRegistry
    reveal_type(await registry.load("scanner", path="x"))      # list[OperationSpec]
    registry.register(add)
    registry.register(3)                # error: call-overload

@attrs.frozen
class Config:
    address: str

async def load(config: Config, context: SourceContext) -> SourceSession:
    async def fly(input: dict[str, Any], context: OperationContext) -> str:
        return config.address
    return SourceSession([Operation(OperationSpec(namespace="a", name="b"), fly)])

@hookimpl
def operad_sources() -> list[Source]:
    return [Source("pigeon", load, Config, "Pigeons.")]

reveal_type(operad_sources())           # list[Source]

class TestPigeons(SourceConformance):
    source = "pigeon"
    capabilities = SourceCapabilities(calls=True)
    example = Example("fly", {"to": "Rome"})
"""


def test_the_types_are_what_the_documentation_says(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--cache-dir",
        str(tmp_path),
        str(program),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    expected, found = {}, {}
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        code, _, comment = line.partition("#")
        if "reveal_type" in code or "error:" in comment:
            expected[number] = comment.strip()
    for line in done.stdout.splitlines():
        if revealed := re.match(r'.*program\.py:(\d+): note: Revealed type is "(.*)"', line):
            found[int(revealed[1])] = re.sub(r"\b(?:\w+\.)+(?=\w)", "", revealed[2])
        elif error := re.match(r".*program\.py:(\d+): error: .*\[(.*)\]", line):
            found[int(error[1])] = f"error: {error[2]}"
    assert found == expected, done.stdout + done.stderr


SAMPLES = Path(__file__).with_name("samples.py")
EXAMPLES = Path(__file__).parents[2] / "examples" / "embedding"
TYPED = [
    str(EXAMPLES / f"{name}.py") for name in ("interceptors", "typed_calls", "views", "idempotency", "notebook")
]
"""Examples that need the core alone."""
FACES = (operad, operad.plugin, operad.sync, operad.testing)


def generics() -> set[str]:
    """What is generic of the public names: classes with parameters, functions and methods with type variables."""
    return {
        name for face in FACES for name in face.__all__ for word in _generic(name, getattr(face, name)) if word
    }


def _generic(name: str, value: object) -> list[str]:
    methods = (
        [found for key, found in vars(value).items() if not key.startswith("_")] if inspect.isclass(value) else []
    )
    told = [method for method in (value, *methods) if inspect.isfunction(method)]
    variables = re.compile(r"(?<![\w.])(T|T_co|R|R_co|P\.args)(?!\w)")
    found = [name for one in told for hint in one.__annotations__.values() if variables.search(str(hint))]
    return [*found, name] if getattr(value, "__parameters__", ()) else found


def test_every_public_generic_is_among_the_samples() -> None:
    assert generics() >= {"Operation", "ResponseEnvelope", "Subscription", "OperationRegistry", "unwrap", "run"}
    told = SAMPLES.read_text()
    assert {name for name in generics() if not re.search(rf"\b{name}\b", told)} == set()


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


def test_mypy_sees_the_samples_as_they_say(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(SAMPLES), *TYPED]
    assert lines_with_errors(command, tmp_path) == wrong()


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
