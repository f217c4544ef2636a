"""The record of one plugin: whether it was loaded, what it contributes, or why it failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from operad.records import record

PluginStatus = Literal["loaded", "failed", "disabled", "conflict", "incompatible"]


@record
class PluginRecord:
    """The state of one plugin, with its contributions if it is loaded, or the reason why it is not loaded."""

    name: str
    """The name of the entry point, or the name that the application registered."""
    distribution: str | None = None
    """The distribution that contains the plugin; ``None`` if the application registered the plugin."""
    version: str | None = None
    """The version of the distribution; ``None`` if it is not known."""
    status: PluginStatus = "loaded"
    error: str | None = None
    """The reason why the plugin is not loaded, and how to fix it; ``None`` if it is loaded or disabled."""
    contributes: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """Names by kind: ``sources``, ``envelope_kinds``, ``transports``, ``servers``, and all other ``hooks``."""

    @property
    def label(self) -> str:
        """The plugin's name, distribution and version, for messages."""
        if self.distribution is None:
            return f'"{self.name}"'
        return f'"{self.name}" ({self.distribution} {self.version or "of unknown version"})'

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form: an object with every field."""
        return {
            **attrs.asdict(self, filter=lambda field, _: field.name != "contributes"),
            "contributes": {kind: list(names) for kind, names in self.contributes.items()},
        }
