"""`operad serve app.py`, several workers, and reloading."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from operad import ConfigError, OperationRegistry, Plugins
from operad_serve import Plan, ServeOptions
from operad_serve.door import front_door, processes
from operad_serve.door.target import registry_of
from plugins.serve.tests import commands

OPERATIONS = """
import os
from operad import OperationRegistry, operation
import beside_{n}

@operation(namespace="math", type="query")
async def add(a: int, b: int) -> int:
    return a + b

@operation(namespace="math", type="query")
async def process() -> int:
    return os.getpid()
"""
REGISTRY = """
registry = OperationRegistry()
registry.register(add)

def make():
    return registry
"""
LIFESPAN = """
from contextlib import asynccontextmanager
from pathlib import Path
from operad import OperationContext, operation

@asynccontextmanager
async def lifespan(registry):
    yield "open"
    Path("ended").touch()

@operation(namespace="n", type="query")
async def state(context: OperationContext) -> str:
    return context.state
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program. Each test's modules have names of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    number = str(abs(hash(str(tmp_path))))
    (tmp_path / f"beside_{number}.py").write_text("")
    (tmp_path / f"functions_{number}.py").write_text(OPERATIONS.format(n=number))
    (tmp_path / f"one_{number}.py").write_text(OPERATIONS.format(n=number) + REGISTRY)
    (tmp_path / f"two_{number}.py").write_text(
        OPERATIONS.format(n=number) + REGISTRY + "other = OperationRegistry()"
    )
    (tmp_path / f"none_{number}.py").write_text("x = 1")
    (tmp_path / f"broken_{number}.py").write_text("1 / 0")
    return tmp_path


def named(folder: Path, target: str) -> str:
    """The target with the names of this test: ``@`` is their number."""
    number = next(folder.glob("beside_*.py")).stem.partition("_")[2]
    return target.replace("@", f"_{number}")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("functions@.py", ["math.add", "math.process"]),
        ("one@.py", ["math.add"]),
        ("one@.py:registry", ["math.add"]),
        ("one@.py:make", ["math.add"]),
        ("one@:registry", ["math.add"]),
        ("two@:other", []),
        ("functions@", ["math.add", "math.process"]),
    ],
)
def test_a_program_is_served_by_its_registry_or_else_by_its_functions(
    folder: Path, target: str, expected: list[str]
) -> None:
    registry = registry_of(named(folder, target))
    assert sorted(spec.id for spec in registry.specs()) == expected


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("missing.py", "file not found: missing.py; expected app.py, app.py:name"),
        ("missing_module:registry", 'module "missing_module" cannot be imported: .*; expected app.py'),
        ("missing_module.sub", 'module "missing_module.sub" cannot be imported: .*; expected app.py'),
        ("broken@", "ZeroDivisionError: division by zero$"),
        ("two@.py", "has 2 registries; choose one: two@.py:registry or two@.py:other"),
        ("one@.py:nothing", 'expected a registry called "nothing"'),
        ("one@.py:add", "expected an OperationRegistry, got Operation"),
        ("none@.py", "no OperationRegistry and no function with"),
        ("broken@.py", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_program_without_a_registry_is_refused_with_what_is_missing(
    folder: Path, target: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=named(folder, complaint)):
        registry_of(named(folder, target))


@asynccontextmanager
async def running(folder: Path, *arguments: str, until: str = "metrics ") -> AsyncIterator[Any]:
    """``operad serve`` in a folder, once it has reported ``until``: its process, and its base URL."""
    process = subprocess.Popen(
        [Path(sys.executable).with_name("operad"), "serve", *arguments],
        cwd=folder,
        stderr=subprocess.PIPE,
        env={**os.environ, "OPERAD_DISABLE_PLUGINS": "mcp"},  # which takes longer to import than all others
    )
    with process:
        try:
            yield process, re.search(r"http://[\d.:]+", await told(process, until))[0]  # type: ignore[index]  # else it fails
        finally:
            process.terminate()
            await asyncio.to_thread(process.communicate, timeout=60)


async def told(process: subprocess.Popen[bytes], until: str) -> str:
    """What a process reports, up to a line with a text."""
    assert process.stderr is not None
    text = ""
    async with asyncio.timeout(60):
        while until not in text:
            line = await asyncio.to_thread(process.stderr.readline)
            assert line, text
            text += line.decode()
    return text


def called(url: str, path: str) -> Any:
    """The value that a query returns, on a connection of its own."""
    with urllib.request.urlopen(f"{url}/operations/{path}") as response:
        return json.loads(response.read())


async def test_a_change_of_the_program_starts_it_again(folder: Path) -> None:
    program = folder / named(folder, "functions@.py")
    async with running(folder, program.name, "--http", "127.0.0.1:0", "--reload") as (process, url):
        assert await asyncio.to_thread(called, url, "math.add?a=1&b=2") == 3
        whole = program.read_text()
        program.write_text("1 / 0")
        assert "changed; reloading" in await told(process, "not serving; waiting for a change")
        program.write_text(whole.replace("a + b", "a - b"))
        again = re.search(r"http://[\d.:]+", await told(process, "metrics "))
        assert again is not None
        assert await asyncio.to_thread(called, again[0], "math.add?a=1&b=2") == -1
    assert process.returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals of one process")
async def test_workers_share_an_address_and_one_that_dies_is_replaced(folder: Path) -> None:
    found: set[int] = set()

    async def until_seen(count: int) -> None:
        """Call until so many processes have returned their number. Several calls at once reach all of them."""
        while len(found) < count:
            calls = (asyncio.to_thread(called, url, "math.process") for _ in range(4))
            found.update(await asyncio.gather(*calls))
            await asyncio.sleep(0.1)

    target = named(folder, "functions@.py")
    async with running(folder, target, "--http", "127.0.0.1:0", "--workers", "2") as (process, url):
        async with asyncio.timeout(60):
            await until_seen(2)
            first = min(found)
            os.kill(first, signal.SIGKILL)
            assert f"worker {first} ended" in await told(process, "starting another")
            await until_seen(3)
        assert process.pid not in found
    assert process.returncode == 0


def serve(*arguments: str) -> Any:
    """The result of the command in this process."""
    app = pytest.importorskip("operad_cli.app")
    return pytest.importorskip("click.testing").CliRunner().invoke(app.application(), ["serve", *arguments])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["functions@.py", "--reload", "--workers", "2"], "remove --workers"),
        (["functions@.py", "--mcp", "stdio", "--workers", "2"], "remove --mcp stdio"),
        (["functions@.py", "--config", "operad.toml"], "cannot be combined"),
    ],
)
def test_options_that_exclude_one_another_are_a_usage_error(
    folder: Path, arguments: list[str], complaint: str
) -> None:
    result = serve(*(named(folder, each) for each in arguments))
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())


