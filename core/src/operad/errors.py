"""The tree of errors, and the codes of `CallError`.

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

from enum import StrEnum
from typing import Any

from operad.words import encodable, json_safe


class OperadError(Exception):
    """The base class of operad's own errors. Wrong arguments may also raise `TypeError` or `ValueError`."""


class ConfigError(OperadError):
    """Raised when a configuration cannot be used. The message names the file and the key, if they are known."""


class RegistrationError(OperadError):
    """Raised when an operation cannot be registered; the message names the operation and the reason."""


class PluginError(OperadError):
    """Raised when a plugin is missing or cannot be used; the message names what to install or fix."""


class SourceError(OperadError):
    """Raised when the operations of a source cannot be loaded; the message names the source and the reason."""


class ErrorCode(StrEnum):
    """The codes of `CallError` that operad itself uses; an operation may declare more."""

    OPERATION_NOT_FOUND = "OPERATION_NOT_FOUND"
    """The operation is not registered, or has no handler. Details: ``{operationId}``."""
    ACCESS_DENIED = "ACCESS_DENIED"
    """The identity lacks what the operation requires. Details name what is required."""
    VALIDATION_ERROR = "VALIDATION_ERROR"
    """An input does not match its schema (``{errors: [{path, message, keyword}]}``), or an argument is invalid."""
    TIMEOUT = "TIMEOUT"
    """The deadline passed. Details: ``{deadline}`` in epoch ms."""
    ABORTED = "ABORTED"
    """The call was cancelled."""
    EXECUTION_ERROR = "EXECUTION_ERROR"
    """The handler, or the server behind it, failed. Details usually have a ``message``."""
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    """An error without a usable code. Details: ``{raw}``."""
    NO_RESPONDERS = "NO_RESPONDERS"
    """A broker reports that no server offers this operation. Details: ``{operationId}``."""
    UNAVAILABLE = "UNAVAILABLE"
    """The peer or server cannot be reached, or was lost. Details ``{sent: false}`` mean that nothing ran."""
    OVERLOADED = "OVERLOADED"
    """A limit on concurrent work is reached. Details name the limit."""
    SLOW_CONSUMER = "SLOW_CONSUMER"
    """The consumer of a stream did not keep up."""
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    """A message is larger than the transport allows."""
    SERIALIZATION_ERROR = "SERIALIZATION_ERROR"
    """A value cannot be represented in the strict JSON profile of the wire (see `operad.wire`)."""
    DATA_LOSS = "DATA_LOSS"
    """A stream lost an item."""


class CallError(OperadError):
    """The one error that a call raises.

    Args:
        code: an `ErrorCode`, or a code that the operation declares in its ``error_schemas``.
        message: what happened, for people.
        details: data for programs, any JSON value. Objects that JSON cannot represent are replaced by their
            ``str()``.
    """

    code: str
    message: str
    details: Any
    """Data for programs, any JSON value; ``None`` if the error has no details."""
    undeclared: bool = False
    """Whether `map_error` made this error from an exception that the operation does not declare."""
    logged: str | None = None
    """The request id under which the exception was logged; ``None`` if it was not logged yet."""
    ran: bool | None = None
    """``False`` if the handler did not run, so that the call can be repeated; ``None`` if it may have run."""
    hint: str = ""
    """A hint for developers, such as which source failed, after the message in ``str(error)``. No peer gets it."""
    forwarded: bool = False
    """Whether the handler that raised this error only forwarded its call to another operation."""

    def __init__(self, code: str, message: str = "", details: Any = None) -> None:
        super().__init__(code, message)
        self.code = str(code)
        self.message = encodable(message)
        self.details = None if details is None else json_safe(details)

    @property
    def says_nothing_ran(self) -> bool:
        """Whether code and details mean that the operation did not run, as ``OPERATION_NOT_FOUND`` does."""
        if self.code == ErrorCode.UNAVAILABLE:
            return isinstance(self.details, dict) and self.details.get("sent") is False
        return self.code in (ErrorCode.NO_RESPONDERS, ErrorCode.OPERATION_NOT_FOUND, ErrorCode.OVERLOADED)

    def __str__(self) -> str:
        return (f"{self.code}: {self.message}" if self.message else self.code) + self.hint

    def __reduce__(self) -> tuple[type[CallError], tuple[str, str, Any]]:
        return type(self), (self.code, self.message, self.details)

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form: ``{code, message, details?}``."""
        wire: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details is not None:
            wire["details"] = self.details
        return wire
