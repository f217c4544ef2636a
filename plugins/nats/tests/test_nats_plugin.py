"""What the distribution contributes, and what its options say when they are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from operad.errors import ConfigError
from operad_nats import NATSTransport
from operad_nats.plugin import create
from plugins.calls.tests.broker_plugins import BrokerPlugin


class TestNATSPlugin(BrokerPlugin):
    distribution = "operad-nats"
    contributes = {"transports": ["nats", "tls+nats"]}
    scheme = "nats"
    transport = NATSTransport
    create = staticmethod(create)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://h", {}), ("nats://", {}), ("nats://h:port", {}), ("nats://a,tls+nats://b", {}),
        ("nats://h", {"prefix": "a b"}), ("nats://h", {"prefix": "a.*"}), ("nats://h", {"inbox_prefix": ""}),
        ("nats://h", {"inbox": "a..b"}),
    ],
)  # fmt: skip
def test_what_cannot_work_is_a_configuration_error(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        create(url, **options)


def test_several_servers_of_a_cluster_are_one_url() -> None:
    assert NATSTransport(servers="nats://a,nats://b:4223").servers == ("nats://a", "nats://b:4223")
    assert not NATSTransport(servers="nats://a").requires_tls
    assert NATSTransport(servers="tls+nats://a").requires_tls
