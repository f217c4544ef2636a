"""The requests of the front door: their ids, the access log, and ``/metrics``."""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from operad import OperationRegistry
from operad.wire import to_json
from operad_auth.http.metrics import CONTENT_TYPE, metrics_text
from operad_serve.asgi import RECORD, ASGIApplication, Exchange, Gate, Receive, RequestRecord, Scope, Send
from operad_serve.problems import Problem

_BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
"""Upper bounds, in seconds, of the buckets in which the durations of requests are counted."""


class Requests:
    """An ASGI application that gives each request an id, counts it, and writes it to the access log.

    Args:
        app: the application that responds.
        log: the logger for one line of JSON for each request; None for no access log.
    """

    def __init__(self, app: ASGIApplication, log: logging.Logger | None = None) -> None:
        self._app = app
        self._log = log
        self._id_prefix = os.urandom(8).hex() + "-"
        self._next_id = itertools.count(1).__next__
        self.in_progress = 0
        self.statuses: Counter[int] = Counter()
        """The number of ended requests by status. Status 0: the client left before the response began."""
        self.seconds = 0.0
        """The duration of all requests together, in seconds."""
        self.durations = [0] * (len(_BUCKETS) + 1)
        """The number of ended requests in each bucket of `_BUCKETS`, and last, of all that took longer."""

    def histogram(self) -> dict[str, float]:
        """Return the durations, in seconds, as the samples of a histogram for `metrics_text`."""
        counts = itertools.accumulate(self.durations)
        samples: dict[str, float] = {
            f'_bucket{{le="{bound}"}}': count for bound, count in zip((*_BUCKETS, "+Inf"), counts, strict=True)
        }
        return {**samples, "_count": sum(self.durations), "_sum": round(self.seconds, 6)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(f"{self._id_prefix}{self._next_id()}")
        status = size = 0
        began = time.perf_counter()

        async def counted(message: Any) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], (b"operad-request-id", record.id.encode())]
                message = {**message, "headers": headers}
            else:
                size += len(message.get("body", b""))
            await send(message)

        self.in_progress += 1
        try:
            await self._app({**scope, RECORD: record}, receive, counted)
        finally:
            self.in_progress -= 1
            took = time.perf_counter() - began
            self.statuses[status] += 1
            self.seconds += took
            self.durations[bisect_left(_BUCKETS, took)] += 1
            if self._log is not None:
                self._write(scope, record, status, size, took)

    def _write(self, scope: Scope, record: RequestRecord, status: int, size: int, took: float) -> None:
        """Write a request to the access log. Its query is left out: it may contain data of the caller."""
        assert self._log is not None
        client = scope.get("client")
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "requestId": record.id,
            "client": client[0] if client else None,
            "identity": record.identity,
            "method": scope["method"],
            "path": scope["path"],
            "status": status or None,
            "bytes": size,
            "ms": round(took * 1000, 2),
        }
        self._log.info("%s", to_json(line).decode())


def access_log() -> logging.Logger:
    """Return the logger ``operad.serve.access``. Give it a handler to standard error if it has none."""
    log = logging.getLogger("operad.serve").getChild("access")
    log.setLevel(logging.INFO)
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(handler)
        log.propagate = False  # its lines are complete; another handler would put them into a line of its own
    return log


class Metrics:
    """The ASGI application of ``/metrics``.

    Args:
        registry: the registry that is served.
        gate: admits the callers who may read the metrics.
    """

    def __init__(self, registry: OperationRegistry, gate: Gate) -> None:
        self._registry = registry
        self._gate = gate
        self.requests: Requests | None = None
        """The counted requests; if None, their metrics are left out."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request. Raises `NotImplementedError` for a lifespan, which it does not need."""
        if scope["type"] != "http":
            raise NotImplementedError  # it has no lifespan
        exchange = Exchange(scope, receive, send, scope["path"])
        try:
            if exchange.method not in ("GET", "HEAD"):
                raise Problem(405, f"expected GET, got {exchange.method}", headers=[(b"allow", b"GET, HEAD")])
            await self._gate.identify(exchange)
        except Problem as problem:
            await exchange.respond_problem(problem)
            return
        await exchange.respond(200, self.text().encode(), CONTENT_TYPE)

    def text(self) -> str:
        """Return the metrics in the OpenMetrics format."""
        states = Counter(state.status for state in self._registry.sources.states())
        sources = {f'{{status="{status}"}}': count for status, count in sorted(states.items())}
        metrics: list[tuple[str, str, str, float | Mapping[str, float]]] = [
            ("operad_operations", "gauge", "Operations that are served.", len(self._registry)),
            ("operad_sources", "gauge", "Sources of the configuration, by status.", sources),
        ]
        if (requests := self.requests) is not None:
            statuses = {f'{{status="{status}"}}': count for status, count in sorted(requests.statuses.items())}
            metrics += [
                ("operad_http_requests_in_progress", "gauge", "Requests in progress.", requests.in_progress),
                ("operad_http_requests", "counter", "Requests that ended, by status.", statuses),
                ("operad_http_request_seconds", "histogram", "Durations of requests.", requests.histogram()),
            ]
        return metrics_text(metrics)
