"""The documented defaults of options. Change them here, too."""

import attrs
import pytest

from operad_websocket import HubConfig, Limits, WebSocketConfig, WebSocketTransport
from plugins.websocket.tests.kit import TABLES


@pytest.mark.parametrize("options", [Limits, HubConfig, WebSocketConfig])
def test_options_have_the_documented_defaults_and_are_keywords(options):
    fields, documented = attrs.fields(options), TABLES["defaults"][options.__name__]
    assert {each.name: each.default for each in fields if each.name in documented} == documented
    assert [each.name for each in fields if each.name != "url" and not each.kw_only] == []


def test_options_show_no_secret():
    for options, hidden in ((HubConfig, ["tokens"]), (WebSocketConfig, ["token", "headers"])):
        assert [each.name for each in attrs.fields(options) if not each.repr] == hidden


def test_a_hub_authenticates_its_peers():
    assert WebSocketTransport("ws://127.0.0.1:9").capabilities.authenticates_peer
