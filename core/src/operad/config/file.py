"""The file: operad.toml or a table of pyproject.toml, and what its tables say."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from operad.config.structuring import structure
from operad.config.variables import expand_variables
from operad.errors import ConfigError
from operad.words import did_you_mean

CONFIG_FILE = "operad.toml"


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
            raise ConfigError(f"{path}: unknown table [{name}]{did_you_mean(name, tables)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: [{name}] has to be a table, got {type(table).__name__}")
    for name, table in document.get("sources", {}).items():
        if not isinstance(table, dict) or not isinstance(table.get("type"), str):
            raise ConfigError(f'{path}: [sources.{name}] needs a type, such as type = "openapi"')
    return Configuration(file.parent, file, **document)
