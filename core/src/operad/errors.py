"""The errors of operad.

::

    OperadError
    ├── CallError            the one error of a call: code, message, details
    ├── ConfigError          a configuration (file, table, value) that cannot be used
    ├── RegistrationError    an operation that cannot be registered
    ├── PluginError          a plugin that cannot be used, or that is missing
    └── SourceError          a source whose operations cannot be loaded

Transports add ``TransportError`` and its children (see `operad.transports`).
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad.operations import ErrorDefinition

logger = logging.getLogger("operad")


class OperadError(Exception):
    """The root of every error that operad raises on purpose."""


class ConfigError(OperadError):
    """A configuration cannot be used; the message names the file, the key and what was expected."""


class RegistrationError(OperadError):
    """An operation cannot be registered; the message names the operation and its owners."""


class PluginError(OperadError):
    """A plugin is missing, or cannot be used; the message names it and what to install or mend."""


class SourceError(OperadError):
    """A source's operations cannot be loaded; the message names the source and the reason."""


class ErrorCode(StrEnum):
    """The codes of `CallError` that operad itself uses; an operation may declare more."""

    OPERATION_NOT_FOUND = "OPERATION_NOT_FOUND"
    """Nobody offers this operation. Details: ``{operationId}``."""
    ACCESS_DENIED = "ACCESS_DENIED"
    """The identity lacks what the operation requires. Details name what is required."""
    VALIDATION_ERROR = "VALIDATION_ERROR"
    """The input does not match the input schema. Details: ``{errors: [{path, message, keyword}]}``."""
    TIMEOUT = "TIMEOUT"
    """The deadline passed. Details: ``{deadline}`` in epoch ms."""
    ABORTED = "ABORTED"
    """The call was cancelled."""
    EXECUTION_ERROR = "EXECUTION_ERROR"
    """The handler, or the server behind it, failed."""
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    """Something failed in a way that carries no usable code. Details: ``{raw}``."""
    NO_RESPONDERS = "NO_RESPONDERS"
    """A broker knows that nobody serves this operation. Details: ``{operationId}``."""
    UNAVAILABLE = "UNAVAILABLE"
    """The peer or server cannot be reached, or was lost during the call."""
    OVERLOADED = "OVERLOADED"
    """A bound on concurrent work is reached; details name it."""
    SLOW_CONSUMER = "SLOW_CONSUMER"
    """The consumer of a stream did not keep up."""
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    """A message exceeds what the transport carries."""
    SERIALIZATION_ERROR = "SERIALIZATION_ERROR"
    """A value has no form in the wire's strict JSON profile."""
    DATA_LOSS = "DATA_LOSS"
    """A stream lost an item."""


class CallError(OperadError):
    """The one error that a call raises.

    Args:
        code: an `ErrorCode`, or a code that the operation declares in its ``error_schemas``.
        message: what happened, for a person.
        details: more, for a program; anything that JSON cannot hold is replaced by its ``str()``.
    """

    code: str
    message: str
    details: dict[str, Any] | None
    undeclared: bool = False
    """Whether `map_error` made it of an exception that the operation does not declare (see `mask_error`)."""

    def __init__(self, code: str, message: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(code, message)
        self.code = str(code)
        self.message = _encodable(message)
        self.details = None if details is None else json_safe(details)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.message else self.code

    def __reduce__(self) -> tuple[type[CallError], tuple[str, str, dict[str, Any] | None]]:
        return type(self), (self.code, self.message, self.details)

    def to_wire(self) -> dict[str, Any]:
        """The JSON form: ``{code, message, details?}``."""
        wire: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details is not None:
            wire["details"] = self.details
        return wire


_MAX_DEPTH = 32
_MAX_NODES = 10_000


def json_safe(value: Any) -> Any:
    """A copy of ``value`` that JSON can hold.

    Other objects, and whatever is below depth 32 or comes after 10,000 values, become text; so it ends, and
    soon, for data that hold themselves.
    """
    return _json_safe(value, _MAX_DEPTH, itertools.count().__next__)


def _json_safe(value: Any, depth: int, number: Callable[[], int]) -> Any:
    if value is None or value is True or value is False or type(value) is int:
        return value
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)
    if isinstance(value, str):
        return _encodable(str(value))  # str(): a StrEnum, say
    if isinstance(value, int):
        return int(value)
    if depth == 0 or number() >= _MAX_NODES:
        return _text_of(value)
    if isinstance(value, Mapping):
        return {_text_of(key): _json_safe(item, depth - 1, number) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json_safe(item, depth - 1, number) for item in value]
    return _text_of(value)


