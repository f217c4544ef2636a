"""The plugins of this repository, as they are installed here."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from operad import OperationRegistry, PluginError, PluginRecord, load_plugins

ROOT = Path(__file__).parents[2]
ALL = {file.parent.name: tomllib.loads(file.read_text()) for file in (ROOT / "plugins").glob("*/pyproject.toml")}
PROJECTS = {
    name: file["project"] for name, file in ALL.items() if "operad" in file["project"].get("entry-points", {})
}
CONTRIBUTES = json.loads(Path(__file__).with_name("contributes.json").read_text())


@pytest.fixture(scope="module")
def records() -> dict[str, PluginRecord]:
    return {record.name: record for record in load_plugins(only=[f"operad-{name}" for name in PROJECTS])}


@pytest.mark.parametrize("name", sorted(PROJECTS))
def test_each_plugin_of_the_repository_loads_and_contributes_what_the_design_says(
    name: str, records: dict[str, PluginRecord]
) -> None:
    record = records[name]
    assert record.status == "loaded", record.error
    assert (record.distribution, record.version) == (f"operad-{name}", PROJECTS[name]["version"])
    assert {kind: sorted(names) for kind, names in record.contributes.items()} == {
        kind: sorted(names) for kind, names in CONTRIBUTES[name].items()
    }


@pytest.mark.parametrize("name", sorted(PROJECTS))
def test_each_plugin_declares_exactly_one_entry_point_of_its_own_name(name: str) -> None:
    assert list(PROJECTS[name]["entry-points"]["operad"]) == [name]


async def test_a_registry_without_plugins_says_how_to_have_those_that_are_installed() -> None:
    with pytest.raises(PluginError, match=r"operad-openapi is installed.*OperationRegistry\(load_plugins\(\)\)"):
        await OperationRegistry().load("openapi", namespace="n", spec={})
