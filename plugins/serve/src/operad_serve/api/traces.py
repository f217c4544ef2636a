"""Call trees, which record the nested calls of a call that asks for a tree, and how long each took."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from operad import Identity, OperationRegistry
from operad.plugin import may_list
from operad.words import printable

MAX_KEPT = 64
"""How many trees are kept, the latest ones."""
MAX_CALLS = 1_000
"""How many calls of one tree are kept. Further calls are only counted."""
MAX_REPORTS = 100
"""How many reports of one call are kept, the latest ones."""


@attrs.define
class _Call:
    operation_id: str
    started: float
    """In epoch ms."""
    children: list[_Call] = attrs.field(factory=list)
    duration: float | None = None
    items: int = 0
    error: str | None = None
    reports: list[tuple[float, Any]] = attrs.field(factory=list)
    """Its reports of progress and logs, each with its time (epoch ms)."""


@attrs.define
class _Tree:
    owner: str | None
    root: _Call | None = None
    calls: dict[str, _Call] = attrs.field(factory=dict)
    left_out: int = 0


class Traces:
    """The call trees of one registry. While no call is traced, the registry is not observed."""

    def __init__(self, registry: OperationRegistry) -> None:
        self._registry = registry
        self._trees: OrderedDict[str, _Tree] = OrderedDict()
        self._of: dict[str, _Tree] = {}
        """The tree that a running call belongs to, by the id of the call."""
        self._running = 0
        self._stop: Callable[[], None] | None = None

    @contextmanager
    def tracing(self, request_id: str, identity: Identity | None) -> Iterator[None]:
        """Record the tree of the call with this request id. Only its caller, ``identity``, may read the tree."""
        tree = self._trees[request_id] = self._of[request_id] = _Tree(None if identity is None else identity.id)
        while len(self._trees) > MAX_KEPT:
            self._trees.popitem(last=False)
        if self._stop is None:
            self._stop = self._registry.observe(self._started, self._finished, self._reported)
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            for each in (request_id, *tree.calls):
                self._of.pop(each, None)
            if not self._running:
                self._stop()
                self._stop = None

    def _started(self, call: Any) -> None:
        parent = call.parent_request_id
        tree = self._of.get(call.request_id) or (self._of.get(parent) if parent is not None else None)
        if tree is None:
            return
        if len(tree.calls) >= MAX_CALLS:
            tree.left_out += 1
            return
        made = tree.calls[call.request_id] = _Call(call.operation_id, call.started)
        self._of[call.request_id] = tree
        above = tree.calls.get(parent)
        if above is not None:
            above.children.append(made)
        elif tree.root is None:
            tree.root = made

    def _reported(self, call: Any, report: Any) -> None:
        tree = self._of.get(call.request_id)
        made = None if tree is None else tree.calls.get(call.request_id)
        if made is not None:
            made.reports.append((time.time() * 1000, report))
            del made.reports[:-MAX_REPORTS]

    def _finished(self, call: Any, outcome: Any) -> None:
        tree = self._of.get(call.request_id)
        made = None if tree is None else tree.calls.get(call.request_id)
        if made is not None:
            made.duration, made.items = outcome.duration_ms, outcome.items
            made.error = None if outcome.error is None else outcome.error.code

    def tree(self, request_id: str, identity: Identity | None) -> dict[str, Any] | None:
        """Return the tree of a call as JSON, ``{call, leftOut}``; None if it is not kept, or another caller's.

        Operations that ``identity`` may not see have neither id nor reports in the tree. ``leftOut`` is the number
        of calls beyond `MAX_CALLS`.
        """
        tree = self._trees.get(request_id)
        if tree is None or tree.root is None or tree.owner != (None if identity is None else identity.id):
            return None
        return {"call": self._json(tree.root, tree.root.started, identity), "leftOut": tree.left_out}

    def _json(self, call: _Call, zero: float, identity: Identity | None) -> dict[str, Any]:
        spec = self._registry.get_spec(call.operation_id)
        is_seen = spec is None or may_list(spec.access_control, identity)
        return {
            "operationId": call.operation_id if is_seen else None,
            "startMs": max(0.0, round(call.started - zero, 3)),
            "durationMs": None if call.duration is None else round(call.duration, 3),
            "items": call.items,
            "error": call.error,
            "reports": [_report(at - zero, report) for at, report in call.reports] if is_seen else [],
            "children": [self._json(child, zero, identity) for child in call.children],
        }


def _report(at: float, report: Any) -> dict[str, Any]:
    """Return a report as JSON."""
    return {
        "atMs": max(0.0, round(at, 3)),
        "kind": report.kind,
        "level": report.level,
        "message": None if report.message is None else printable(report.message),
        "progress": report.progress,
        "total": report.total,
        "unit": report.unit,
    }
