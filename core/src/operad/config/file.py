"""A configuration that was read: its tables and sources, and their places in files."""

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
"""Tables that may occur several times, such as ``[[rules]]``. The tables of included files come first."""
PLUGIN_TABLES = frozenset({"idempotency", "rules", "credentials"})
"""Tables that change how calls run, and that only plugins read. It is an error if no loaded plugin reads them."""


@record(kw_only=True)
class PluginOptions:
    """The table ``[plugins]``; see `load_plugins`."""

    only: list[str] | None = None
    """Names of plugins or distributions to load; by default all."""
    disable: list[str] = attrs.field(factory=list)
    """Names of plugins or distributions not to load."""
    strict: bool = False
    """Whether a plugin that cannot be loaded is an error."""


@record(kw_only=True)
class RegistryOptions:
    """The table ``[registry]``; see `OperationRegistry`."""

    normalize: NormalizeRule = "cast"
    """How results are cast to their output schema: one value for all operations, or values by patterns of ids."""
    on_mismatch: OnMismatch = "warn"
    """Whether a result that does not match its output schema is logged, makes the call fail, or is ignored."""
    max_threads: int = attrs.field(default=32, validator=attrs.validators.ge(1))
    """The number of plain functions that run at the same time, each in a thread."""
    limits: Limits | None = None
    """The table ``[registry.limits]``: limits for all schemas, by the names that error messages use.

    By default each schema has its own limits.
    """


@record
class Configuration:
    """The contents of a configuration file, as written.

    Relative paths of a source start from its `folder`, and all other relative paths from ``base_dir``.
    """

    base_dir: Path
    path: Path | None = None
    tables: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict, repr=False)
    """The tables of this file, of the files that it includes, and of the chosen profile, merged; see `TABLES`."""
    folders: Mapping[str, Path] = attrs.field(factory=dict, repr=False)
    """For each source, the folder of the file with the source's table; its relative paths start there."""
    lines: Mapping[str, tuple[str, int]] = attrs.field(factory=dict, repr=False)
    """For each table and key, the name of the file and the number of the line, from 1."""

    @property
    def name(self) -> str:
        """The name of the file for messages; ``configuration`` if it was not read from a file."""
        return "configuration" if self.path is None else self.path.name

    @property
    def sources(self) -> Mapping[str, Mapping[str, Any]]:
        """The tables ``[sources.<name>]`` by name, as written."""
        return self.tables.get("sources", {})

    def check_sources(self, names: Collection[str]) -> None:
        """Raise `ConfigError` if one of ``names`` has no table in ``[sources]``."""
        for name in names:
            if name not in self.sources:
                raise ConfigError(f'{self.name} has no source "{name}"{did_you_mean(name, self.sources)}')

    def folder(self, source: str) -> Path:
        """Return the folder from which relative paths of a source start."""
        return self.folders.get(source, self.base_dir)

    def where(self, *table: str) -> str:
        """Return the place of a table, or of a key in it, for messages: ``operad.toml:12: sources.shop``."""
        name = dotted(*table) if len(table) > 1 else table[0]
        return Place.of(name, self.lines, self.name)

    def placed(self, error: OperadError, *table: str) -> OperadError:
        """Return the error with the place of a table or key added, unless its message names the file already."""
        if self.path is None or f"{self.name}:" in str(error):
            return error
        return type(error)(f"{error} @ {self.where(*table)}")

    def values(self, table: str) -> Mapping[str, Any]:
        """Return a table with its variables filled in; empty if the table is missing.

        ``"serve.mcp"`` names a table inside a table.

        Raises:
            ConfigError: a ``${VAR}`` in the table is not set, or the value of that name is not a table.
        """
        found: Any = self.tables
        for part in table.split("."):
            found = found.get(part, {})
            if not isinstance(found, Mapping):
                raise ConfigError(f"{self.where(table)}: expected a table, got {type(found).__name__}")
        values: Mapping[str, Any] = Variables().expand(found, self.where(table))
        return values

    def array(self, table: str, config_type: type[T]) -> list[T]:
        """Return the tables ``[[table]]`` in their order, each as an instance of ``config_type``, or ``[]``.

        Raises:
            ConfigError: a table cannot be used, see `table`; the message has its number, from 1.
        """
        made = []
        for number, values in enumerate(self.tables.get(table, ()), 1):
            where = f"{self.where(table)} (number {number})"
            made.append(structure(config_type, Variables().expand(values, where), where))
        return made

    def transport_options(self) -> Mapping[str, Any]:
        """Return the table ``[transport]``, with the paths of its certificates resolved from this file's folder.

        The result is empty if the table is missing. Raises `ConfigError` if a variable is not set, or ``url`` is
        not a string.
        """
        from operad.config.options import with_paths

        options = self.values("transport")
        if not isinstance(url := options.get("url", ""), str):
            raise ConfigError(f"expected a string, got {type(url).__name__} @ {self.where('transport', 'url')}")
        return with_paths(options, self.base_dir)

    def table(self, table: str, config_type: type[T], exclude: Collection[str] = ()) -> T:
        """Return a table as an instance of ``config_type``; a missing table gives the defaults.

        Args:
            table: the name of the table, such as ``"hub"``.
            config_type: an attrs class whose fields are the keys of the table.
            exclude: keys to ignore, such as the tables of servers in ``[serve]``.

        Raises:
            ConfigError: an unknown key (the message names the nearest known key), a missing key, a value of
                the wrong type, or a variable that is not set.
        """
        values = {key: value for key, value in self.values(table).items() if key not in exclude}
        return structure(config_type, values, self.where(table))
