"""The end of a call that fails: whatever was raised becomes a `CallError`, unless it must pass as it is."""

from __future__ import annotations

import asyncio
import logging
from typing import Self

from operad.deadlines import DeadlineExpired
from operad.errors import CallError, ErrorCode
from operad.failures import map_error, out_of_handler
from operad.registry.entry import Entry

logger = logging.getLogger("operad")


class Errors:
    """A context manager that turns each exception into a `CallError`; `Execution.run` does this without it.

    Args:
        operation_id: the operation, for messages.
        deadline, request_id: those of the call, for messages and the log.
        entry: its entry, once that is known.
        of_handler: whether a `CallError` comes from the handler; else it is the call's own.
    """

    def __init__(
        self, operation_id: str, deadline: float | None, request_id: str | None, entry: Entry | None = None,
        *, of_handler: bool = False,
    ) -> None:  # fmt: skip
        self.operation_id, self.deadline, self.request_id = operation_id, deadline, request_id
        self.entry, self.of_handler = entry, of_handler

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self.check(error)

    def check(self, error: BaseException) -> None:
        """Raise the `CallError` for an error. Return if the error must be raised unchanged."""
        failure: CallError | None = None
        if not isinstance(error, CallError):
            failure = failure_of(error, self.operation_id, self.entry, self.deadline, self.request_id)
        elif self.of_handler and self.entry is not None:
            failure = out_of_handler(error, self.operation_id, self.entry.spec.error_schemas)
        if failure is not None and failure is not error:
            raise failure from error


def failure_of(
    error: BaseException,
    operation_id: str,
    entry: Entry | None,
    deadline: float | None,
    request_id: str | None,
) -> CallError | None:
    """Return the error to raise instead of ``error``; ``None`` if it must pass through."""
    if isinstance(error, DeadlineExpired):
        return CallError(ErrorCode.TIMEOUT, f'"{operation_id}" did not finish in time', {"deadline": deadline})
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return None
        return CallError(ErrorCode.ABORTED, f'"{operation_id}" was cancelled by its handler')
    if isinstance(error, (GeneratorExit, KeyboardInterrupt)):
        return None
    failure = map_error(error, () if entry is None else entry.spec.error_schemas)
    if failure.undeclared:  # unexpected: log the traceback where it happened
        logger.error(
            "operation %r raised %s (request %s)", operation_id, failure.message, request_id, exc_info=error
        )
        failure.logged = request_id
    return failure
