"""The record of one plugin: whether it was loaded, what it contributes, or why it failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from operad.records import record

PluginStatus = Literal["loaded", "failed", "disabled", "conflict", "incompatible"]


@record
class PluginRecord:
    """The state of one plugin: loaded with its contributions, or the reason why not."""

    name: str
    """The entry point's name."""
    distribution: str | None = None
    """The distribution that contains it; ``None`` for a plugin registered by the application itself."""
    version: str | None = None
    """The distribution's version."""
    status: PluginStatus = "loaded"
    error: str | None = None
    """Why it is not loaded, and how to fix it."""
    contributes: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """Names by kind: ``sources``, ``envelope_kinds``, ``transports``, ``servers``, and the other ``hooks``."""

    @property
    def label(self) -> str:
        """Name and origin, for messages."""
        if self.distribution is None:
            return f'"{self.name}"'
        return f'"{self.name}" ({self.distribution} {self.version or "of unknown version"})'

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form: every field, ``contributes`` with lists."""
        return {
            **attrs.asdict(self, filter=lambda field, _: field.name != "contributes"),
            "contributes": {kind: list(names) for kind, names in self.contributes.items()},
        }
