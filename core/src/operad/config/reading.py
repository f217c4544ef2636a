"""Read a configuration: the file, the files that it includes, and the chosen profile."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from operad.config.file import ARRAYS, TABLES, Configuration
from operad.config.places import Lines, dotted, lines_of, place_of
from operad.errors import ConfigError
from operad.records import record
from operad.sources import from_folder
from operad.words import did_you_mean

CONFIG_FILE = "operad.toml"
PROFILE = "OPERAD_PROFILE"
"""The environment variable that chooses a profile if the caller does not."""


def load_configuration(path: str | os.PathLike[str], profile: str | None = None) -> Configuration:
    """Read a configuration: a TOML file, or ``[tool.operad]`` of a pyproject.toml.

    ``include = ["other.toml", "sources/*.toml"]`` reads other files first. Tables are merged, and a key of the
    including file takes precedence; a source of one name in two files is an error. ``[profiles.NAME]`` contains
    tables that are merged over all other tables, key by key, when that profile is chosen.

    Args:
        path: the file, or a folder with an operad.toml.
        profile: the name of the profile to use; by default the value of ``OPERAD_PROFILE``, if it is set.

    Raises:
        ConfigError: a file is missing, is not TOML, has an unknown table, or includes itself; a source has no type
            or is in two files; or the profile is unknown.
    """
    file = Path(path).absolute()
    if file.is_dir():
        file /= CONFIG_FILE
    if not file.is_file():
        raise ConfigError(f"no configuration at {path}; write an {CONFIG_FILE} or name another file")
    read = _read(file, ())
    tables, folders, profiles, lines = read.tables, read.folders, read.profiles, read.lines
    if chosen := profile or os.environ.get(PROFILE):
        if chosen not in profiles:
            raise ConfigError(f"{path}: unknown profile {chosen!r}{did_you_mean(chosen, profiles)}")
        tables = _laid_over(tables, profiles[chosen])
        folders = dict.fromkeys(profiles[chosen].get("sources", {}), file.parent) | folders
        layer = f"{dotted('profiles', chosen)}."
        lines = lines | {name[len(layer) :]: place for name, place in lines.items() if name.startswith(layer)}
    for name, table in tables.get("sources", {}).items():
        if not isinstance(table, dict) or not isinstance(table.get("type"), str):
            raise ConfigError(_untyped(name, table, lines, path))
    return Configuration(file.parent, file, tables, folders, lines)


def _untyped(name: str, table: Any, lines: Lines, path: str | os.PathLike[str]) -> str:
    """Return the message about a source without a type, with its place."""
    full = dotted("sources", name)
    found = place_of(full, lines)
    # The source may be in an included file.
    where = str(path) if found is None else f"{found[0] if found[0] != Path(path).name else path}:{found[1]}"
    below = [key for key, value in table.items() if isinstance(value, dict)] if isinstance(table, dict) else []
    dot = f'; if its name is "{name}.{below[0]}", remove the dot' if below and len(below) == len(table) else ""
    return f'{where}: [{full}] needs a type, such as type = "openapi"{dot}'


_Tables = dict[str, Any]


@record
class _Read:
    """The contents of one file, together with those of the files that it includes."""

    tables: _Tables = attrs.field(factory=dict)
    profiles: _Tables = attrs.field(factory=dict)
    folders: dict[str, Path] = attrs.field(factory=dict)
    """The folder of each source."""
    owners: dict[str, str] = attrs.field(factory=dict)
    """The file of each source."""
    lines: dict[str, tuple[str, int]] = attrs.field(factory=dict)
    """The file and the line of each table and key."""

    def under(self, over: _Read) -> _Read:
        """Return ``over`` merged over these contents. Raises `ConfigError` for a source that both have."""
        if twice := self.owners.keys() & over.owners.keys():
            name = min(twice)
            both = f"{self.owners[name]} and in {over.owners[name]}"
            raise ConfigError(f"[{dotted('sources', name)}] is in {both}: rename one of them")
        return _Read(
            _laid_over(self.tables, over.tables),
            _laid_over(self.profiles, over.profiles),
            self.folders | over.folders,
            self.owners | over.owners,
            self.lines | over.lines,
        )


def _read(file: Path, parents: tuple[Path, ...]) -> _Read:
    """Return a file merged over the files that it includes; ``parents`` are the files that include it."""
    tables, lines = _document(file)
    where = _where("include", file, lines)
    included, profiles = _included(file, tables.pop("include", []), where), tables.pop("profiles", {})
    found, parents = _Read(), (*parents, file)
    for path in included:
        if path in parents:
            chain = " -> ".join(parent.name for parent in (*parents[parents.index(path) :], path))
            raise ConfigError(f"{where}: {path.name} includes itself: {chain}; remove one of these includes")
        found = found.under(_read(path, parents))
    sources = tables.get("sources", {})
    own = _Read(tables, profiles, dict.fromkeys(sources, file.parent), dict.fromkeys(sources, file.name), lines)
    return found.under(own)


def _document(file: Path) -> tuple[_Tables, dict[str, tuple[str, int]]]:
    """Return the tables of one file, whose names are checked, and the place of each."""
    text = _text(file)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        from operad.config.mistakes import not_toml

        raise ConfigError(not_toml(file, text, error)) from None  # it holds the whole text
    except RecursionError:
        raise ConfigError(f"{file} cannot be read as TOML: it is nested too deeply") from None
    if file.name == "pyproject.toml":
        document = document.get("tool", {}).get("operad", {})
    lines = lines_of(text, file.name)
    if not isinstance(document, dict):
        raise ConfigError(
            f"{_where('tool.operad', file, lines)}: [tool.operad] must be a table, got {type(document).__name__}"
        )
    _check(document, file, (*TABLES, "include", "profiles"), lines)
    for name, layer in document.get("profiles", {}).items():
        if not isinstance(layer, dict):
            table = dotted("profiles", name)
            raise ConfigError(
                f"{_where(table, file, lines)}: [{table}] must be a table, got {type(layer).__name__}"
            )
        _check(layer, file, TABLES, lines, f"{dotted('profiles', name)}.")
    return document, lines


def _text(file: Path) -> str:
    """Return the text of a file without its byte order mark. Raises `ConfigError` if it is not readable UTF-8."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        from operad.config.mistakes import not_text

        raise ConfigError(not_text(file, data, error)) from None
    if "\0" in text[:64]:  # UTF-16 without a byte order mark: half of each ASCII character is a null byte
        raise ConfigError(f"{file} is written as UTF-16; save it as UTF-8")
    return text


