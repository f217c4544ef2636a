"""The calls that one call made, as a tree."""

from __future__ import annotations

from typing import Any

import attrs
from rich.markup import escape
from rich.tree import Tree

from operad_cli.plain import printable
from operad_cli.progress import in_words
from operad_cli.render import console

_MOST_TOLD, _MOST_DRAWN = 100, 5


@attrs.define
class Calls:
    """What observers saw, in the order in which the calls began."""

    seen: dict[str, Any] = attrs.field(factory=dict)
    ended: dict[str, Any] = attrs.field(factory=dict)
    told: dict[str, list[Any]] = attrs.field(factory=dict)
    """What calls reported; the last `_MOST_TOLD` of each."""

    def started(self, call: Any) -> None:
        """A call begins."""
        self.seen[call.request_id] = call

    def finished(self, call: Any, outcome: Any) -> None:
        """A call has ended."""
        self.ended[call.request_id] = outcome

    def reported(self, call: Any, report: Any) -> None:
        """A call tells of itself."""
        told = self.told.setdefault(call.request_id, [])
        told.append(report)
        del told[:-_MOST_TOLD]

    def children(self, parent: str | None) -> list[Any]:
        """The calls that one made; of ``None``, those whose maker is not among them."""
        return [
            call
            for call in self.seen.values()
            if call.parent_request_id == parent or (parent is None and call.parent_request_id not in self.seen)
        ]

    def to_json(self, parent: str | None = None) -> list[dict[str, Any]]:
        """The tree for programs."""
        made = []
        for call in self.children(parent):
            outcome = self.ended.get(call.request_id)
            node = {"operationId": call.operation_id, "requestId": call.request_id, "started": int(call.started)}
            if outcome is not None:
                node["durationMs"] = round(outcome.duration_ms, 3)
                node["items"] = outcome.items
                if outcome.error is not None:
                    node["error"] = outcome.error.to_wire()
            if call.request_id in self.told:
                node["reports"] = [_to_json(report) for report in self.told[call.request_id]]
            node["calls"] = self.to_json(call.request_id)
            made.append(node)
        return made

    def draw(self) -> None:
        """Print it."""
        for call in self.children(None):
            drawn = Tree(self._label(call), guide_style="dim")
            self._add(drawn, call)
            console().print(drawn)

    def _add(self, branch: Tree, call: Any) -> None:
        for report in self.told.get(call.request_id, ())[-_MOST_DRAWN:]:
            branch.add(f"[dim]{escape(printable(in_words(report)))}[/]")
        for child in self.children(call.request_id):
            self._add(branch.add(self._label(child)), child)

    def _label(self, call: Any) -> str:
        outcome = self.ended.get(call.request_id)
        name = f"[bold]{escape(call.operation_id)}[/]"
        if outcome is None:
            return f"{name}  [yellow]still running[/]"
        text = f"{name}  [dim]{outcome.duration_ms:.1f} ms[/]"
        if outcome.items != 1 and outcome.error is None:
            text += f"  [dim]{outcome.items} items[/]"
        return text if outcome.error is None else f"{text}  [red]{escape(str(outcome.error))}[/]"


def _to_json(report: Any) -> dict[str, Any]:
    names = ("kind", "level", "message", "progress", "total", "unit")
    told = {name: getattr(report, name) for name in names if getattr(report, name) is not None}
    return told | dict(report.attributes)
