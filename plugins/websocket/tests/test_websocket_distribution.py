"""operad-websocket as a distribution, against the conformance kit."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from operad import ConfigError, Identity, load_plugins
from operad.plugin import LinkDownError, TransportError
from operad_testing import PluginConformance
from operad_websocket import Hub, bearer_tokens


class TestPlugin(PluginConformance):
    distribution = "operad-websocket"
    contributes = {"hooks": ["operad_commands", "operad_tables"], "transports": ["ws", "wss"]}


def test_an_unknown_option_is_an_error_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match='unknown option "tokn"; did you mean "token"'):
        load_plugins().transport("ws://127.0.0.1:1", tokn="secret")


async def test_a_hub_that_is_not_there_is_an_error_in_words() -> None:
    transport = load_plugins().transport("ws://127.0.0.1:1")
    with pytest.raises(LinkDownError, match="127.0.0.1:1 cannot be reached: no process listens there") as caught:
        await transport.open(lambda event: None, lambda up: None)
    assert str(caught.value).endswith("start a hub with `operad hub`")


@pytest.mark.parametrize("options", [{}, {"token": "wrong-s3cret"}])
async def test_a_hub_that_does_not_know_the_token_is_an_error_in_words(options: dict[str, str]) -> None:
    async with Hub(bearer_tokens({"s3cret": Identity("ann")}), port=0) as hub:
        with pytest.raises(TransportError, match="401: .*the token is missing or invalid") as caught:
            await load_plugins().transport(hub.url, **options).open(lambda event: None, lambda up: None)
    assert "s3cret" not in str(caught.value)


async def test_an_http_server_that_is_no_hub_is_an_error_in_words() -> None:
    async with TestServer(web.Application()) as server:
        url = f"ws://{server.host}:{server.port}"
        with pytest.raises(TransportError, match="404: expected a hub, got another HTTP server"):
            await load_plugins().transport(url).open(lambda event: None, lambda up: None)
