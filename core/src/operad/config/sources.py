"""The tables ``[sources.NAME]`` of a configuration: the keys that all sources share, and each source's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from operad.errors import ConfigError
from operad.operations import NAMESPACE, NormalizeRule, OnMismatch
from operad.records import record

if TYPE_CHECKING:
    from operad.config.file import Configuration
    from operad.config.variables import Variables


def _is_namespace(_: Any, attribute: attrs.Attribute[str], value: str) -> None:
    if value and not NAMESPACE.fullmatch(value):  # "" keeps the ids of a remote source as they are
        raise ValueError(f"{attribute.name}: expected one or more of A-Z a-z 0-9 _ -, got {value!r}")


@record(kw_only=True)
class SourceOptions:
    """The keys that every source's table may have, besides the options of its source."""

    namespace: str | None = attrs.field(default=None, validator=attrs.validators.optional(_is_namespace))
    """The namespace of the operations' ids; by default the table's name."""
    access: Any = None
    """Replaces the source's access requirements: fields of an `AccessControl`, or such fields by patterns."""
    normalize: NormalizeRule | None = None
    """How results are cast to their output schema; by default as ``normalize`` in ``[registry]`` specifies."""
    on_mismatch: OnMismatch | None = None
    """How to treat a result that does not match its schema; by default as in ``[registry]``."""
    trusted: bool = False
    """Whether the source's documents may refer to other files and addresses, which are then read."""
    exclusive: bool = False
    """Whether a reload closes the source before it opens it again, for a source that cannot be open twice. Its
    operations are missing meanwhile."""


class SourceTable(NamedTuple):
    """A table ``[sources.NAME]`` with its variables filled in: type, shared keys, the source's own keys, place."""

    source: str
    options: SourceOptions
    own: dict[str, Any]
    where: str


def check_keys(config_type: type[Any], table: Mapping[str, Any], where: str) -> None:
    """Raise `ConfigError` if ``table`` has an unknown key; the message then lists all mistakes in the table."""
    own = {str(field.alias) for field in attrs.fields(config_type) if field.init}
    if table.keys() <= own:
        return
    from operad.config.keys import unknown_key
    from operad.config.places import exactly
    from operad.config.structuring import structure

    known = own | {str(field.alias) for field in attrs.fields(SourceOptions)}
    told = [f"{unknown_key(config_type, key, known)} @ {where}" for key in table if key not in own]
    try:
        structure(config_type, {key: value for key, value in table.items() if key in own}, where)
    except ConfigError as error:
        told.append(str(error))
    raise ConfigError(exactly(where, "; ".join(told)))


def read_source(configuration: Configuration, name: str, variables: Variables) -> SourceTable:
    """Return the table of a source. Raises `ConfigError` for an unusable name, shared key or unset variable."""
    from operad.config.places import dotted
    from operad.config.structuring import structure

    where = configuration.where("sources", name)
    own = variables.expand(configuration.sources[name], where)
    shared = {f.name: own.pop(f.name) for f in attrs.fields(SourceOptions) if f.name in own}
    source = own.pop("type")
    if "namespace" not in shared and not NAMESPACE.fullmatch(name):
        raise ConfigError(
            f"{where}: the name of a source is the namespace of its operations: expected one or more of "
            f'A-Z a-z 0-9 _ -, got {dotted(name)}; rename the table, or write namespace = "…" in it'
        )
    return SourceTable(source, structure(SourceOptions, {"namespace": name, **shared}, where), own, where)
