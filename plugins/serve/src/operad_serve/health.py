"""The response to ``/health``: whether calls are accepted, and which sources failed."""

from __future__ import annotations

from typing import Any

from operad import OperationRegistry
from operad.wire import to_json


def health_of(registry: OperationRegistry, *, is_draining: bool) -> tuple[int, bytes]:
    """Return the HTTP status and the JSON body of ``/health``.

    The status is 200 if the server is ready, else 503. The server is not ready while it drains, or if all of its
    sources failed and it has no operations. Reasons are only in the log, because the path needs no credentials.
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
