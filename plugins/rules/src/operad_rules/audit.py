"""The audit log of a rule: one line of JSON for each call, written before its result is returned."""

from __future__ import annotations

import hashlib
import json
import os
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from operad import CallError, ErrorCode
from operad.observers import CallOutcome, CallRecord
from operad.plugin import InterceptedCall
from operad.wire import to_json
from operad_rules.steps import Guard

_LONGEST = 512
"""Characters of an id in a line: callers choose ids of operations and requests."""


class Audit(Guard):
    """Append a line for each call of some operations: also for calls that were rejected before they ran.

    The line is written by an observer, which sees every call with its outcome; the interceptor adds the digest of
    the input. The two meet in a context variable, which holds what is known of the innermost call.

    If a line cannot be written, that call has already run; further calls are rejected until writing works again.

    Args:
        path: the file, made with mode 0600. Each line is one ``write`` in append mode, so several processes can
            share it.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._name = path, str(path)
        self._file: int | None = None
        self._broken: str | None = None
        self._digest: ContextVar[list[str] | None] = ContextVar("operad_audit", default=None)

    async def check(self, call: InterceptedCall) -> None:
        """Add the digest of the input. Raises ``UNAVAILABLE`` if the file cannot be written."""
        if self._broken is not None:
            self._write(b"")
        if self._broken is not None:
            message = f"calls are audited, and the audit log cannot be written: {self._broken}"
            raise CallError(ErrorCode.UNAVAILABLE, message, {"sent": False})
        if (found := self._digest.get()) is not None:
            found[:] = [_digest(call.input)]

    def started(self, call: CallRecord) -> None:
        """Observe the start of a call."""
        outer, own = self._digest.get(), list[str]()
        call.state[self._name] = outer, own
        self._digest.set(own)

    def finished(self, call: CallRecord, outcome: CallOutcome) -> None:
        """Write the line of a call that ended."""
        outer, own = call.state.pop(self._name, (None, []))
        self._digest.set(outer)
        line: dict[str, Any] = {
            "time": round(call.started),
            "requestId": call.request_id[:_LONGEST],
            "caller": call.identity_id,
            "operation": call.operation_id[:_LONGEST],
            "outcome": "ok" if outcome.error is None else str(outcome.error.code)[:_LONGEST],
            "ms": round(outcome.duration_ms, 3),
        }
        if call.parent_request_id is not None:
            line["parent"] = call.parent_request_id[:_LONGEST]
        if call.is_stream:
            line["items"] = outcome.items
        if own:
            line["input"] = own[0]
        self._write(_encoded(line) + b"\n")

    def _write(self, line: bytes) -> None:
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            written = os.write(self._file, line)
            self._broken = None if written == len(line) else "a line was written in part: the disk is full"
        except OSError as error:
            self._broken = f"{self._path}: {error.strerror}"

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _encoded(line: dict[str, Any]) -> bytes:
    """Return a line as ASCII: ids that callers choose must not look like several lines or control a terminal."""
    try:
        encoded = to_json(line)
    except CallError:  # half of a surrogate pair in an id
        encoded = b"\xff"
    return encoded if encoded.isascii() else json.dumps(line, separators=(",", ":")).encode()


def _digest(input: Any) -> str:
    """Return the SHA-256 of the input as JSON; of its ``repr`` if it has no JSON form."""
    try:
        encoded = to_json(input)
    except CallError:
        encoded = repr(input).encode(errors="replace")
    return hashlib.sha256(encoded).hexdigest()
