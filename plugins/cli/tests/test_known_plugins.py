"""Which plugins a command for one operation imports, and when what is installed is looked at again."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from operad import OperationRegistry
from operad_cli.running.opening import open_registry
from plugins.cli.tests.conftest import configure

OFFERS = """
import attrs
from operad.plugin import Source, SourceSession, hookimpl

@attrs.frozen
class Config:
    pass

async def load(config, context):
    return SourceSession([])

@hookimpl
def operad_sources():
    return [Source("{name}", load, Config)]
"""
OBSERVES = """
from operad.plugin import hookimpl

@hookimpl
def operad_call_started(call):
    pass
"""
KIND = """
from typing import ClassVar
from operad.plugin import EnvelopeKind

@attrs.frozen
class Meta:
    source: ClassVar[str] = "{name}"

@hookimpl
def operad_envelope_kinds():
    return [EnvelopeKind("{name}", Meta)]
"""
Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install distributions beside the plugin lone, with a cache of their own. Others cannot be seen."""
    place, modules = tmp_path / "site", set(sys.modules)
    place.mkdir()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a folder that it was written into has changed
    monkeypatch.setattr(
        sys, "path", [str(place), *(p for p in sys.path if "site-packages" not in p and "src" not in p)]
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("operad.toml").write_text('[sources.lone]\ntype = "lone"\n')

    def make(name: str, code: str) -> Path:
        file = place / f"{name}_module.py"
        file.write_text(dedent(code.format(name=name)))
        info = place / f"{name}-1.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[operad]\n{name} = {name}_module\n")
        return file

    make("lone", OFFERS)
    yield make
    for module in set(sys.modules) - modules:
        del sys.modules[module]


def imported() -> set[str]:
    return {name for name in sys.modules if name.endswith("_module") and name[:-7] in ("lone", "other", "seen")}


async def opened(operation: str | None = "lone.x") -> OperationRegistry:
    """Return the registry as a command for one operation opened it; None: for all operations."""
    for name in imported():
        del sys.modules[name]
    async with open_registry(None, operation) as registry:
        return registry


def status(registry: OperationRegistry) -> dict[str, str]:
    return {record.name: record.status for record in registry.plugins.records}


def cache_file(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "cache" / "operad").glob("plugins-*.json")
    return file


async def test_the_first_command_imports_all_plugins_and_the_next_one_those_it_needs(install: Install) -> None:
    install("other", OFFERS)
    await opened()
    assert imported() == {"lone_module", "other_module"}
    registry = await opened()
    assert imported() == {"lone_module"}
    assert registry.failures == []


@pytest.mark.parametrize(
    ("name", "code", "operation", "found"),
    [
        pytest.param("other", OFFERS, None, "loaded", id="a command for all operations imports all"),
        pytest.param(
            "other", OFFERS.replace('"{name}"', '"lone"'), "lone.x", "conflict", id="one name, two plugins"
        ),
        pytest.param("seen", "raise RuntimeError('no')", "lone.x", "failed", id="a plugin that fails is reported"),
    ],
)
async def test_each_command_finds_the_same(
    install: Install, name: str, code: str, operation: str | None, found: str
) -> None:
    install(name, code)
    for _ in range(2):
        assert status(await opened(operation)) == {"lone": "loaded", name: found}


async def test_a_plugin_that_sees_calls_is_always_loaded(install: Install) -> None:
    install("seen", OBSERVES)
    await opened()
    registry = await opened("nothing.x")
    assert "seen_module" in imported()
    assert registry.plugins.observers()


async def test_the_envelope_kind_of_a_plugin_comes_with_its_source(install: Install) -> None:
    install("lone", OFFERS + KIND)
    install("other", OFFERS)
    await opened()
    registry = await opened()
    assert imported() == {"lone_module"}
    assert set(registry.plugins.envelope_kinds.sources) == {"local", "lone"}


async def test_a_plugin_that_was_installed_since_is_found(install: Install) -> None:
    await opened()
    install("seen", OBSERVES)
    assert status(await opened()) == {"lone": "loaded", "seen": "loaded"}


async def test_a_plugin_that_was_removed_since_is_missed(install: Install, tmp_path: Path) -> None:
    await opened()
    shutil.rmtree(tmp_path / "site" / "lone-1.dist-info")
    assert [failure.name for failure in (await opened()).failures] == ["lone"]


async def test_a_plugin_whose_module_changed_is_looked_at_again(install: Install) -> None:
    file = install("other", OFFERS)
    await opened()
    file.write_text(OFFERS.format(name="other") + OBSERVES)
    assert (await opened()).plugins.observers()


async def test_chosen_plugins_are_loaded_as_chosen(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("seen", OBSERVES)
    await opened()
    monkeypatch.setenv("OPERAD_DISABLE_PLUGINS", "seen")
    assert status(await opened()) == {"lone": "loaded", "seen": "disabled"}
    monkeypatch.delenv("OPERAD_DISABLE_PLUGINS")
    configure('[plugins]\ndisable = ["seen"]\n')
    assert status(await opened()) == {"lone": "loaded", "seen": "disabled"}


async def test_a_plugin_that_breaks_when_it_is_needed_is_the_reason_why_its_source_is_not_loaded(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("lone", "import a_helper\n" + OFFERS).with_name("a_helper.py").write_text("")
    await opened()
    monkeypatch.setitem(sys.modules, "a_helper", None)  # as if it was not installed any more
    (failure,) = (await opened()).failures
    assert "a_helper" in str(failure.error)


BROKEN = [b"", b"{", b"[]", b"null", b'{"slot": 1, "key": 1, "value": [1]}', b"[" * 9_999]
OTHER_FORMS = [{"value": value} for value in ([1], [{}], "text", [{"file": 1, "stamp": None}])]


@pytest.mark.parametrize("content", [*BROKEN, *OTHER_FORMS])
async def test_a_cache_that_is_broken_or_of_another_form_is_made_again(
    install: Install, tmp_path: Path, content: Any
) -> None:
    await opened()
    file = cache_file(tmp_path)
    if isinstance(content, dict):
        content = json.dumps({**json.loads(file.read_bytes()), **content}).encode()
    file.write_bytes(content)
    assert (await opened()).failures == []
    assert json.loads(file.read_bytes())["value"][0]["name"] == "lone"


async def test_a_cache_that_others_can_write_is_not_believed(install: Install, tmp_path: Path) -> None:
    await opened()
    file = cache_file(tmp_path)
    assert file.stat().st_mode & 0o077 == 0
    kept = json.loads(file.read_bytes())
    kept["value"][0]["value"] = "forged_module"
    file.write_text(json.dumps(kept))
    file.chmod(0o666)
    assert (await opened()).failures == []
