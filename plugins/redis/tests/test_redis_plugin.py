"""What the distribution contributes, and what its options say when they are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from operad import load_plugins
from operad.errors import ConfigError
from operad_redis import RedisTransport
from operad_redis.plugin import create
from operad_testing import PluginConformance


class TestPlugin(PluginConformance):
    distribution = "operad-redis"
    contributes = {"transports": ["redis", "rediss"]}


def test_the_scheme_of_a_url_finds_the_transport() -> None:
    transport = load_plugins(only=["redis"], strict=True).transport("redis://127.0.0.1")
    assert isinstance(transport, RedisTransport)


def test_a_transport_is_cheap_and_can_be_compared() -> None:
    assert create("redis://h") == create("redis://h")
    assert create("redis://h") != create("redis://h", max_payload=1)


def test_a_broker_authenticates_no_peer() -> None:
    capabilities = create("redis://h").capabilities
    assert not capabilities.authenticates_peer
    assert not capabilities.same_process
    assert capabilities.detects_no_responders
    assert capabilities.balances


def test_secrets_do_not_show() -> None:
    assert "hunter2" not in repr(create("redis://me:hunter2@h"))


def test_an_unknown_option_is_an_error_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match='unknown option "max_payloda"; did you mean "max_payload"'):
        create("redis://h", max_payloda=1)
    with pytest.raises(ConfigError, match="known: .*connect_timeout"):
        create("redis://h", zzz=1)


@pytest.mark.parametrize(
    ("url", "options"),
    [("http://h", {}), ("redis://", {}), ("redis://h", {"bus": "a}b"}), ("redis://h", {"bus": ""}), ("redis://h", {"lease": 0})],
)  # fmt: skip
def test_what_cannot_work_is_a_configuration_error(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        create(url, **options)
