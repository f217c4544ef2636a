"""operad-websocket as a distribution, against the conformance kit."""

from __future__ import annotations

import pytest

from operad import ConfigError, load_plugins
from operad.plugin import LinkDownError
from operad.testing import PluginConformance


class TestPlugin(PluginConformance):
    distribution = "operad-websocket"
    contributes = {"transports": ["ws", "wss"]}


def test_an_unknown_option_is_an_error_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match='unknown option "tokn"; did you mean "token"'):
        load_plugins().transport("ws://127.0.0.1:1", tokn="secret")


async def test_a_hub_that_is_not_there_is_an_error_in_words() -> None:
    transport = load_plugins().transport("ws://127.0.0.1:1")
    with pytest.raises(LinkDownError, match="ws://127.0.0.1:1 cannot be reached: Cannot connect") as caught:
        await transport.open(lambda event: None, lambda up: None)
    assert "ConnectionKey" not in str(caught.value)
