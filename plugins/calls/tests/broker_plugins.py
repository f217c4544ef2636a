"""What the plugin of a broker contributes, and what its options say when they are wrong."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from operad import load_plugins
from operad.errors import ConfigError
from operad_testing import PluginConformance


class BrokerPlugin(PluginConformance):
    """The kit for plugins, and what those of brokers have in common."""

    scheme: ClassVar[str]
    transport: ClassVar[type[Any]]
    create: ClassVar[Any]

    def test_the_scheme_of_a_url_finds_the_transport(self) -> None:
        transport = load_plugins(only=[self.distribution], strict=True).transport(f"{self.scheme}://127.0.0.1")
        assert isinstance(transport, self.transport)

    def test_a_transport_is_cheap_and_can_be_compared(self) -> None:
        assert self.create(f"{self.scheme}://h") == self.create(f"{self.scheme}://h")
        assert self.create(f"{self.scheme}://h") != self.create(f"{self.scheme}://h", max_payload=1)

    def test_a_broker_authenticates_no_peer(self) -> None:
        capabilities = self.create(f"{self.scheme}://h").capabilities
        assert (capabilities.authenticates_peer, capabilities.same_process) == (False, False)
        assert (capabilities.detects_no_responders, capabilities.balances) == (True, True)

    def test_secrets_do_not_show(self) -> None:
        assert "hunter2" not in repr(self.create(f"{self.scheme}://me:hunter2@h"))

    def test_an_unknown_option_is_an_error_with_the_nearest_known_one(self) -> None:
        with pytest.raises(ConfigError, match='unknown option "max_payloda"; did you mean "max_payload"'):
            self.create(f"{self.scheme}://h", max_payloda=1)
        with pytest.raises(ConfigError, match="known: .*connect_timeout"):
            self.create(f"{self.scheme}://h", zzz=1)
