"""Configuration: operad.toml, its ``${VAR}``s, and tables made into a plugin's config objects."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import attrs

from operad.errors import CallError, ConfigError

T = TypeVar("T")

CONFIG_FILE = "operad.toml"
_VARIABLE = re.compile(r"\$(\$|\{([A-Za-z_][A-Za-z0-9_]*)\})")


@attrs.frozen(kw_only=True)
class PluginOptions:
    """The table ``[plugins]``; see `load_plugins`."""

    only: list[str] | None = None
    disable: list[str] = attrs.field(factory=list)
    strict: bool = False


@attrs.frozen(kw_only=True)
class RegistryOptions:
    """The table ``[registry]``; see `OperationRegistry`."""

    normalize: Literal["cast", "off"] = "cast"
    on_mismatch: Literal["warn", "raise", "ignore"] = "warn"
    max_threads: int = attrs.field(default=32, validator=attrs.validators.ge(1))


@attrs.frozen
class Configuration:
    """What a configuration file says, as written; relative paths start from ``base_dir``."""

    base_dir: Path
    path: Path | None = None
    sources: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict, repr=False)
    transport: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    plugins: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    registry: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The file's name, for messages."""
        return "configuration" if self.path is None else self.path.name

    def plugin_options(self) -> PluginOptions:
        """The table ``[plugins]``. Raises `ConfigError`."""
        where = f"{self.name}: plugins"
        return structure(PluginOptions, expand_variables(self.plugins, where), where)

    def registry_options(self) -> RegistryOptions:
        """The table ``[registry]``. Raises `ConfigError`."""
        where = f"{self.name}: registry"
        return structure(RegistryOptions, expand_variables(self.registry, where), where)


def load_configuration(path: str | os.PathLike[str]) -> Configuration:
    """Read a configuration: a TOML file of its own, or ``[tool.operad]`` of a pyproject.toml; or a folder of one.

    Raises:
        ConfigError: the file is missing, is no TOML, or has an unknown table.
    """
    file = Path(path).absolute()
    if file.is_dir():
        file /= CONFIG_FILE
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no configuration at {path}; write an {CONFIG_FILE} or name another file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from error
    if file.name == "pyproject.toml":
        document = document.get("tool", {}).get("operad", {})
    tables = {field.name for field in attrs.fields(Configuration)} - {"base_dir", "path"}
    for name, table in document.items():
        if name not in tables:
            raise ConfigError(f"{path}: unknown table [{name}]{nearest(name, tables)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: [{name}] has to be a table, got {type(table).__name__}")
    for name, table in document.get("sources", {}).items():
        if not isinstance(table, dict) or not isinstance(table.get("type"), str):
            raise ConfigError(f'{path}: [sources.{name}] needs a type, such as type = "openapi"')
    return Configuration(file.parent, file, **document)


class Variables:
    """The ``${NAME}``s of a configuration: fills them in, and keeps their values out of errors."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def expand(self, value: Any, where: str) -> Any:
        """``value`` with each ``${NAME}`` in its strings taken from the environment; ``$$`` stands for ``$``.

        Raises:
            ConfigError: a variable is not set; the message names it and the key that wants it.
        """
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: self._value(match, where), value)
        if isinstance(value, Mapping):
            return {key: self.expand(item, f"{where}.{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [self.expand(item, f"{where}[{index}]") for index, item in enumerate(value)]
        return value

    def _value(self, match: re.Match[str], where: str) -> str:
        if match[1] == "$":
            return "$"
        name = match[2]
        if name not in os.environ:
            raise ConfigError(
                f"{where} wants the environment variable {name}, which is not set; set it, "
                "or write the value itself"
            )
        value = self._values[name] = os.environ[name]
        return value

    def redact(self, error: BaseException) -> None:
        """Put the names back in place of the values, in the error and in whatever caused it."""
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
            # The longest first: one value may be a part of another one.
            for name, secret in sorted(self._values.items(), key=lambda item: -len(item[1])):
                if len(secret) >= _SECRET_LENGTH:
                    value = value.replace(secret, f"${{{name}}}")
            return value
        if isinstance(value, Mapping):
            return {self._redacted(key): self._redacted(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._redacted(item) for item in value]
        if isinstance(value, tuple):  # named ones become plain: their classes take fields, not an iterable
            return tuple(self._redacted(item) for item in value)
        return value


_SECRET_LENGTH = 4
"""Shorter values are left in messages: they are no secrets, and would be found in every word."""


def expand_variables(value: Any, where: str) -> Any:
    """``value`` with its variables filled in; see `Variables.expand`."""
    return Variables().expand(value, where)


def structure(config_type: type[T], table: Mapping[str, Any], where: str) -> T:
    """An instance of the attrs class ``config_type`` with the values of ``table``.

    Values of the right type already (an attrs object, a callable) are taken as they are.

    Raises:
        ConfigError: an unknown key (the message names the nearest known one), a missing key, or a value of
            another type; the message never quotes a value, which may be a secret.
    """
    from cattrs import transform_error

    from operad.config.structuring import config_converter

    try:
        return config_converter().structure(table, config_type)
    except Exception as error:  # noqa: BLE001  # cattrs raises groups of many types
        messages = transform_error(error, path=where, format_exception=_formatter(table))
        # Not chained: cattrs' errors hold the values.
        raise ConfigError("; ".join(messages)) from None


def _formatter(table: Mapping[str, Any]) -> Callable[[BaseException, type[Any] | None], str]:
    """What makes words of one error of cattrs, or of a plugin's own validator, without the table's values."""
    values = sorted(set(_strings(table)), key=len, reverse=True)

    def text(error: BaseException, _: type[Any] | None) -> str:
        if isinstance(error, KeyError):
            return f"missing key {error}"
        message = str(error)
        if isinstance(error, Unusable):
            return message
        for value in values:
            message = message.replace(repr(value), "…").replace(f'"{value}"', "…")
            if len(value) >= _SECRET_LENGTH:
                message = message.replace(value, "…")
        return message

    return text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _strings(item)


class Unusable(ValueError):
    """A value that does not fit its key; the message does not quote it."""


def nearest(name: str, known: set[str]) -> str:
    """The end of a message about an unknown key."""
    import difflib  # only where there is an error to write

    close = difflib.get_close_matches(name, known, n=1)
    return f'; did you mean "{close[0]}"?' if close else f"; known: {', '.join(sorted(known))}"
