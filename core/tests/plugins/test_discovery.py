"""`load_plugins` over installed distributions: folders with real metadata on ``sys.path``."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from operad import PluginError, Plugins, load_plugins

NONE = "raise RuntimeError('must not be imported')"

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))

SOURCE = """
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

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install distributions into a folder; what else is installed is out of sight."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(p for p in sys.path if "site-packages" not in p)])
    for switch in ("OPERAD_PLUGINS", "OPERAD_DISABLE_PLUGINS"):
        monkeypatch.delenv(switch, raising=False)
    modules = set(sys.modules)

    def install(
        distribution: str,
        source: str | None = None,
        *,
        name: str | None = None,
        version: str = "1.0",
        target: str | None = None,
        entry_points: str | None = None,
        metadata: bool = True,
    ) -> None:
        package = distribution.replace("-", "_")
        name = name or package.removeprefix("operad_")
        if source is not None:
            (tmp_path / f"{package}.py").write_text(dedent(source))
        info = tmp_path / f"{package}-{version}.dist-info"
        info.mkdir()
        if metadata:
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(entry_points or f"[operad]\n{name} = {target or package}\n")
        importlib.invalidate_caches()

    yield install
    for module in set(sys.modules) - modules:
        del sys.modules[module]


@pytest.fixture
def sources(install: Install) -> Callable[..., None]:
    """Install plugins that offer a source of their own name."""

    def sources(*names: str) -> None:
        for name in names:
            install(f"operad-{name}", SOURCE.format(name=name))

    return sources


def statuses(plugins: Plugins) -> dict[str, str]:
    return {record.name: record.status for record in plugins}


def test_nothing_installed_is_no_error(install: Install) -> None:
    plugins = load_plugins(strict=True)
    assert plugins.records == ()
    assert plugins.envelope_kinds.sources == ("local",)


def test_plugins_load_sorted_by_name_and_distribution(install: Install) -> None:
    for distribution, name in [("operad-z", "b"), ("operad-y", "a"), ("operad-a", "b")]:
        install(distribution, SOURCE.format(name=distribution), name=name)
    plugins = load_plugins(strict=True)
    expected = [("a", "operad-y", "1.0"), ("b", "operad-a", "1.0"), ("b", "operad-z", "1.0")]
    assert [(r.name, r.distribution, r.version) for r in plugins] == expected
    assert list(plugins.sources) == ["operad-y", "operad-a", "operad-z"]


def test_an_entry_point_may_name_an_object_in_a_module(install: Install) -> None:
    install("operad-x", "class made:\n    pass", target="operad_x:made")
    assert load_plugins(strict=True).records[0].status == "loaded"


