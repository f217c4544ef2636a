"""The logging of commands: paragraphs or lines of JSON on standard error."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from operad_cli.output.errors import labelled
from operad_cli.output.progress import CLEAR


def set_up_logging(arguments: Sequence[str]) -> None:
    """Set up logging by ``--debug`` and ``--log-format``, before click parses the arguments: imports may log."""
    debug, as_json = "--debug" in arguments, _wants_json(arguments)
    serves = bool({"serve", "hub"} & set(arguments))
    if debug and not as_json:
        logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s: %(message)s")
        return
    handler = logging.StreamHandler() if as_json else Paragraphs()
    if as_json:
        handler.setFormatter(JSONLines())
    # The commands print failures of sources, plugins and their own calls as errors. A server that logs lines of
    # JSON prints none.
    own = ("plugin ",) if serves else ("plugin ", "operation %r raised")
    if not (serves and as_json):
        own = ("source %s is not loaded", *own)
    if serves or as_json:
        handler.addFilter(Sparing())
    handler.addFilter(lambda record: not str(record.msg).startswith(own))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug else logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.ERROR)


def writes_json() -> bool:
    """Return True if the process writes its logs as lines of JSON."""
    return any(isinstance(handler.formatter, JSONLines) for handler in logging.getLogger().handlers)


def _wants_json(arguments: Sequence[str]) -> bool:
    words = [word for argument in arguments for word in argument.split("=", 1)]
    return ("--log-format", "json") in pairwise(words)


class Paragraphs(logging.Handler):
    """A handler that writes each record as one paragraph on standard error, above the line that shows progress."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, with the number of similar records that were left out."""
        try:
            more = getattr(record, "leftOut", 0)
            left_out = f" (and {more} more like it)" if more else ""
            level = record.levelname.lower()
            has_line = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
            text = labelled(level, f"{record.getMessage()}{_place(record)}{left_out}")
            sys.stderr.write(f"{CLEAR if has_line else ''}{text}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  # as in logging's own handlers
            self.handleError(record)


def _place(record: logging.LogRecord) -> str:
    """Return where the exception of a record was raised: a paragraph has no traceback."""
    frames = traceback.extract_tb(record.exc_info[2]) if record.exc_info else None
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


class JSONLines(logging.Formatter):
    """A formatter that makes one line of JSON from a record.

    Each line has ``time`` (RFC 3339, UTC), ``level``, ``logger`` and ``message``. ``exception`` is a traceback.
    ``leftOut`` is the number of records that `Sparing` left out. ``traceId`` and ``spanId`` (W3C Trace Context,
    lower-case hex) are from OpenTelemetry's current span. With operad-opentelemetry, this is the span of the call
    in which a handler logs.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
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
    """A filter that limits how many records are written, because clients can cause thousands of records.

    Each logging statement may write 20 records in a burst, and one more each second. All statements together may
    write 200 records in a burst, and 10 more each second. The next record of a statement has the number of records
    that were left out, as the attribute ``leftOut``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._all = _Bucket(200, 10.0)
        self._each: dict[tuple[str, str, int], _Bucket] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record may be written."""
        bucket = self._each.setdefault((record.name, record.pathname, record.lineno), _Bucket(20, 1.0))
        if not (bucket.take() and self._all.take()):
            bucket.left_out += 1
            return False
        record.leftOut, bucket.left_out = bucket.left_out, 0
        return True


class _Bucket:
    """A number of records that may be written. It grows with time up to a bound."""

    def __init__(self, bound: float, per_second: float) -> None:
        self._bound = self._left = bound
        self._per_second = per_second
        self._at = time.monotonic()
        self.left_out = 0

    def take(self) -> bool:
        now = time.monotonic()
        self._left = min(self._bound, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _trace() -> dict[str, str]:
    # A program without spans has not imported OpenTelemetry, and this must not import it.
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return {}
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"traceId": f"{context.trace_id:032x}", "spanId": f"{context.span_id:016x}"}
