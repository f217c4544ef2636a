"""What the distribution contributes, and what its options say when they are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from operad.errors import ConfigError
from operad_redis import RedisTransport
from operad_redis.plugin import create
from plugins.calls.tests.broker_plugins import BrokerPlugin


class TestRedisPlugin(BrokerPlugin):
    distribution = "operad-redis"
    contributes = {"transports": ["redis", "rediss"]}
    scheme = "redis"
    transport = RedisTransport
    create = staticmethod(create)


@pytest.mark.parametrize(
    ("url", "options"),
    [("http://h", {}), ("redis://", {}), ("redis://h", {"bus": "a}b"}), ("redis://h", {"bus": ""}), ("redis://h", {"lease": 0})],
)  # fmt: skip
def test_what_cannot_work_is_a_configuration_error(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        create(url, **options)
