"""A configuration that was read: its tables, its sources, and the places of both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from operad.config.places import Place, dotted
from operad.config.structuring import structure
from operad.config.variables import Variables
from operad.errors import ConfigError, OperadError
from operad.operations import NormalizeRule, OnMismatch
from operad.records import record
from operad.words import did_you_mean
from operad_schema import Limits

T = TypeVar("T")

TABLES = (
    "sources",
    "transport",
    "plugins",
    "registry",
    "calls",
    "serve",
    "hub",
    "idempotency",
    "rules",
    "credentials",
)
"""The tables of a configuration, besides ``include`` and ``profiles``."""
ARRAYS = frozenset({"rules", "credentials"})
"""Tables that a configuration may have several of: ``[[rules]]``. Those of included files come first."""
PLUGIN_TABLES = frozenset({"idempotency", "rules", "credentials"})
"""Tables that change how calls run and that a plugin reads: without such a plugin they are an error."""


@record(kw_only=True)
class PluginOptions:
    """The table ``[plugins]``; see `load_plugins`."""

    only: list[str] | None = None
    """Names of plugins or distributions to load; left out: all."""
    disable: list[str] = attrs.field(factory=list)
    """Names not to load."""
    strict: bool = False
    """Whether a plugin that cannot be loaded is an error."""


@record(kw_only=True)
class RegistryOptions:
    """The table ``[registry]``; see `OperationRegistry`."""

    normalize: NormalizeRule = "cast"
    """How results are made to fit their output schema: one value for all, or values by patterns of ids."""
    on_mismatch: OnMismatch = "warn"
    """What happens when a result does not match its output schema."""
    max_threads: int = attrs.field(default=32, validator=attrs.validators.ge(1))
    """The number of plain functions that run at once, each in a thread."""
    limits: Limits | None = None
    """The table ``[registry.limits]``: the limits of all schemas, by the names that error messages use."""


@record
class Configuration:
    """The contents of a configuration file, as written; relative paths start from ``base_dir``."""

    base_dir: Path
    path: Path | None = None
    tables: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict, repr=False)
    """The tables of `TABLES`, of this file, of those that it includes, and of the chosen profile."""
    folders: Mapping[str, Path] = attrs.field(factory=dict, repr=False)
    """The folder from which relative paths of each source start, by the source's name: that of the file with its
    table.
    """
    lines: Mapping[str, tuple[str, int]] = attrs.field(factory=dict, repr=False)
    """The name of the file and the line, from 1, of each table's header."""

    @property
    def name(self) -> str:
        """The file's name, for messages."""
        return "configuration" if self.path is None else self.path.name

    @property
    def sources(self) -> Mapping[str, Mapping[str, Any]]:
        """The tables ``[sources.<name>]`` by name, as written."""
        return self.tables.get("sources", {})

    def check_sources(self, names: Collection[str]) -> None:
        """Raise `ConfigError` for a name without a table in ``[sources]``."""
        for name in names:
            if name not in self.sources:
                raise ConfigError(f'{self.name} has no source "{name}"{did_you_mean(name, self.sources)}')

    def folder(self, source: str) -> Path:
        """Return the folder from which relative paths of a source start."""
        return self.folders.get(source, self.base_dir)

    def where(self, *table: str) -> str:
        """Return the place of a table or a key, for messages: ``operad.toml:12: sources.shop``."""
        name = dotted(*table) if len(table) > 1 else table[0]
        return Place.of(name, self.lines, self.name)

    def placed(self, error: OperadError, *table: str) -> OperadError:
        """Return the error with the place of a table or key added to its message, unless it has one."""
        if self.path is None or f"{self.name}:" in str(error):
            return error
        return type(error)(f"{error} @ {self.where(*table)}")

    def values(self, table: str) -> Mapping[str, Any]:
        """Return a table with its variables filled in; empty if it is missing.

        ``"serve.mcp"`` is a table inside a table.

        Raises:
            ConfigError: a ``${VAR}`` in it is not set, or it is not a table.
        """
        found: Any = self.tables
        for part in table.split("."):
            found = found.get(part, {})
            if not isinstance(found, Mapping):
                raise ConfigError(f"{self.where(table)}: expected a table, got {type(found).__name__}")
        values: Mapping[str, Any] = Variables().expand(found, self.where(table))
        return values

    def array(self, table: str, config_type: type[T]) -> list[T]:
        """Return the tables ``[[table]]`` in their order, each as an instance of ``config_type``.

        Raises:
            ConfigError: as for `table`; the message says which one it is, from 1.
        """
        made = []
        for number, values in enumerate(self.tables.get(table, ()), 1):
            where = f"{self.where(table)} (number {number})"
            made.append(structure(config_type, Variables().expand(values, where), where))
        return made

    def transport_options(self) -> Mapping[str, Any]:
        """Return the table ``[transport]``; paths of its certificates are resolved from this file's folder."""
        from operad.config.options import with_paths

        options = self.values("transport")
        if not isinstance(url := options.get("url", ""), str):
            raise ConfigError(f"expected str, got {type(url).__name__} @ {self.where('transport', 'url')}")
        return with_paths(options, self.base_dir)

    def table(self, table: str, config_type: type[T], exclude: Collection[str] = ()) -> T:
        """Return a table as an instance of the attrs class ``config_type``; with its defaults if the table is
        missing.

        Args:
            table: its name, such as ``"hub"``.
            config_type: the class against which its keys are checked.
            exclude: keys to ignore, such as the tables of servers in ``[serve]``.

        Raises:
            ConfigError: an unknown key (the message names the nearest known one), a missing one, a value of
                another type, or a variable that is not set.
        """
        values = {key: value for key, value in self.values(table).items() if key not in exclude}
        return structure(config_type, values, self.where(table))
