"""Log records as JSON lines, with the trace that each belongs to."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from operad.plugin import Allowance


class JSONLines(logging.Formatter):
    """A record as one line of JSON: time (RFC 3339, UTC), level, logger, message; exception; leftOut; trace.

    ``traceId`` and ``spanId`` are those of OpenTelemetry's current span (W3C Trace Context, lower-case hex), if
    there is one: with operad-opentelemetry that of the call whose handler logs. ``leftOut`` is told by `Sparing`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if more := getattr(record, "leftOut", 0):
            line["leftOut"] = more
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | _trace(), ensure_ascii=False)


class Sparing(logging.Filter):
    """Lets each statement of the program write 20 records at once and one more a second; all together 200, and 10.

    How many were left out is told with the next of the same statement. Errors are counted like all others: they
    are what somebody else's requests cause by the thousand.
    """

    def __init__(self) -> None:
        super().__init__()
        self._all = Allowance(200, 10.0)
        self._each: dict[tuple[str, str, int], Allowance] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is written."""
        place = (record.name, record.pathname, record.lineno)
        allowance = self._each.get(place)
        if allowance is None:
            allowance = self._each[place] = Allowance(20, 1.0)
        if not allowance.take():
            return False
        if not self._all.take():
            allowance.kept += 1
            return False
        record.leftOut, allowance.kept = allowance.kept, 0
        return True


def _trace() -> dict[str, str]:
    # Who has no spans has not imported it, and is not made to.
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return {}
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"traceId": f"{context.trace_id:032x}", "spanId": f"{context.span_id:016x}"}
