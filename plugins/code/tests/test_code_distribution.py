"""The distribution against the conformance kit."""

from __future__ import annotations

from operad_testing import PluginConformance


class TestPlugin(PluginConformance):
    distribution = "operad-code"
    contributes = {"sources": ["code"], "hooks": ["operad_commands"]}
