"""The examples, each in an environment of only the distributions that it names (inline script metadata, PEP 723)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from operad_testing import free_port
from tests.kit import ROOT

EXAMPLES = ROOT / "examples"
EMBEDDING = EXAMPLES / "embedding"
METADATA = re.compile(r"^# /// script\n((?:#.*\n)+?)# ///$", re.MULTILINE)
NAMED = sorted(
    path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py") if METADATA.search(path.read_text())
)

SAYS: dict[str, str] = json.loads(Path(__file__).with_name("says.json").read_text())
"""What programs print; the others have tests of their own, below."""
PROGRAMS = [pytest.param(name, marks=pytest.mark.long if name.startswith("llm/") else ()) for name in sorted(SAYS)]


@pytest.fixture(scope="session")
def environment_of(make_environment: Any, wheels: dict[str, Path]) -> Callable[..., Any]:
    """The environment of an example: what it names, and nothing else; made once for all that name the same."""
    made: dict[tuple[str, ...], Any] = {}

    def environment(example: str, *more: str) -> Any:
        names = tuple(sorted({*named(example), *more}))
        if names not in made:
            made[names] = make_environment([wheels.get(name, name) for name in names])
        return made[names]

    return environment


def named(example: str) -> list[str]:
    """The distributions that an example names."""
    found = METADATA.search((EXAMPLES / example).read_text())
    assert found is not None, f"{example} names no distributions"
    metadata = tomllib.loads(re.sub(r"^# ?", "", found[1], flags=re.MULTILINE))
    assert metadata["requires-python"] == ">=3.11"
    dependencies: list[str] = metadata["dependencies"]
    return dependencies


def ran(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_of_embedding_names_its_distributions_and_is_run() -> None:
    parts = {
        path.relative_to(EXAMPLES).as_posix() for path in EMBEDDING.rglob("*.py") if "operations" not in path.parts
    }
    others = {"embedding/flask_app.py", "embedding/stubs/app.py", "embedding/test_weather.py"}
    assert parts <= set(NAMED)
    assert set(NAMED) == SAYS.keys() | others


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_runs_where_only_the_distributions_are_that_it_names(name: str, environment_of: Any) -> None:
    options = () if name.startswith("llm/") else ("-W", "error")
    assert SAYS[name] in ran(environment_of(name).run(*options, str(EXAMPLES / name)))


def test_the_example_of_tests_passes_and_asks_nobody(environment_of: Any, tmp_path: Path) -> None:
    shutil.copytree(EMBEDDING, tmp_path / "copy")
    environment = environment_of("embedding/test_weather.py")
    done = environment.run("-m", "pytest", "-q", "test_weather.py", cwd=tmp_path / "copy")
    assert "3 passed" in ran(done)


def test_the_example_of_stubs_writes_its_types_and_runs(environment_of: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(EMBEDDING / "stubs", tmp_path / "stubs")
    environment = environment_of("embedding/stubs/app.py")
    command = str(Path(environment.python).with_name("operad"))
    done = subprocess.run(
        [command, "stubs", "shop_types"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran(done) == "shop_types: 1 operation in 1 namespace\n"
    assert ran(environment.run("app.py", cwd=folder)) == "Persuasion 249\nEmma 474\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "folder"), [("stubs/app.py", "stubs"), ("typed_calls.py", "."), ("views.py", ".")]
)
def test_an_example_is_strictly_typed_where_a_type_checker_is_added(
    name: str, folder: str, environment_of: Any, tmp_path: Path
) -> None:
    copy = shutil.copytree(EMBEDDING, tmp_path / "copy") / folder
    environment = environment_of(f"embedding/{name}", "mypy")
    if folder == "stubs":
        ran(environment.run("-c", "from operad_cli.main import main; main()", "stubs", "shop_types", cwd=copy))
    assert "no issues" in ran(environment.run("-m", "mypy", "--strict", Path(name).name, cwd=copy))


def test_the_flask_application_runs_by_itself(environment_of: Any) -> None:
    done = environment_of("embedding/flask_app.py").run(str(EMBEDDING / "flask_app.py"))
    assert ran(done) == "9.50\n19.0\n422\n['3', '2', '1']\n"


@pytest.mark.long
def test_the_flask_application_serves_many_threads_and_is_done_with_streams_that_are_left(
    environment_of: Any,
) -> None:
    environment = environment_of("embedding/flask_app.py")
    port = free_port()
    command = [environment.python, "-m", "flask", "--app", str(EMBEDDING / "flask_app.py"), "run", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        while "Running on" not in server.stderr.readline():
            assert server.poll() is None
        base = f"http://127.0.0.1:{port}"

        def ask(amount: int) -> float:
            body = f'{{"item": "tea", "amount": {amount}}}'.encode()
            asked = Request(f"{base}/shop.price", body, {"Content-Type": "application/json"})
            with urlopen(asked, timeout=60) as answer:
                return float(answer.read())

        with ThreadPoolExecutor(16) as threads:
            assert list(threads.map(ask, range(1, 201))) == [9.5 * amount for amount in range(1, 201)]
        with urlopen(f"{base}/countdown/1000000", timeout=60) as stream:
            assert stream.readline() == b"1000000\n"
        assert ask(1) == 9.5
    finally:
        server.terminate()
        server.communicate(timeout=60)
