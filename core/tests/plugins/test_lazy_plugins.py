"""`load_plugins(lazy=True)`: what each plugin offers is remembered, and a plugin is loaded when it is needed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from operad import load_plugins
from operad.config.private_files import read_private, write_private

OFFERS = """
import attrs
from operad.plugin import Source, hookimpl

@attrs.frozen
class Config:
    pass

async def load(config, context):
    raise NotImplementedError

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
Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install distributions into a folder, with a cache of their own; what else is installed is out of sight."""
    place, modules = tmp_path / "site", set(sys.modules)
    place.mkdir()
    monkeypatch.setattr(
        sys, "path", [str(place), *(p for p in sys.path if "site-packages" not in p and "src" not in p)]
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(name: str, code: str) -> Path:
        file = place / f"{name}_module.py"
        file.write_text(dedent(code.format(name=name)))
        info = place / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[operad]\n{name} = {name}_module\n")
        return file

    yield make
    for module in set(sys.modules) - modules:
        del sys.modules[module]


def loaded() -> set[str]:
    return {name for name in sys.modules if name.endswith("_module") and name[:-7] in ("lone", "other", "seen")}


def forget() -> None:
    for name in loaded():
        del sys.modules[name]


def cache_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "operad").glob("plugins-*.json"))


def test_only_the_plugin_that_is_asked_for_is_imported(install: Install) -> None:
    install("lone", OFFERS)
    install("other", OFFERS)
    load_plugins(lazy=True)
    forget()
    plugins = load_plugins(lazy=True)
    assert loaded() == set()
    assert plugins.source("lone").name == "lone"
    assert loaded() == {"lone_module"}


def test_whoever_looks_at_all_plugins_sees_all(install: Install) -> None:
    install("lone", OFFERS)
    install("other", OFFERS)
    load_plugins(lazy=True)
    forget()
    plugins = load_plugins(lazy=True)
    assert {record.name for record in plugins.records} == {"lone", "other"}
    assert set(plugins.sources) == {"lone", "other", "remote"}


def test_a_plugin_that_sees_calls_is_always_loaded(install: Install) -> None:
    install("lone", OFFERS)
    install("seen", OBSERVES)
    load_plugins(lazy=True)
    forget()
    plugins = load_plugins(lazy=True)
    assert loaded() == {"seen_module"}
    assert plugins.observers()


def test_a_plugin_that_was_installed_since_is_found(install: Install) -> None:
    install("lone", OFFERS)
    load_plugins(lazy=True)
    install("other", OFFERS)
    assert load_plugins(lazy=True).source("other").name == "other"


def test_a_plugin_whose_module_changed_is_loaded_and_looked_at_anew(install: Install) -> None:
    file = install("lone", OFFERS)
    load_plugins(lazy=True)
    forget()
    file.write_text(OFFERS.format(name="lone") + OBSERVES)
    assert load_plugins(lazy=True).observers()


def test_a_plugin_that_fails_is_reported_each_time(install: Install) -> None:
    install("lone", "raise RuntimeError('no')")
    for _ in range(2):
        (record,) = load_plugins(lazy=True).records
        assert (record.status, "RuntimeError" in str(record.error)) == ("failed", True)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"form": 1, "key": 1, "plugins": [1]}', b"[" * 9_999]
)
def test_a_broken_cache_is_made_anew(install: Install, tmp_path: Path, content: bytes) -> None:
    install("lone", OFFERS)
    load_plugins(lazy=True)
    (file,) = cache_files(tmp_path)
    file.write_bytes(content)
    assert load_plugins(lazy=True).source("lone").name == "lone"
    assert json.loads(file.read_bytes())["plugins"][0]["name"] == "lone"


def test_a_cache_that_others_can_write_is_not_believed(install: Install, tmp_path: Path) -> None:
    install("lone", OFFERS)
    load_plugins(lazy=True)
    (file,) = cache_files(tmp_path)
    assert file.stat().st_mode & 0o077 == 0
    kept = json.loads(file.read_bytes())
    kept["plugins"][0]["offers"] = {"sources": ["forged"]}
    file.write_text(json.dumps(kept))
    file.chmod(0o666)
    assert "forged" not in load_plugins(lazy=True).sources


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write_private(str(tmp_path / "file" / "below"), b"x")
    assert read_private(str(tmp_path / "file" / "below")) is None


def test_a_link_is_not_followed_by_who_reads_a_private_file(tmp_path: Path) -> None:
    write_private(str(tmp_path / "own"), b"x")
    os.symlink(tmp_path / "own", tmp_path / "link")
    assert read_private(str(tmp_path / "own")) == b"x"
    assert read_private(str(tmp_path / "link")) is None
