"""operad-redis as a distribution, against the conformance kit."""

from __future__ import annotations

from operad_testing import PluginConformance


class TestPlugin(PluginConformance):
    distribution = "operad-redis"
    contributes = {"transports": ["redis", "rediss"]}
