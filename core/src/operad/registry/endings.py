"""Failed calls: exceptions become a `CallError`, except a cancellation of the caller's task and Ctrl-C."""

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
    """A context manager that converts exceptions to `CallError`, for streams and interceptors.

    Args:
        operation_id: the id of the operation, for messages.
        deadline: the deadline of the call in epoch ms, for the details of ``TIMEOUT``.
        request_id: the id of the call, for the log.
        entry: the entry of the operation; ``None`` until it is known.
        of_handler: whether a `CallError` comes from the handler, and not from the registry.
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
        """Raise the `CallError` for ``error``, or return ``None`` if ``error`` itself must be raised."""
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
    """Return the `CallError` to raise instead of ``error``; ``None`` if ``error`` must be raised unchanged."""
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
