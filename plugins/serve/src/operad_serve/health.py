"""The response of ``/health``: whether calls are accepted, and which sources failed."""

from __future__ import annotations

from typing import Any

from operad import OperationRegistry
from operad.wire import to_json


def health_of(registry: OperationRegistry, *, is_draining: bool) -> tuple[int, bytes]:
    """Return the status and the body of ``/health``.

    The server is ready unless it drains, or has nothing to offer because all of its sources failed. Only the log
    has the reasons: this path needs no credentials.
    """
    states = registry.sources.states()
    failed = sorted(state.name for state in states if state.status == "failed")
    is_useless = bool(failed) and len(failed) == len(states) and not len(registry)
    body: dict[str, Any] = {
        "status": "draining" if is_draining else "failed" if is_useless else "ok",
        "ready": not (is_draining or is_useless),
    }
    if failed:
        body["failedSources"] = failed
    return 200 if body["ready"] else 503, to_json(body)
