"""The audit log of a rule: one line of JSON for each call, written before its result is returned."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from operad import CallError, ErrorCode
from operad.observers import CallOutcome, CallRecord
from operad.plugin import InterceptedCall
from operad_rules.steps import Guard

if TYPE_CHECKING:
    from operad import OperationRegistry

_LONGEST = 512
"""Characters of an id in a line: callers choose ids of operations and requests."""
_UNWRITTEN = 2**20
_encode = msgspec.json.Encoder().encode


class Line(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A line of the log."""

    time: int
    request_id: str
    caller: str | None
    operation: str
    outcome: str
    ms: float
    parent: str | None = None
    items: int | None = None
    input: str | None = None


class Audit(Guard):
    """Append a line for each call of some operations: also for calls that were rejected before they ran.

    The line is written by an observer, which sees every call with its outcome; the interceptor adds the digest of
    the input. The two meet in a context variable, which holds what is known of the innermost call.

    If a line cannot be written, that call has already run; further calls are rejected until writing works again.
    Lines that could not be written are kept for then, 1 MiB at most.

    Args:
        path: the file, made with mode 0600. Each line is one ``write`` in append mode, so several processes can
            share it.
        matches: returns True for the id of an operation whose calls are audited.
    """

    def __init__(self, path: Path, matches: Callable[[str], bool]) -> None:
        self._path, self._name = path, str(path)
        self._matches = lru_cache(1_000)(matches)
        self._file: int | None = None
        self._unwritten = b""
        self._broken: str | None = None
        self._current: ContextVar[list[str] | None] = ContextVar("operad_audit", default=None)

    async def check(self, call: InterceptedCall) -> None:
        """Add the digest of the input. Raises ``UNAVAILABLE`` if the file cannot be written."""
        if self._broken is not None:
            self._write(b"")
        if self._broken is not None:
            message = f"calls are audited, and the audit log cannot be written: {self._broken}"
            raise CallError(ErrorCode.UNAVAILABLE, message, {"sent": False})
        if (own := self._current.get()) is not None:
            own[:] = [_digest(call.input)]

    def observe(self, registry: OperationRegistry) -> None:
        """Observe the calls of a registry: note their start, and write the line at their end."""
        current, name, matches = self._current, self._name, self._matches

        def started(call: CallRecord) -> None:
            if matches(call.operation_id):
                own: list[str] = []
                call.state[name] = current.get(), own
                current.set(own)

        def finished(call: CallRecord, outcome: CallOutcome) -> None:
            if name in call.state:
                outer, own = call.state.pop(name)
                current.set(outer)
                line = Line(
                    int(call.started),
                    call.request_id[:_LONGEST],
                    call.identity_id,
                    call.operation_id[:_LONGEST],
                    "ok" if outcome.error is None else str(outcome.error.code)[:_LONGEST],
                    int(outcome.duration_ms * 1_000) / 1_000,
                    None if call.parent_request_id is None else call.parent_request_id[:_LONGEST],
                    outcome.items if call.is_stream else None,
                    *own,
                )
                self._write(_encoded(line) + b"\n")

        for observer in (started, finished):
            vars(observer)["matches"] = matches  # calls of other operations need not be observed
        registry.observe(started, finished)

    def _write(self, line: bytes) -> None:
        if len(self._unwritten) <= _UNWRITTEN:
            self._unwritten += line
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._unwritten = self._unwritten[os.write(self._file, self._unwritten) :]
            self._broken = "a line was written in part: the disk is full" if self._unwritten else None
        except OSError as error:
            self._broken = f"{self._path}: {error.strerror}"

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _encoded(line: Line) -> bytes:
    """Return a line as ASCII: ids that callers choose must not look like several lines or control a terminal."""
    try:
        encoded = _encode(line)
    except ValueError:  # half of a surrogate pair in an id
        encoded = b"\xff"
    return encoded if encoded.isascii() else json.dumps(msgspec.to_builtins(line), separators=(",", ":")).encode()


def _digest(input: Any) -> str:
    """Return the SHA-256 of the input as JSON; of its ``repr`` if it has no JSON form."""
    try:
        encoded = _encode(input)
    except (OverflowError, RecursionError, TypeError, ValueError):
        encoded = repr(input).encode(errors="replace")
    return hashlib.sha256(encoded).hexdigest()
