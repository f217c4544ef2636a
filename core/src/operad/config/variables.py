"""Variables of a configuration: fill in ``${NAME}``, and remove the values from errors."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from operad.config.places import below, exactly
from operad.errors import CallError, ConfigError

_VARIABLE = re.compile(r"\$(\$|\{([A-Za-z_][A-Za-z0-9_]*)\})")
SECRET_LENGTH = 4
"""The minimum length of a value that is removed from messages: a shorter value may be part of another word."""


class Variables:
    """The values of variables ``${NAME}``, which `expand` fills in and `redact` removes from errors."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def expand(self, value: Any, where: str) -> Any:
        """Return ``value`` with each ``${NAME}`` in its strings replaced by the environment variable.

        ``$$`` is a literal ``$``.

        Raises:
            ConfigError: a variable is not set; the message names the variable and the key that uses it.
        """
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: self._value(match, where), value)
        if isinstance(value, Mapping):
            return {key: self.expand(item, below(where, f".{key}")) for key, item in value.items()}
        if isinstance(value, list):
            return [self.expand(item, below(where, f"[{index}]")) for index, item in enumerate(value)]
        return value

    def _value(self, match: re.Match[str], where: str) -> str:
        if match[1] == "$":
            return "$"
        name = match[2]
        if name not in os.environ:
            message = f"{where}: environment variable {name} is required but not set; set it, or write the value"
            raise ConfigError(exactly(where, message))
        value = self._values[name] = os.environ[name]
        return value

    def redact(self, error: BaseException) -> None:
        """Replace the variables' values by ``${NAME}``, in the error, its causes and the errors of a group."""
        seen: set[int] = set()
        pending: list[BaseException | None] = [error]
        while pending:
            current = pending.pop()
            if current is None or id(current) in seen:
                continue
            seen.add(id(current))
            current.args = tuple(self._redacted(part) for part in current.args)
            if isinstance(current, CallError):
                current.message = self._redacted(current.message)
                current.details = self._redacted(current.details)
            pending += [current.__cause__, current.__context__]
            if isinstance(current, BaseExceptionGroup):
                pending += current.exceptions

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, str):
            # The longest first: one value may be part of another one.
            for name, secret in sorted(self._values.items(), key=lambda item: -len(item[1])):
                if len(secret) >= SECRET_LENGTH:
                    value = value.replace(secret, f"${{{name}}}")
            return value
        if isinstance(value, Mapping):
            return {self._redacted(key): self._redacted(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._redacted(item) for item in value]
        if isinstance(value, tuple):  # named tuples become plain: their constructors take fields, not an iterable
            return tuple(self._redacted(item) for item in value)
        return value
