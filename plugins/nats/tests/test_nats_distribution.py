"""operad-nats as a distribution, against the conformance kit."""

from __future__ import annotations

from operad_testing import PluginConformance


class TestPlugin(PluginConformance):
    distribution = "operad-nats"
    contributes = {"transports": ["nats", "tls+nats"]}
