"""The tree of calls that one call made, for ``operad trace``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from operad_cli.output.progress import in_words
from operad_cli.output.text import print_text, printable, styled

_MOST_REPORTS, _MOST_DRAWN = 100, 5


class Calls:
    """An observer that collects calls, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: dict[str, Any] = {}
        self._outcomes: dict[str, Any] = {}
        self._reports: dict[str, list[Any]] = {}  # the last `_MOST_REPORTS` of each call

    def started(self, call: Any) -> None:
        """Add a call that begins."""
        self._calls[call.request_id] = call

    def finished(self, call: Any, outcome: Any) -> None:
        """Add the outcome of a call that has ended."""
        self._outcomes[call.request_id] = outcome

    def reported(self, call: Any, report: Any) -> None:
        """Add a report of a running call, and drop its oldest reports beyond 100."""
        reports = self._reports.setdefault(call.request_id, [])
        reports.append(report)
        del reports[:-_MOST_REPORTS]

    def _children(self, parent: str | None) -> list[Any]:
        """Return the calls that a call made; for None, the calls without a collected parent."""
        return [
            call
            for call in self._calls.values()
            if call.parent_request_id == parent or (parent is None and call.parent_request_id not in self._calls)
        ]

    def to_json(self, parent: str | None = None) -> list[dict[str, Any]]:
        """Return the calls that the call with the request id ``parent`` made, as JSON; if None, the whole tree."""
        made = []
        for call in self._children(parent):
            outcome = self._outcomes.get(call.request_id)
            node = {"operationId": call.operation_id, "requestId": call.request_id, "started": int(call.started)}
            if outcome is not None:
                node["durationMs"] = round(outcome.duration_ms, 3)
                node["items"] = outcome.items
                if outcome.error is not None:
                    node["error"] = outcome.error.to_wire()
            if call.request_id in self._reports:
                node["reports"] = [_to_json(report) for report in self._reports[call.request_id]]
            node["calls"] = self.to_json(call.request_id)
            made.append(node)
        return made

    def draw(self) -> None:
        """Print the tree on standard output."""
        for call in self._children(None):
            print_text(self._label(call))
            for line in self._lines(call):
                print_text(line)

    def _lines(self, call: Any) -> Iterator[str]:
        """Return the lines below a call: its reports, then the calls that it made."""
        reports = self._reports.get(call.request_id, ())[-_MOST_DRAWN:]
        below: list[tuple[str, Any]] = [(styled(printable(in_words(report)), "dim"), None) for report in reports]
        below += [(self._label(child), child) for child in self._children(call.request_id)]
        for number, (label, child) in enumerate(below, 1):
            branch, rest = ("└── ", "    ") if number == len(below) else ("├── ", "│   ")
            yield styled(branch, "dim") + label
            if child is not None:
                for line in self._lines(child):
                    yield styled(rest, "dim") + line

    def _label(self, call: Any) -> str:
        outcome = self._outcomes.get(call.request_id)
        name = styled(call.operation_id, "bold")
        if outcome is None:
            return f"{name}  {styled('still running', 'yellow')}"
        text = f"{name}  {styled(f'{outcome.duration_ms:.1f} ms', 'dim')}"
        if outcome.error is not None:
            return f"{text}  {styled(printable(str(outcome.error)), 'red')}"
        return text if outcome.items == 1 else f"{text}  {styled(f'{outcome.items} items', 'dim')}"


def _to_json(report: Any) -> dict[str, Any]:
    names = ("kind", "level", "message", "progress", "total", "unit")
    fields = {name: getattr(report, name) for name in names if getattr(report, name) is not None}
    return fields | dict(report.attributes)
