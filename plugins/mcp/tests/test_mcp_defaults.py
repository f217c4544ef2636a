"""The documented defaults of options. Change them in tables.json, too."""

import importlib

import attrs
import pytest

from plugins.mcp.tests.peers import TABLES


@pytest.mark.parametrize("module", TABLES["defaults"])
def test_options_have_the_documented_defaults_and_are_given_by_name(module: str) -> None:
    found, documented = importlib.import_module(f"operad_mcp.{module}"), TABLES["defaults"][module]
    records = {
        name: made for name, made in vars(found).items() if getattr(made, "__module__", "") == found.__name__
    }
    for name, made in records.items():
        if attrs.has(made):
            defaults = documented.get(name, {})
            assert {each.name: each.default for each in attrs.fields(made) if each.name in defaults} == defaults
            assert name == "MCPProgress" or all(each.kw_only for each in attrs.fields(made))
    assert documented.keys() <= records.keys()
