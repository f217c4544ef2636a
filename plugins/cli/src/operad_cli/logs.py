"""Log records as JSON lines, with the trace that each belongs to."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any


class JSONLines(logging.Formatter):
    """A record as one line of JSON: time (RFC 3339, UTC), level, logger, message; exception; traceId, spanId.

    The ids are those of OpenTelemetry's current span (W3C Trace Context, lower-case hex), if there is one: with
    operad-opentelemetry that of the call whose handler logs.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | _trace(), ensure_ascii=False)


def _trace() -> dict[str, str]:
    # Who has no spans has not imported it, and is not made to.
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return {}
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"traceId": f"{context.trace_id:032x}", "spanId": f"{context.span_id:016x}"}
