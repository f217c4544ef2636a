"""The audit log of a rule: one line of JSON for each call, written before its result is returned."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from operad import CallError, ErrorCode
from operad.observers import CallOutcome, CallRecord
from operad.plugin import InterceptedCall
from operad_rules.rule import Rule
from operad_rules.steps import Guard

if TYPE_CHECKING:
    from operad import OperationRegistry

logger = logging.getLogger("operad.rules")

_LONGEST = 512
"""The maximum number of characters of an id in a line, because callers choose ids of operations and requests."""
_UNWRITTEN = 2**20
_CHECK = 1_000.0
"""How often to check whether the file was moved or deleted, in ms."""
_encode = msgspec.json.Encoder().encode


class Line(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    """A line of the log: the start in epoch ms, the duration in ms, and a SHA-256 digest of the input."""

    time: int
    request_id: str
    caller: str | None
    operation: str
    outcome: str
    ms: float
    input: str
    parent: str | None = None
    items: int | None = None


class Audit(Guard):
    """A guard that appends a line to a file for each call of some operations, also for a call that was rejected.

    Observers write the line, because they see every call with its outcome. If a line cannot be written, its call
    has already run; an interceptor rejects further calls until writing works again. Until then, up to 1 MiB of
    lines that could not be written are kept.

    Args:
        path: the file, created with mode 0600. Each line is one ``write`` in append mode, so that several
            processes can share the file.
        rule: the rule that has the audit.
        order: the order of the interceptor.
    """

    def __init__(self, path: Path, rule: Rule, order: int) -> None:
        self._path, self._name = path, str(path)
        self._rule, self._order = rule, order
        self._file: int | None = None
        self._unwritten = b""
        self._broken: str | None = None
        self._check_at = 0.0
        """When to check the file again, in epoch ms."""
        self._registry: OperationRegistry | None = None
        self._accept: Callable[[], None] | None = None
        """Removes the interceptor; ``None`` if calls are not rejected."""

    async def check(self, call: InterceptedCall) -> None:
        """Try to write the kept lines. Raises `CallError` ``UNAVAILABLE`` if they cannot be written."""
        self._write(b"")
        if self._broken is not None:
            message = f"the call must be audited, but the audit log cannot be written: {self._broken}"
            raise CallError(ErrorCode.UNAVAILABLE, message, {"sent": False})

    def observe(self, registry: OperationRegistry) -> None:
        """Observe the calls of a registry: digest the input before a call, and write the line after it."""
        self._registry, name, write = registry, self._name, self._write

        def started(call: CallRecord) -> None:
            call.state[name] = _digest({} if call.input is None else call.input)

        def finished(call: CallRecord, outcome: CallOutcome) -> None:
            digest = call.state.pop(name, None)
            if digest is not None:
                line = Line(
                    int(call.started),
                    call.request_id[:_LONGEST],
                    call.identity_id,
                    call.operation_id[:_LONGEST],
                    "ok" if outcome.error is None else str(outcome.error.code)[:_LONGEST],
                    int(outcome.duration_ms * 1_000) / 1_000,
                    digest,
                    None if call.parent_request_id is None else call.parent_request_id[:_LONGEST],
                    outcome.items if call.is_stream else None,
                )
                if call.started > self._check_at:
                    self._check_at = call.started + _CHECK
                    self._check()
                write(_encoded(line) + b"\n")

        for observer in (started, finished):
            vars(observer)["matches"] = self._rule.matches  # calls of other operations are not observed
        registry.observe(started, finished)

    def _guard(self, broken: str | None) -> None:
        """Reject further calls while lines cannot be written; accept them again if ``broken`` is ``None``."""
        self._broken = broken
        if broken is None and self._accept is not None:
            self._accept()
            self._accept = None
        elif broken is not None and self._accept is None and self._registry is not None:
            use, match = self._registry.use, self._rule.patterns
            self._accept = use(self.call, subscribe=self.stream, match=match, order=self._order)

    def _write(self, line: bytes) -> None:
        """Write a line after the lines that could not be written before."""
        if self._unwritten:
            line = self._unwritten + line if len(self._unwritten) <= _UNWRITTEN else self._unwritten
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            written = os.write(self._file, line)
        except OSError as error:
            self._unwritten = line
            self._guard(f"{self._path}: {error.strerror}")
        else:
            if self._broken is not None or written < len(line):
                self._unwritten = line[written:]
                self._guard(f"{self._path}: a line was not written completely" if self._unwritten else None)

    def _check(self) -> None:
        """Close the file if it was moved or deleted, so that the next line creates it again."""
        try:
            is_same = self._file is None or os.path.samestat(os.fstat(self._file), self._path.stat())
        except OSError:
            is_same = False
        if not is_same:
            self._close_file()

    def close(self) -> None:
        """Try to write the kept lines, and close the file; idempotent. An error is logged if lines are lost."""
        if self._unwritten:
            self._write(b"")
        if self._unwritten:
            logger.error("audit: %d bytes of lines are lost: %s", len(self._unwritten), self._broken)
            self._unwritten = b""
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _encoded(line: Line) -> bytes:
    """Return a line in ASCII, so that ids from callers cannot look like several lines or control a terminal."""
    try:
        encoded = _encode(line)
    except ValueError:  # half of a surrogate pair in an id
        encoded = b"\xff"
    return encoded if encoded.isascii() else json.dumps(msgspec.to_builtins(line), separators=(",", ":")).encode()


def _digest(input: Any) -> str:
    """Return the SHA-256 digest of the input as JSON, or of its ``repr`` if it cannot be converted to JSON."""
    try:
        encoded = _encode(input)
    except (OverflowError, RecursionError, TypeError, ValueError):
        encoded = repr(input).encode(errors="replace")
    return hashlib.sha256(encoded).hexdigest()