def _where(table: str, file: Path, lines: Mapping[str, tuple[str, int]]) -> str:
    found = place_of(table, lines)
    return str(file) if found is None else f"{file}:{found[1]}"


def _check(
    document: Mapping[str, Any],
    file: Path,
    known: tuple[str, ...],
    lines: Mapping[str, tuple[str, int]],
    within: str = "",
) -> None:
    for name, table in document.items():
        full = f"{within}{dotted(name)}"
        where = _where(full, file, lines)
        if name not in known and not isinstance(table, (dict, list)):
            raise ConfigError(f"{where}: {full} is not inside a table; put it under one, such as [sources.NAME]")
        if name not in known:
            raise ConfigError(f"{where}: unknown table [{full}]{did_you_mean(name, known)}")
        if name in ARRAYS:
            if not isinstance(table, list) or not all(isinstance(each, dict) for each in table):
                raise ConfigError(f"{where}: expected [[{full}]], because there may be several, got [{full}]")
        elif name != "include" and not isinstance(table, dict):
            raise ConfigError(f"{where}: [{full}] must be a table, got {type(table).__name__}")


def _included(file: Path, names: Any, where: str) -> Iterator[Path]:
    """Yield the files that ``include`` names, in order. A pattern may match no file; a name must exist."""
    if odd := [name for name in names if not isinstance(name, str)] if isinstance(names, list) else [names]:
        got = f"{'a list with ' if isinstance(names, list) else ''}{type(odd[0]).__name__}"
        like = 'such as include = ["sources/*.toml"]'
        raise ConfigError(f"{where}: include: expected a list of files, {like}, got {got}")
    for name in names:
        if any(sign in name for sign in "*?["):
            yield from sorted(path for path in file.parent.glob(name) if path != file)
        elif (path := from_folder(file.parent, name)).is_file():
            yield path.resolve()
        elif path.is_dir():
            raise ConfigError(f'{where}: include: expected a file, got the folder {name}; write "{name}/*.toml"')
        else:
            raise ConfigError(f"{where}: include: file {name} does not exist; correct the name")


def _laid_over(under: Mapping[str, Any], over: Mapping[str, Any]) -> _Tables:
    """Return the keys of both: tables are merged, `ARRAYS` are joined, and other values are those of ``over``."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if key in ARRAYS and below is not None:
            merged[key] = [*below, *value]
            continue
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = _laid_over(below, value) if both else value  # type: ignore[arg-type]  # both are mappings
    return merged
