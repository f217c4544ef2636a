"""operad-websocket as a distribution, against the conformance kit."""

from __future__ import annotations

from operad.testing import PluginConformance


class TestPlugin(PluginConformance):
    distribution = "operad-websocket"
    contributes = {"transports": ["ws", "wss"]}
