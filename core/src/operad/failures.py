"""Convert any exception to a `CallError`, and mask errors before they leave the process."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from operad.errors import CallError, ErrorCode
from operad.operations import ErrorDefinition
from operad.words import in_words, json_safe, text_of

logger = logging.getLogger("operad")


def operation_not_found(operation_id: str, message: str | None = None) -> CallError:
    """Return an ``OPERATION_NOT_FOUND`` error whose `ran` is ``False``; by default its message names the id."""
    error = CallError(
        ErrorCode.OPERATION_NOT_FOUND,
        message or f'operation "{operation_id}" not found',
        {"operationId": operation_id},
    )
    error.ran = False
    return error


def out_of_handler(
    error: CallError, operation_id: str, error_schemas: Iterable[ErrorDefinition] = ()
) -> CallError:
    """Return the error with which a call fails if its handler raised ``error``.

    Usually that is ``error`` itself. But a code that means that nothing ran would be wrong for the handler's call:
    a handler that charged a card and then called a missing operation did run. Such an error becomes
    ``EXECUTION_ERROR`` with ``details.cause``, unless the operation declares the code or its handler only
    forwarded the call.
    """
    if error.ran is False and not error.says_nothing_ran:
        # The handler that raised it did nothing before; the one around that may have.
        error.ran, error.forwarded = False if error.forwarded else None, False
        return error
    if not error.says_nothing_ran or any(item.code == error.code for item in error_schemas):
        return error
    if error.forwarded:
        error.forwarded = False  # true for this call, not for the one in which it is nested
        return error
    message = f'"{operation_id}" failed in a nested call: {error.code}: {error.message}'
    return CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message, "cause": error.to_wire()})


def map_error(error: BaseException, error_schemas: Iterable[ErrorDefinition] = ()) -> CallError:
    """Return the `CallError` for any exception that a handler raised.

    In this order: a `CallError` is returned unchanged; a cancellation becomes ``ABORTED``; ``SystemExit`` becomes
    ``UNKNOWN_ERROR``. An exception gets a declared code if its class, a base class or its ``code`` attribute has
    that name, or if its message contains the code as a whole word. Any other exception becomes ``EXECUTION_ERROR``
    with ``details={"message": …}``. The exception becomes the ``__cause__`` of a new error.

    Args:
        error: the exception.
        error_schemas: the errors that the operation declares.
    """
    if isinstance(error, CallError):
        return error
    mapped = _map_foreign(error, tuple(error_schemas))
    mapped.__cause__ = error
    return mapped


def _map_foreign(error: BaseException, declared: tuple[ErrorDefinition, ...]) -> CallError:
    from asyncio import CancelledError  # not at import: finding plugins needs no event loop

    message = text_of(error)
    if isinstance(error, CancelledError):
        return CallError(ErrorCode.ABORTED, message or "the call was cancelled")
    if isinstance(error, SystemExit):
        return _undeclared(ErrorCode.UNKNOWN_ERROR, "the handler raised SystemExit", {"raw": text_of(repr(error))})
    definition = _declared(error, message, declared)
    if definition is not None:
        return CallError(definition.code, message or definition.description, _details(error, definition))
    message = in_words(error)
    return _undeclared(ErrorCode.EXECUTION_ERROR, message, {"message": message})


def _undeclared(code: str, message: str, details: dict[str, Any]) -> CallError:
    error = CallError(code, message, details)
    error.undeclared = True
    return error


def _declared(error: BaseException, message: str, declared: tuple[ErrorDefinition, ...]) -> ErrorDefinition | None:
    if not declared:
        return None
    # The classes of the exception and its bases, without Python's own roots.
    names = {cls.__name__ for cls in type(error).__mro__ if cls not in (Exception, BaseException, object)}
    names.add(text_of(_attribute(error, "code")))
    for definition in declared:
        if definition.code in names:
            return definition
    for definition in declared:
        if _whole_word(definition.code).search(message):
            return definition
    return None


def _attribute(error: BaseException, name: str) -> Any:
    """Return an attribute of any exception; ``None`` if it is missing or is a property that raises."""
    try:
        return getattr(error, name, None)
    except (Exception, SystemExit):  # noqa: BLE001  # any exception class may come here
        return None


@lru_cache(maxsize=512)
def _whole_word(code: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9_]){re.escape(code)}(?![A-Za-z0-9_])")


def _details(error: BaseException, definition: ErrorDefinition) -> Any:
    details = _attribute(error, "details")
    if details is None:
        return None
    safe = json_safe(details)
    if not definition.schema.is_unknown and (errors := definition.schema.errors(safe)):
        text = "details of error %s do not match its schema, and are sent unchanged: %s"
        logger.warning(text, definition.code, errors[0].message)
    return safe


def mask_error(
    error: CallError,
    declared: Iterable[str] = (),
    *,
    mask: bool = True,
    operation_id: str = "?",
    request_id: str | None = None,
) -> CallError:
    """Return the part of an error that may leave the process.

    The message of an exception that the operation did not declare may contain paths, queries or secrets of this
    process. It is replaced by a message with a reference, under which the log has the original. A `CallError` that
    a handler raised on purpose is returned unchanged.

    Args:
        error: the error of the call.
        declared: codes that are never masked.
        mask: whether to mask; if ``False``, every error is returned unchanged (for development).
        operation_id: the operation that failed, for the log.
        request_id: the reference for an error that is not in the log yet; by default a random one.
    """
    if not (mask and error.undeclared) or error.code in declared:
        return error
    reference = error.logged or request_id or os.urandom(6).hex()
    if error.logged is None:
        cause = type(error.__cause__ or error).__name__  # a log without tracebacks says at least this much
        text = error.message if error.message.startswith(cause) else f"{cause}: {error.message}"
        logger.error(
            "operation %r failed (reference %s): %s",  # the id may be a caller's: %r keeps it on its line
            operation_id,
            reference,
            text,
            exc_info=error.__cause__,
        )
    message = f"the operation failed; the log of the server has the reason under reference {reference}"
    return CallError(error.code, message, {"message": message, "reference": reference})
