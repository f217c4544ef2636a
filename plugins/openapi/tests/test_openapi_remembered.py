"""What one call needs of a large document is remembered in the user's cache, and believed while the file is the same."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from operad import OperationRegistry, Plugins
from operad_openapi import _loading, _remembered, plugin
from plugins.openapi.tests.data import DOCUMENTS
from plugins.openapi.tests.making import large

DOCUMENT: dict[str, Any] = large(DOCUMENTS["shop"])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration and its document, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    configure()
    write(DOCUMENT)
    return tmp_path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The documents that are read."""
    seen: list[str] = []
    parse: Callable[..., Any] = _loading.parse_aside

    def parse_aside(data: bytes, where: str) -> Any:
        seen.append(Path(where).name)
        return parse(data, where)

    monkeypatch.setattr(_loading, "parse_aside", parse_aside)
    return seen


def configure(more: str = "") -> None:
    head = '[sources.shop]\ntype = "openapi"\nspec = "shop.json"\nbase_url = "http://127.0.0.1:9"\n'
    Path("operad.toml").write_text(head + more)


def write(document: Any, name: str = "shop.json", age: float = 60) -> None:
    """Write a document as if it had been written a while ago."""
    Path(name).write_text(json.dumps(document))
    then = Path(name).stat().st_mtime - age
    os.utime(name, (then, then))


async def specs(operation: str | None) -> dict[str, Any]:
    """What the source offers, by id, to a command that calls ``operation``."""
    plugins = Plugins()
    plugins.register(plugin)
    registry = OperationRegistry.from_config("operad.toml", plugins=plugins, sources=())
    async with registry:
        await registry.load_configured(["shop"], strict=True, operation=operation)
        return {spec.id: spec.to_wire() for spec in registry.specs()}


def kept() -> list[Path]:
    return sorted(Path("cache/operad").glob("openapi-*.json"))


async def test_the_second_call_reads_no_document_and_finds_the_same_operation(
    place: Path, reads: list[str]
) -> None:
    everything = await specs(None)
    assert kept() == []
    assert await specs("shop.items/get") == everything
    assert reads == ["shop.json"] * 2
    assert await specs("shop.items/get") == {"shop.items/get": everything["shop.items/get"]}
    assert reads == ["shop.json"] * 2
    (file,) = kept()
    assert file.stat().st_mode & 0o077 == 0
    assert not any(unused in file.read_text() for unused in ("Unused", "items/delete"))


async def test_whoever_asks_for_another_operation_or_for_all_gets_all(place: Path) -> None:
    everything = await specs("shop.items/get")
    for operation in ("shop.other", "shop.nothing", None):
        assert await specs(operation) == everything


async def test_a_document_that_changed_is_read_anew_even_with_its_old_size_and_time(
    place: Path, reads: list[str]
) -> None:
    await specs("shop.items/get")
    before = Path("shop.json").stat()
    Path("shop.json").write_text(Path("shop.json").read_text().replace('"integer"', '"boolean"'))
    os.utime("shop.json", ns=(before.st_atime_ns, before.st_mtime_ns))
    found = await specs("shop.items/get")
    assert found["shop.items/get"]["inputSchema"]["properties"]["id"] == {"type": "boolean"}


async def test_a_document_of_just_now_is_not_remembered(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_remembered, "_JUST_NOW", 30.0)  # this process may have stood still since
    write(DOCUMENT, age=0)
    await specs("shop.items/get")
    assert kept() == []


async def test_a_small_document_is_not_remembered(place: Path) -> None:
    write({**DOCUMENT, "info": {"title": "", "version": ""}})
    await specs("shop.items/get")
    assert kept() == []


async def test_more_of_a_document_than_a_mebibyte_is_not_remembered(place: Path) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    document["paths"]["/items/{id}"]["get"]["description"] = "x" * 787_000
    write(document)
    await specs("shop.items/get")
    assert kept() == []


async def test_a_document_of_several_files_is_not_remembered(place: Path) -> None:
    paths = {**DOCUMENT["paths"], "/more": {"$ref": "more.json#/item"}}
    write({"item": {"get": {"operationId": "more", "responses": {}}}}, "more.json")
    write({**DOCUMENT, "paths": paths})
    for operation in ("shop.more", "shop.items/get"):
        assert "shop.more" in await specs(operation)
    assert kept() == []


@pytest.mark.parametrize(
    "option",
    ['include = ["items/*", "other"]', 'names = { "other" = "another" }', 'operation_types = { "other" = "mutation" }',
     'overlays = []\npagination = { "items/*" = { items = "$", next = "$.next" } }'],
)  # fmt: skip
async def test_options_that_speak_of_operations_by_name_see_the_whole_document(
    place: Path, reads: list[str], option: str
) -> None:
    await specs("shop.items/get")
    configure(option)
    await specs("shop.items/get")
    assert reads == ["shop.json"] * 2


@pytest.mark.parametrize("spoilt", ["", "{", "[]", "null", '{"slot": 1}', "[" * 9_999])
async def test_what_is_broken_is_made_anew(place: Path, reads: list[str], spoilt: str) -> None:
    everything = await specs("shop.items/get")
    (file,) = kept()
    whole = file.read_text()
    for content in (spoilt, whole.replace("3.0.3", "9.9.9")):
        file.write_text(content)
        found = await specs("shop.items/get")
        assert found in (everything, {"shop.items/get": everything["shop.items/get"]})
    assert file.read_text() == whole


async def test_what_others_can_write_is_not_believed(place: Path, reads: list[str]) -> None:
    await specs("shop.items/get")
    (file,) = kept()
    file.chmod(0o666)
    await specs("shop.items/get")
    assert reads == ["shop.json"] * 2
    file.rename("elsewhere.json")
    file.symlink_to("../../elsewhere.json")
    await specs("shop.items/get")
    assert reads == ["shop.json"] * 3
