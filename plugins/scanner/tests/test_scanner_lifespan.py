"""The lifespan of a scanned folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from operad import OperationRegistry, SourceError, load_plugins
from operad_scanner import scan_operations

SHARED = """
from contextlib import asynccontextmanager
from pathlib import Path

LOG = Path(__file__).parent / "log.txt"

def note(line):
    with LOG.open("a") as file:
        file.write(line + "\\n")

@asynccontextmanager
async def lifespan(registry):
    note("start VERSION")
    yield {"version": "VERSION"}
    note("end VERSION")
"""
USE = """
import asyncio
from operad import OperationContext, operation

@operation(namespace="shop", type="query")
async def version(context: OperationContext) -> str:
    return context.state["version"]

@operation(namespace="shop")
def in_thread(context: OperationContext) -> str:
    return context.state["version"]

@operation(namespace="shop")
async def held(context: OperationContext) -> str:
    (folder := __import__("pathlib").Path(__file__).parent)
    (folder / "running").touch()
    while not (folder / "proceed").exists():
        await asyncio.sleep(0.01)
    return context.state["version"]
"""


def write(folder: Path, version: str = "1") -> Path:
    (folder / "shared.py").write_text(SHARED.replace("VERSION", version))
    (folder / "use.py").write_text(USE)
    return folder


def log(folder: Path) -> list[str]:
    path = folder / "log.txt"
    return path.read_text().split("\n")[:-1] if path.exists() else []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_functions_of_all_files_share_the_state_of_the_folder(tmp_path: Path) -> None:
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        await registry.load("scanner", path=write(tmp_path))
        assert log(tmp_path) == ["start 1"]
        assert (await registry.execute("shop.version")).data == "1"
        assert (await registry.execute("shop.in_thread")).data == "1"
    assert log(tmp_path) == ["start 1", "end 1"]


async def test_two_folders_have_lifespans_of_their_own(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    write(one, "1")
    write(two, "2")
    (two / "use.py").write_text(USE.replace('"shop"', '"other"'))
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        await registry.load("scanner", path=one)
        await registry.load("scanner", path=two)
        assert (await registry.execute("shop.version")).data == "1"
        assert (await registry.execute("other.version")).data == "2"


async def test_a_reload_ends_the_old_lifespan_after_the_new_one_started_and_its_calls_ended(
    tmp_path: Path,
) -> None:
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        await registry.load("scanner", path=write(tmp_path))
        call = asyncio.create_task(registry.execute("shop.held"))
        await until((tmp_path / "running").exists)
        write(tmp_path, "2")
        await registry.sources.reload("scanner")
        assert (await registry.execute("shop.version")).data == "2"
        assert log(tmp_path) == ["start 1", "start 2"]
        (tmp_path / "proceed").touch()
        assert (await call).data == "1", "a call keeps the state with which it began"
        await until(lambda: log(tmp_path)[-1] == "end 1")
    assert log(tmp_path) == ["start 1", "start 2", "end 1", "end 2"]


async def test_a_watched_folder_replaces_its_lifespan_with_its_files(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        await registry.load("scanner", path=write(tmp_path), watch=True)
        call = asyncio.create_task(registry.execute("shop.held"))
        await until((tmp_path / "running").exists)
        written = 0
        async with asyncio.timeout(20):
            while "start 2" not in log(tmp_path):  # the watcher may begin after the first change
                write(tmp_path, "2")
                written += 1
                await asyncio.sleep(0.5)
        await registry.execute("shop.version")
        assert "end 1" not in log(tmp_path)
        (tmp_path / "proceed").touch()
        assert (await call).data == "1"
        await until(lambda: "end 1" in log(tmp_path))
        assert (await registry.execute("shop.version")).data == "2"
    assert log(tmp_path).count("start 2") == log(tmp_path).count("end 2")


async def test_a_watched_folder_whose_new_lifespan_fails_keeps_the_old_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("watchfiles")
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        await registry.load("scanner", path=write(tmp_path), watch=True)
        async with asyncio.timeout(20):
            while "its lifespan raised ZeroDivisionError" not in caplog.text:
                (tmp_path / "shared.py").write_text(SHARED.replace('note("start VERSION")', "1 / 0"))
                await asyncio.sleep(0.5)
        assert (await registry.execute("shop.version")).data == "1"


async def test_a_lifespan_that_cannot_start_fails_the_source(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "shared.py").write_text(SHARED.replace('note("start VERSION")', "1 / 0"))
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        with pytest.raises(SourceError, match="its lifespan raised ZeroDivisionError: division by zero at start"):
            await registry.load("scanner", path=tmp_path)


def test_two_lifespans_in_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "zweite.py").write_text(SHARED)
    (failure,) = scan_operations(tmp_path).failures
    assert failure.path.name == "zweite.py"
    assert "one lifespan" in str(failure)
    assert "shared.py" in str(failure)


def test_a_lifespan_that_another_file_imports_is_the_same_one(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "use.py").write_text("from .shared import lifespan\n" + USE)
    assert not scan_operations(tmp_path).failures


def test_an_operation_may_be_called_lifespan(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "from operad import operation\n@operation(namespace='x')\nasync def lifespan() -> int:\n    return 1\n"
    )
    manifest = scan_operations(tmp_path)
    assert manifest.lifespan is None
    assert [each.id for each in manifest.operations] == ["x.lifespan"]
