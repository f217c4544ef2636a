"""What a configuration says, table by table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import attrs

from operad.config.structuring import structure
from operad.config.variables import expand_variables
from operad.errors import ConfigError

T = TypeVar("T")

TABLES = ("sources", "transport", "plugins", "registry", "calls", "serve", "hub")
"""The tables of a configuration, besides ``include`` and ``profiles``."""


@attrs.frozen(kw_only=True)
class PluginOptions:
    """The table ``[plugins]``; see `load_plugins`."""

    only: list[str] | None = None
    disable: list[str] = attrs.field(factory=list)
    strict: bool = False


@attrs.frozen(kw_only=True)
class RegistryOptions:
    """The table ``[registry]``; see `OperationRegistry`."""

    normalize: Literal["cast", "keep", "off"] | dict[str, Literal["cast", "keep", "off"]] = "cast"
    on_mismatch: Literal["warn", "raise", "ignore"] = "warn"
    max_threads: int = attrs.field(default=32, validator=attrs.validators.ge(1))


@attrs.frozen
class Configuration:
    """What a configuration file says, as written; relative paths start from ``base_dir``."""

    base_dir: Path
    path: Path | None = None
    tables: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict, repr=False)
    """The tables of `TABLES`, of this file, of those that it includes, and of the chosen profile."""
    folders: Mapping[str, Path] = attrs.field(factory=dict, repr=False)
    """Where relative paths of a source start from, by the source's name; that of the file which has its table."""

    @property
    def name(self) -> str:
        """The file's name, for messages."""
        return "configuration" if self.path is None else self.path.name

    @property
    def sources(self) -> Mapping[str, Mapping[str, Any]]:
        """The tables ``[sources.<name>]`` by name, as written."""
        return self.tables.get("sources", {})

    def folder(self, source: str) -> Path:
        """Where relative paths of a source start from."""
        return self.folders.get(source, self.base_dir)

    def where(self, table: str) -> str:
        """The place of a table, for messages."""
        return f"{self.name}: {table}"

    def values(self, table: str) -> Mapping[str, Any]:
        """A table with its variables filled in; ``"serve.mcp"`` is a table in a table. Empty if there is none.

        Raises:
            ConfigError: a ``${VAR}`` in it is not set, or it is no table.
        """
        found: Any = self.tables
        for part in table.split("."):
            found = found.get(part, {})
            if not isinstance(found, Mapping):
                raise ConfigError(f"{self.where(table)}: expected a table, got {type(found).__name__}")
        values: Mapping[str, Any] = expand_variables(found, self.where(table))
        return values

    def table(self, table: str, config_type: type[T], but: Collection[str] = ()) -> T:
        """A table as an instance of the attrs class ``config_type``; of its defaults, if there is no such table.

        Args:
            table: its name, such as ``"hub"``.
            config_type: what its keys are checked against.
            but: keys that belong to others, such as the tables of servers in ``[serve]``.

        Raises:
            ConfigError: an unknown key (the message names the nearest known one), a missing one, a value of
                another type, or a variable that is not set.
        """
        values = {key: value for key, value in self.values(table).items() if key not in but}
        return structure(config_type, values, self.where(table))