def _encodable(text: str) -> str:
    """The text, with what UTF-8 cannot hold escaped: half a surrogate pair, as in names of files."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _text_of(value: Any) -> str:
    """``str(value)``, bounded; a ``__str__`` that raises must not replace the error being reported."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001  # any object may come here, with any __str__
        text = f"<{type(value).__name__}>"
    text = _encodable(text)
    return text if len(text) <= 2_000 else text[:2_000] + "…"


def operation_not_found(operation_id: str, message: str | None = None) -> CallError:
    """The error for an id that nobody offers."""
    return CallError(
        ErrorCode.OPERATION_NOT_FOUND,
        message or f'operation "{operation_id}" not found',
        {"operationId": operation_id},
    )


def map_error(error: BaseException, error_schemas: Iterable[ErrorDefinition] = ()) -> CallError:
    """The `CallError` that stands for whatever a handler raised.

    In this order: a `CallError` is itself; an exception whose class name or ``code`` attribute is a declared
    code becomes that code; a declared code that stands as a whole word in the message does, too; a
    cancellation is ``ABORTED``; ``SystemExit`` is ``UNKNOWN_ERROR``; all else is ``EXECUTION_ERROR`` with
    ``details={"message": …}``. The exception becomes the ``__cause__`` of the result.

    Args:
        error: what was raised.
        error_schemas: the errors that the operation declares.
    """
    if isinstance(error, CallError):
        return error
    mapped = _map_foreign(error, tuple(error_schemas))
    mapped.__cause__ = error
    return mapped


def _map_foreign(error: BaseException, declared: tuple[ErrorDefinition, ...]) -> CallError:
    from asyncio import CancelledError  # not with the module: whoever finds plugins needs no event loop

    message = _text_of(error)
    if isinstance(error, CancelledError):
        return CallError(ErrorCode.ABORTED, message or "the call was cancelled")
    if isinstance(error, SystemExit):
        return _undeclared(ErrorCode.UNKNOWN_ERROR, "the handler tried to exit", {"raw": _text_of(repr(error))})
    definition = _declared(error, message, declared)
    if definition is not None:
        return CallError(definition.code, message or definition.description, _details(error, definition))
    message = message or type(error).__name__
    return _undeclared(ErrorCode.EXECUTION_ERROR, message, {"message": message})


def _undeclared(code: str, message: str, details: dict[str, Any]) -> CallError:
    error = CallError(code, message, details)
    error.undeclared = True
    return error


def _declared(error: BaseException, message: str, declared: tuple[ErrorDefinition, ...]) -> ErrorDefinition | None:
    if not declared:
        return None
    # Of the classes, those of the exception itself and its bases, but not Python's own roots.
    names = {cls.__name__ for cls in type(error).__mro__ if cls not in (Exception, BaseException, object)}
    names.add(_text_of(_attribute(error, "code")))
    for definition in declared:
        if definition.code in names:
            return definition
    for definition in declared:
        if _whole_word(definition.code).search(message):
            return definition
    return None


def _attribute(error: BaseException, name: str) -> Any:
    """An attribute of any exception: a property that raises must not replace the error being reported."""
    try:
        return getattr(error, name, None)
    except Exception:  # noqa: BLE001  # any exception class may come here
        return None


@lru_cache(maxsize=512)
def _whole_word(code: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9_]){re.escape(code)}(?![A-Za-z0-9_])")


def _details(error: BaseException, definition: ErrorDefinition) -> dict[str, Any] | None:
    details = _attribute(error, "details")
    if not isinstance(details, Mapping):
        return None
    safe: dict[str, Any] = json_safe(details)
    if not definition.schema.is_unknown and (errors := definition.schema.errors(safe)):
        logger.warning("details of error %s do not match its schema: %s", definition.code, errors[0].message)
    return safe


def mask_error(
    error: CallError, declared: Iterable[str] = (), *, mask: bool = True, operation_id: str = "?"
) -> CallError:
    """What of an error may cross a network edge.

    An exception that the operation did not declare may quote paths, queries or secrets of this process: its
    message is replaced by a reference id, and the log has both. A `CallError` that a handler raised on purpose
    passes as it is.

    Args:
        error: the error of the call.
        declared: further codes that pass.
        mask: ``False`` lets everything through (development).
        operation_id: what failed, for the log.
    """
    if not (mask and error.undeclared) or error.code in declared:
        return error
    reference = os.urandom(6).hex()
    cause = type(error.__cause__ or error).__name__  # a log without tracebacks says at least this much
    logger.error(
        "operation %r failed (reference %s): %s: %s",  # the id may be a caller's: %r keeps it on its line
        operation_id,
        reference,
        cause,
        error.message,
        exc_info=error.__cause__,
    )
    message = f"the operation failed; the log of the server has the reason under reference {reference}"
    return CallError(error.code, message, {"message": message, "reference": reference})
