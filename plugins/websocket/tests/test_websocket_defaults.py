"""The documented defaults of options. Change them here, too."""

import importlib

import attrs
import pytest

import operad_websocket
from plugins.websocket.tests.kit import TABLES


@pytest.mark.parametrize("module", ["config"])
def test_options_have_the_documented_defaults_and_are_keywords(module):
    found = importlib.import_module(f"operad_websocket.{module}")
    for options, documented in TABLES["defaults"].items():
        fields = attrs.fields(getattr(found, options))
        assert {each.name: each.default for each in fields if each.name in documented} == documented
        assert [each.name for each in fields if each.name != "url" and not each.kw_only] == []


def test_options_show_no_secret():
    for options, hidden in (("HubConfig", ["tokens"]), ("WebSocketConfig", ["token", "headers"])):
        fields = attrs.fields(getattr(operad_websocket, options))
        assert [each.name for each in fields if not each.repr] == hidden


def test_a_hub_authenticates_its_peers():
    shown = attrs.asdict(operad_websocket.WebSocketTransport("ws://127.0.0.1:9").capabilities)
    assert {name: shown[name] for name in TABLES["capabilities"]} == TABLES["capabilities"]