@pytest.mark.parametrize(("kind", "source", "says"), TABLES["broken_plugins"])
def test_a_broken_plugin_is_reported_and_the_others_load(
    kind: str, source: str, says: str, install: Install, sources: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install(f"operad-{kind}", source, version="0.3")
    sources("a", "z")
    plugins = load_plugins()
    failed = "incompatible" if kind == "future" else "failed"
    assert statuses(plugins) == {"a": "loaded", kind: failed, "z": "loaded"}
    assert list(plugins.sources) == ["a", "z"]
    record = next(r for r in plugins if r.name == kind)
    assert record.error is not None
    assert says in record.error
    assert (record.distribution, record.version) == (f"operad-{kind}", "0.3")
    assert f'plugin "{kind}" (operad-{kind} 0.3)' in caplog.text


def test_a_module_that_is_missing_says_how_to_repair_the_distribution(install: Install) -> None:
    install("operad-hollow")
    (record,) = load_plugins()
    assert record.error is not None
    assert "pip install --force-reinstall --no-deps operad-hollow" in record.error


def test_a_keyboard_interrupt_during_an_import_passes(install: Install) -> None:
    install("operad-x", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_plugins()


def test_two_distributions_that_claim_one_source_are_both_named(install: Install) -> None:
    install("operad-one", SOURCE.format(name="grain"))
    install("operad-two", SOURCE.format(name="grain"), version="2.5")
    plugins = load_plugins()
    assert statuses(plugins) == {"one": "loaded", "two": "conflict"}
    error = plugins.records[1].error or ""
    disable = "OPERAD_DISABLE_PLUGINS=operad-one or operad-two"
    assert all(part in error for part in ('"one" (operad-one 1.0)', '"two" (operad-two 2.5)', disable))


def test_strict_raises_one_error_for_each_that_failed(install: Install, sources: Install) -> None:
    sources("a")
    install("operad-b", "raise RuntimeError('b')")
    install("operad-c", "operad_api_version = 99")
    with pytest.raises(ExceptionGroup) as caught:
        load_plugins(strict=True)
    assert [type(error) for error in caught.value.exceptions] == [PluginError, PluginError]
    assert isinstance(caught.value.exceptions[0].__cause__, RuntimeError)


@pytest.mark.parametrize("name", ["b", "operad-b", "operad_b", "Operad.B"])
def test_a_plugin_is_left_out_by_its_name_or_its_distributions(
    name: str, install: Install, sources: Install
) -> None:
    sources("a")
    install("operad-b", NONE)
    plugins = load_plugins(disable=[name, "graphql"], strict=True)  # the second is not installed
    assert statuses(plugins) == {"a": "loaded", "b": "disabled"}
    assert plugins.records[1].error is None


@pytest.mark.parametrize(("chosen", "only", "disable", "loaded"), TABLES["choice_of_plugins"])
def test_the_application_chooses_plugins_and_the_environment_can_only_narrow_its_choice(
    chosen: Any, only: str | None, disable: str, loaded: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        install(f"operad-{name}", SOURCE.format(name=name) if name in loaded else NONE)
    if only is not None:
        monkeypatch.setenv("OPERAD_PLUGINS", only)
    monkeypatch.setenv("OPERAD_DISABLE_PLUGINS", disable)
    plugins = load_plugins(only=chosen, strict=True)
    assert statuses(plugins) == {name: "loaded" if name in loaded else "disabled" for name in "abc"}


def test_a_plugin_that_is_asked_for_and_missing_is_an_error(
    sources: Install, caplog: pytest.LogCaptureFixture
) -> None:
    sources("a")
    assert statuses(load_plugins(only=["a", "nowhere"])) == {"a": "loaded"}
    assert 'plugin "nowhere" was requested but is not installed; install it,' in caplog.text
    assert "(installed: a" in caplog.text
    with pytest.raises(ExceptionGroup):
        load_plugins(only=["nowhere"], strict=True)


def test_a_disabled_plugin_is_named_where_its_source_is_missing(sources: Install) -> None:
    sources("openapi")
    with pytest.raises(PluginError, match=r'"openapi" \(operad-openapi 1.0\) is disabled'):
        load_plugins(disable=["openapi"]).source("openapi")


@pytest.mark.parametrize(
    ("wreck", "status"),
    [
        ({"entry_points": "[operad]\nno equals sign\n"}, None),
        ({"entry_points": "no section = at all\n"}, None),
        ({"entry_points": "[operad]\n= x\n"}, None),
        ({"metadata": False}, "loaded"),
        ({"target": "not a module!"}, "failed"),
    ],
    ids=str,
)
def test_a_malformed_distribution_does_not_take_the_others_along(
    wreck: dict[str, Any], status: str | None, install: Install
) -> None:
    install("a-wreck", SOURCE.format(name="a"), **wreck)
    install("operad-z", SOURCE.format(name="z"))
    found = statuses(load_plugins())
    assert (found["z"], found.get("a_wreck")) == ("loaded", status)


@pytest.mark.parametrize("switch", ["only", "disable", "OPERAD_PLUGINS", "OPERAD_DISABLE_PLUGINS"])
def test_a_misspelt_plugin_is_an_error_that_names_the_one_that_was_meant(
    sources: Install, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    sources("scanner")
    chosen: dict[str, Any] = {} if switch.isupper() else {switch: ["scaner"]}
    if switch.isupper():
        monkeypatch.setenv(switch, "scaner")
    where = rf" \(in {switch}\)" if switch.isupper() else ""
    meant = rf'no installed plugin is named "scaner"{where}; did you mean "scanner"'
    with pytest.raises(PluginError, match=meant):
        load_plugins(**chosen)


class Point:
    """What an application knows of a plugin, in the place of an entry point."""

    name, value = "lone", "operad_lone"

    class dist:  # the name of an entry point's attribute
        name, version = "operad-lone", "3"

    def load(self) -> object:
        return importlib.import_module(self.value)


def test_entry_points_that_are_given_are_loaded_instead_of_those_installed(sources: Install) -> None:
    sources("lone", "other")
    plugins = load_plugins(entry_points=[Point()])
    assert [(record.label, record.status) for record in plugins] == [('"lone" (operad-lone 3)', "loaded")]
    assert "operad_other" not in sys.modules
    given = [point for point in importlib.metadata.entry_points(group="operad") if point.name == "other"]
    assert [record.name for record in load_plugins(entry_points=given)] == ["other"]
    assert [record.name for record in load_plugins(entry_points=[])] == []


def test_entry_points_that_are_given_are_chosen_as_those_installed(sources: Install) -> None:
    sources("lone")
    (record,) = load_plugins(disable=["lone"], entry_points=[Point()])
    assert record.status == "disabled"
