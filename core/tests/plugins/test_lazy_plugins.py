"""`load_plugins(lazy=True)`: what each plugin offers is remembered, and a plugin is loaded when it is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from operad import PluginError, load_plugins
from operad.config.private_files import cache_folder, read_private, recall, remember, write_private

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
    """Install distributions into a folder, with a cache of their own; what else is installed is out of sight."""
    place, modules = tmp_path / "site", set(sys.modules)
    place.mkdir()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a folder that it was written into has changed
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
    assert set(plugins.sources) == {"lone", "other"}


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


def test_a_plugin_with_an_envelope_kind_brings_no_other_along(install: Install) -> None:
    install("lone", OFFERS + KIND)
    install("other", OFFERS)
    load_plugins(lazy=True)
    forget()
    plugins = load_plugins(lazy=True)
    assert plugins.source("lone").name == "lone"
    assert loaded() == {"lone_module"}
    assert set(plugins.envelope_kinds.sources) == {"local", "lone"}


def test_of_two_plugins_that_claim_one_name_the_same_one_has_it_each_time(install: Install) -> None:
    install("lone", OFFERS)
    install("other", OFFERS.replace('"{name}"', '"lone"'))
    for _ in range(2):
        records = {record.name: record.status for record in load_plugins(lazy=True).records}
        assert records == {"lone": "loaded", "other": "conflict"}


def test_what_one_command_left_out_is_left_for_later_by_the_next(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("lone", OFFERS)
    install("other", OFFERS)
    for disabled in ("lone", ""):
        monkeypatch.setenv("OPERAD_DISABLE_PLUGINS", disabled)
        load_plugins(lazy=True)
    forget()
    plugins = load_plugins(only=iter(["lone"]), lazy=True)
    assert {record.name: record.status for record in plugins.records} == {"lone": "loaded", "other": "disabled"}
    forget()
    plugins = load_plugins(lazy=True)
    assert loaded() == set()
    assert {record.status for record in plugins.records} == {"loaded"}


def test_a_plugin_that_was_removed_since_is_missed(install: Install, tmp_path: Path) -> None:
    install("lone", OFFERS)
    install("other", OFFERS)
    load_plugins(lazy=True)
    shutil.rmtree(tmp_path / "site" / "other-1.dist-info")
    assert [record.name for record in load_plugins(lazy=True).records] == ["lone"]


def test_a_plugin_that_breaks_when_it_is_needed_is_reported_and_the_others_work(install: Install) -> None:
    install("lone", "import a_helper\n" + OFFERS).with_name("a_helper.py").write_text("")
    install("other", OFFERS)
    load_plugins(lazy=True)
    forget()
    sys.modules["a_helper"] = None  # type: ignore[assignment]  # as if it was not installed any more
    plugins = load_plugins(lazy=True)
    assert plugins.source("other").name == "other"
    with pytest.raises(PluginError, match="a dependency is missing|a_helper"):
        plugins.source("lone")


def test_a_plugin_that_fails_is_reported_each_time(install: Install) -> None:
    install("lone", "raise RuntimeError('no')")
    for _ in range(2):
        (record,) = load_plugins(lazy=True).records
        assert (record.status, "RuntimeError" in str(record.error)) == ("failed", True)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"slot": 1, "key": 1, "value": [1]}', b"[" * 9_999]
)
def test_a_broken_cache_is_made_anew(install: Install, tmp_path: Path, content: bytes) -> None:
    install("lone", OFFERS)
    load_plugins(lazy=True)
    (file,) = cache_files(tmp_path)
    file.write_bytes(content)
    assert load_plugins(lazy=True).source("lone").name == "lone"
    assert json.loads(file.read_bytes())["value"][0]["name"] == "lone"


def test_a_cache_that_others_can_write_is_not_believed(install: Install, tmp_path: Path) -> None:
    install("lone", OFFERS)
    load_plugins(lazy=True)
    (file,) = cache_files(tmp_path)
    assert file.stat().st_mode & 0o077 == 0
    kept = json.loads(file.read_bytes())
    kept["value"][0]["offers"] = {"sources": ["forged"]}
    file.write_text(json.dumps(kept))
    file.chmod(0o666)
    assert "forged" not in load_plugins(lazy=True).sources


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write_private(str(tmp_path / "file" / "below"), b"x")
    assert read_private(str(tmp_path / "file" / "below")) is None


def test_many_who_write_one_file_at_once_leave_one_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    code = "import sys; from operad.config.private_files import write_private as w; [w(sys.argv[1], sys.argv[2].encode() * 9999) for _ in range(200)]"
    writers = [subprocess.Popen([sys.executable, "-c", code, path, letter]) for letter in "ab"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        content = read_private(path)
        seen.add(None if content is None else (len(content), len(set(content))))
    assert [writer.wait() for writer in writers] == [0, 0]
    assert seen <= {None, (9999, 1)}
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_waits_under_the_name_of_the_new_one_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    os.link(tmp_path / "precious", tmp_path / f"file.{os.getpid()}")
    write_private(str(tmp_path / "file"), b"x")
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_user_without_a_home_has_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it answers without HOME and a known user
    write_private(f"{cache_folder()}/file", b"x")
    assert read_private(f"{cache_folder()}/file") is None
    assert os.listdir(tmp_path) == []


def test_what_is_remembered_is_bounded_and_the_latest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember("other", "slot", 1, "kept")
    for number in range(300):
        remember("kind", ["slot", number], number, {"n": number})
    assert len(list((tmp_path / "operad").glob("kind-*"))) == 256
    assert recall("kind", ["slot", 299], 299) == {"n": 299}
    assert recall("kind", ["slot", 299], 298) is None
    assert recall("kind", ["slot", 0], 0) is None
    assert recall("other", "slot", 1) == "kept"


def test_a_link_is_not_followed_by_who_reads_a_private_file(tmp_path: Path) -> None:
    write_private(str(tmp_path / "own"), b"x")
    os.symlink(tmp_path / "own", tmp_path / "link")
    assert read_private(str(tmp_path / "own")) == b"x"
    assert read_private(str(tmp_path / "link")) is None