def test_workers_with_idempotency_keys_in_memory_are_refused(folder: Path) -> None:
    pytest.importorskip("operad_rules")
    (folder / "operad.toml").write_text('[serve]\nhttp = "127.0.0.1:0"\n[idempotency]\n')
    assert "set store in [idempotency]" in str(serve("--workers", "2").exception)


def test_workers_share_the_sockets_of_a_plan_and_one_signal_stops_them_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    told: list[str] = []
    monkeypatch.setattr(processes, "tell_manager", told.append)
    address = ("127.0.0.1", 0)
    plan = Plan(options=ServeOptions(), http=address, health=address)
    assert front_door.run_workers(OperationRegistry(Plugins()), plan, commands.serve_until_stopped, 2) == 0
    started = sorted(file.read_text() for file in folder.glob("started-*"))
    assert started == ["False health,http", "True health,http"]
    assert told[-1] == "STOPPING=1"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_worker_that_ends_before_it_is_ready_ends_the_command_with_its_code(folder: Path) -> None:
    assert processes.Supervisor(commands.end_before_ready).run(1) == 3


def test_a_worker_that_ends_later_is_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert processes.Supervisor(commands.end_once).run(1) == 0
    assert re.findall(r"worker \d+ ended with code 0; starting another", capsys.readouterr().err)


def test_a_process_that_ended_starts_again_with_the_next_change(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert processes.Supervisor(commands.change_a_file).run_reloading([folder]) == 0
    assert f"{folder / 'changed.py'} changed; reloading" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "config", "watched"),
    [
        ("one@.py", None, ["."]),
        ("one@", None, ["."]),
        ("sub/app.py:make", None, ["."]),
        ("../app.py", None, [".."]),
        (None, "../operad.toml", [".."]),
        (None, "../other", [".", "../other"]),
        (None, "sub", ["."]),
    ],
)
def test_reload_watches_the_current_folder_and_that_of_the_program_or_configuration(
    folder: Path, monkeypatch: pytest.MonkeyPatch, target: str | None, config: str | None, watched: list[str]
) -> None:
    here = folder / "here"
    for each in (folder, here, here / "sub", folder / "other"):
        each.mkdir(exist_ok=True)
        (each / "operad.toml").write_text("")
    monkeypatch.chdir(here)
    found: list[Path] = []

    def run_reloading(supervisor: object, folders: list[Path]) -> int:
        found.extend(folders)
        return 0

    monkeypatch.setattr(processes.Supervisor, "run_reloading", run_reloading)
    serve(*([target] if target else ["--config", config]), "--reload")
    assert found == [(here / each).resolve() for each in watched]


def test_a_process_of_a_supervisor_serves_with_its_sockets_and_only_the_first_one_reports(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []

    async def served(registry: OperationRegistry, plan: Plan, load: object) -> int:
        plans.append(plan)
        return 0

    monkeypatch.setattr(front_door, "serve", served)
    with socket.socket() as shared:
        for is_first in (True, False):
            given = processes.Share({"http": shared}, multiprocessing.get_context("spawn").Event(), is_first)
            monkeypatch.setattr(processes, "share", lambda given=given: given)
            assert serve(named(folder, "one@.py"), "--reload").exit_code == 0
            plan = plans.pop()
            assert (plan.sockets, plan.is_quiet) == ({"http": shared}, not is_first)
            assert plan.http == ("127.0.0.1", 8000)
            assert plan.on_ready is not None
            plan.on_ready()
            assert given.ready.is_set()


def test_the_modules_beside_a_program_come_before_others_of_the_same_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = named(folder, "beside@")
    other = folder / "other"
    other.mkdir()
    (other / f"{name}.py").write_text("raise OSError('the wrong module')")
    monkeypatch.syspath_prepend(other)
    for target in ("one@.py", "two@:other"):
        sys.modules.pop(name, None)
        assert registry_of(named(folder, target)) is not None


async def test_a_program_without_a_registry_may_have_a_lifespan(folder: Path) -> None:
    program = folder / named(folder, "lifespan@.py")
    program.write_text(LIFESPAN)
    async with registry_of(program.name) as registry:
        assert (await registry.execute("n.state")).data == "open"
    assert (folder / "ended").exists()


async def test_serving_a_scanned_folder_runs_its_lifespan_until_the_end(tmp_path: Path) -> None:
    (tmp_path / "operad.toml").write_text('[sources.n]\ntype = "scanner"\npath = "functions"\n')
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "n.py").write_text(LIFESPAN)
    async with running(tmp_path, "--http", "127.0.0.1:0") as (_, url):
        assert await asyncio.to_thread(called, url, "n.state") == "open"
        assert not (tmp_path / "ended").exists()
    assert (tmp_path / "ended").exists()
