"""Folders of Python files as operations, and files that cannot be."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, ConfigError, OperationRegistry, SourceError, load_plugins
from operad_scanner import scan_operations
from plugins.calls.tests.links import until

FILES = {
    name: "\n".join(lines)
    for name, lines in json.loads(Path(__file__).with_name("files.json").read_text("utf-8")).items()
}
ADD = FILES["add"]


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def ids(folder: Path, **options: object) -> list[str]:
    return sorted(op.id for op in scan_operations(folder, **options).operations)  # type: ignore[arg-type]  # a test's shorthand


def test_collects_decorated_functions_of_all_files_below_the_folder(tmp_path):
    write(tmp_path, math=ADD, deep__text=FILES["up"])
    assert ids(tmp_path) == ["math.add", "text.up"]


def test_collects_a_spec_mapping_with_its_handler(tmp_path):
    write(tmp_path, echo=FILES["mapping"])
    (operation,) = scan_operations(tmp_path).operations
    assert (operation.id, operation.spec.type) == ("x.echo", "query")


def test_a_spec_mapping_may_hold_its_handler(tmp_path):
    text = 'spec = {"namespace": "x", "name": "text", "handler": "run"}\n'
    write(tmp_path, echo=FILES["with handler"], text=text)
    assert ids(tmp_path) == ["x.echo"]
    (failure,) = scan_operations(tmp_path).failures
    assert 'unknown key "handler"' in str(failure.error), "what cannot be called is none"


def test_a_spec_without_handler_is_listed_apart(tmp_path):
    write(tmp_path, remote=FILES["later"])
    manifest = scan_operations(tmp_path)
    assert [spec.id for spec in manifest.specs] == ["x.later"]
    assert manifest.operations == ()


def test_an_invalid_spec_mapping_is_a_failure_that_names_the_file(tmp_path):
    write(tmp_path, bad='spec = {"name": 5}\n')
    (failure,) = scan_operations(tmp_path).failures
    assert failure.path == tmp_path / "bad.py"
    assert "expected string" in str(failure)


@pytest.mark.parametrize(("key", "meant"), [("typ", "type"), ("access_control", "accessControl")])
def test_a_spec_with_an_unknown_key_is_reported_with_the_nearest_known_one(tmp_path, key, meant):
    write(tmp_path, bad=f'spec = {{"name": "x", "{key}": "query"}}')
    (failure,) = scan_operations(tmp_path).failures
    assert f'unknown key "{key}"; did you mean "{meant}"?' in str(failure)


@pytest.mark.parametrize("source", ["1/0", "def (", "raise SystemExit(3)", "import no_such_module_anywhere"])
def test_a_file_that_fails_is_reported_and_the_others_are_collected(tmp_path, source):
    write(tmp_path, a_bad=source, math=ADD)
    manifest = scan_operations(tmp_path)
    assert [op.id for op in manifest.operations] == ["math.add"]
    assert [failure.path.name for failure in manifest.failures] == ["a_bad.py"]


def test_files_import_one_another_relatively_and_sys_path_is_untouched(tmp_path):
    write(tmp_path, helpers="FACTOR = 3\n", deep__triple=FILES["triple"])
    before = list(sys.path)
    assert ids(tmp_path) == ["m.triple"]
    assert sys.path == before


def test_an_operation_imported_from_another_file_is_collected_once(tmp_path):
    write(tmp_path, a="from .math import add\n", math=ADD)
    assert ids(tmp_path) == ["math.add"]


def test_names_with_a_leading_underscore_or_dot_are_passed_over(tmp_path):
    write(tmp_path, _private="1/0", _hidden__x="1/0", math=ADD)
    manifest = scan_operations(tmp_path)
    assert len(manifest.operations) == 1
    assert manifest.failures == ()


def test_the_namespace_is_that_of_the_source_unless_the_file_names_one(tmp_path):
    write(tmp_path, math=ADD, bare=FILES["ping"])
    assert ids(tmp_path) == ["local.ping", "math.add"]
    assert ids(tmp_path, namespace="mine") == ["math.add", "mine.ping"]


def test_a_file_system_can_be_injected(tmp_path):
    class Memory:
        def python_files(self, root: Path) -> Iterable[Path]:
            return [root / "math.py"]

        def read(self, path: Path) -> bytes:
            return ADD.encode()

    assert ids(tmp_path / "nowhere", fs=Memory()) == ["math.add"]


async def test_the_registry_loads_and_calls_scanned_operations(tmp_path):
    write(tmp_path, math=ADD)
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        specs = await registry.load("scanner", path=str(tmp_path))
        assert [spec.id for spec in specs] == ["math.add"]
        assert (await registry.execute("math.add", {"a": 1, "b": 2})).data == 3


async def test_a_scanned_spec_without_handler_is_known_and_takes_a_handler_later(tmp_path):
    write(tmp_path, remote=FILES["later"])

    async def handler(input: object, context: object) -> str:
        return "now"

    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        await registry.load("scanner", path=tmp_path)
        with pytest.raises(CallError, match="no handler registered for operation"):
            await registry.execute("x.later")
        registry.register_handler("x.later", handler)
        assert (await registry.execute("x.later")).data == "now"


async def test_a_missing_folder_is_an_error_that_names_it(tmp_path):
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        with pytest.raises(SourceError, match="^scanner: no such file or folder: .*nowhere$"):
            await registry.load("scanner", path=tmp_path / "nowhere")


async def test_strict_refuses_the_folder_when_a_file_fails(tmp_path):
    write(tmp_path, math=ADD, bad="1/0")
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        with pytest.raises(SourceError, match="ZeroDivisionError"):
            await registry.load("scanner", path=tmp_path, strict=True)
        assert len(registry) == 0


async def test_watch_follows_the_files(tmp_path):
    pytest.importorskip("watchfiles", reason="operad-scanner[watch] is not installed")
    write(tmp_path, math=ADD)
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        await registry.load("scanner", path=tmp_path, watch=True)
        async with asyncio.timeout(20):
            while "math.sub" not in registry:  # written again until the watcher, which starts by itself, sees it
                write(tmp_path, sub=ADD.replace("add", "sub").replace("a + b", "a - b"))
                await asyncio.sleep(0.1)
        (tmp_path / "math.py").unlink()
        await until(lambda: "math.add" not in registry)
        assert (await registry.execute("math.sub", {"a": 3, "b": 2})).data == 1


async def test_watching_goes_on_after_a_scan_that_fails_and_says_when_it_cannot(tmp_path, monkeypatch, caplog):
    watchfiles = pytest.importorskip("watchfiles", reason="operad-scanner[watch] is not installed")
    changes: asyncio.Queue[bool] = asyncio.Queue()

    async def awatch(path: Path, **_: Any) -> AsyncIterator[set[Any]]:
        while await changes.get():
            yield set()
        raise RuntimeError("the folder is gone")

    monkeypatch.setattr(watchfiles, "awatch", awatch)
    write(tmp_path, math=ADD)
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        await registry.load("scanner", path=tmp_path, watch=True)
        with monkeypatch.context() as broken:
            broken.setattr("operad_scanner.source.scan_operations", lambda *_, **__: 1 / 0)
            changes.put_nowait(True)
            await until(lambda: "cannot be scanned again" in caplog.text)
        write(tmp_path, sub=ADD.replace("add", "sub"))
        changes.put_nowait(True)
        await until(lambda: "math.sub" in registry)
        changes.put_nowait(False)
        await until(lambda: "stopped watching" in caplog.text)


async def test_what_is_no_regular_file_is_passed_over(tmp_path):
    write(tmp_path, math=ADD)
    os.mkfifo(tmp_path / "b.py")
    (tmp_path / "c.py").mkdir()
    assert ids(tmp_path) == ["math.add"]


async def test_an_empty_path_is_refused_instead_of_running_the_current_folder():
    async with OperationRegistry(load_plugins(only=["scanner"])) as registry:
        with pytest.raises(ConfigError, match="path is empty"):
            await registry.load("scanner", path="")


def test_an_input_whose_pattern_cannot_be_checked_is_a_failure_that_names_the_pattern(tmp_path):
    spec = 'spec = {"name": "op", "type": "query", "version": "1", "inputSchema": {"pattern": "(?=a)"}}\n'
    write(tmp_path, looks=spec + "async def handler(input, context): ...\n", other=spec.replace("(?=a)", "a"))
    manifest = scan_operations(tmp_path)
    (failure,) = manifest.failures
    assert failure.path.name == "looks.py"
    assert "pattern '(?=a)' is not checked: look-around" in str(failure.error)
    assert len(manifest.specs) == 1


async def test_a_program_in_the_scanned_folder_that_loads_the_folder_is_reported_and_ends(tmp_path, caplog):
    (tmp_path / "operad.toml").write_text('[sources.local]\ntype = "scanner"\npath = "."\n')
    write(tmp_path, app=FILES["loads its folder"])
    async with OperationRegistry.from_config(tmp_path, load_plugins()) as registry:
        assert (await registry.execute("m.one", {})).data == 1
    assert 'below if __name__ == "__main__"' in caplog.text
