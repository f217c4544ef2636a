"""Reading a configuration: the file, those that it includes, and the chosen profile, as one."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from operad.config.file import TABLES, Configuration
from operad.errors import ConfigError
from operad.words import did_you_mean

CONFIG_FILE = "operad.toml"
PROFILE = "OPERAD_PROFILE"
"""The environment variable that chooses a profile where nobody else does."""


def load_configuration(path: str | os.PathLike[str], profile: str | None = None) -> Configuration:
    """Read a configuration: a TOML file of its own, or ``[tool.operad]`` of a pyproject.toml; or a folder of one.

    ``include = ["other.toml", "sources/*.toml"]`` reads other files first: tables are merged, and a key of the
    including file wins; a source of one name in two files is an error. ``[profiles.NAME]`` holds tables that are
    laid over the others, key by key, where that profile is chosen.

    Args:
        path: the file, or its folder.
        profile: the profile to take; default: ``OPERAD_PROFILE``, else none.

    Raises:
        ConfigError: a file is missing, is no TOML, has an unknown table, or includes itself; or there is no such
            profile.
    """
    file = Path(path).absolute()
    if file.is_dir():
        file /= CONFIG_FILE
    if not file.is_file():
        raise ConfigError(f"no configuration at {path}; write an {CONFIG_FILE} or name another file")
    read = _read(file, ())
    tables, folders, profiles = read.tables, read.folders, read.profiles
    if chosen := profile or os.environ.get(PROFILE):
        if chosen not in profiles:
            raise ConfigError(f"{path}: there is no profile {chosen!r}{did_you_mean(chosen, profiles)}")
        tables = _laid_over(tables, profiles[chosen])
        folders = dict.fromkeys(profiles[chosen].get("sources", {}), file.parent) | folders
    for name, table in tables.get("sources", {}).items():
        if not isinstance(table, dict) or not isinstance(table.get("type"), str):
            line = f":{read.lines[place][1]}" if (place := f"sources.{name}") in read.lines else ""
            raise ConfigError(f'{path}{line}: [sources.{name}] needs a type, such as type = "openapi"')
    return Configuration(file.parent, file, tables, folders, read.lines)


_Tables = dict[str, Any]


@attrs.frozen(eq=False, repr=False)
class _Read:
    """What one file says, together with those that it includes."""

    tables: _Tables = attrs.field(factory=dict)
    profiles: _Tables = attrs.field(factory=dict)
    folders: dict[str, Path] = attrs.field(factory=dict)
    """The folder of each source."""
    owners: dict[str, str] = attrs.field(factory=dict)
    """The file of each source."""
    lines: dict[str, tuple[str, int]] = attrs.field(factory=dict)
    """The file and the line of the header of each table."""

    def under(self, over: _Read) -> _Read:
        """Both, ``over`` laid over this one. Raises `ConfigError` for a source that both have."""
        if twice := self.owners.keys() & over.owners.keys():
            name = min(twice)
            raise ConfigError(
                f"[sources.{name}] is in {self.owners[name]} and in {over.owners[name]}: rename one of them"
            )
        return _Read(
            _laid_over(self.tables, over.tables),
            _laid_over(self.profiles, over.profiles),
            self.folders | over.folders,
            self.owners | over.owners,
            self.lines | over.lines,
        )


def _read(file: Path, parents: tuple[Path, ...]) -> _Read:
    """A file laid over those that it includes; ``parents`` are those that include it."""
    if file in parents:
        chain = " -> ".join(parent.name for parent in (*parents[parents.index(file) :], file))
        raise ConfigError(f"{file.name} includes itself: {chain}")
    tables, lines = _document(file)
    included, profiles = _included(file, tables.pop("include", [])), tables.pop("profiles", {})
    found = _Read()
    for path in included:
        found = found.under(_read(path, (*parents, file)))
    sources = tables.get("sources", {})
    own = _Read(tables, profiles, dict.fromkeys(sources, file.parent), dict.fromkeys(sources, file.name), lines)
    return found.under(own)


_HEADER = re.compile(r"^[ \t]*\[\[?[ \t]*([^\]\n]+?)[ \t]*\]", re.MULTILINE)


def _lines(text: str, name: str) -> dict[str, tuple[str, int]]:
    """Where each table begins. Only for messages: a header inside a string of several lines is found, too."""
    found: dict[str, tuple[str, int]] = {}
    for header in _HEADER.finditer(text):
        table = header[1].replace('"', "").removeprefix("tool.operad.")
        found.setdefault(table, (name, text.count("\n", 0, header.start()) + 1))
    return found


def _document(file: Path) -> tuple[_Tables, dict[str, tuple[str, int]]]:
    """What one file says, its tables checked by name, and where each begins."""
    try:
        text = file.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as TOML: {error}") from error
    if file.name == "pyproject.toml":
        document = document.get("tool", {}).get("operad", {})
    lines = _lines(text, file.name)
    _check(document, str(file), (*TABLES, "include", "profiles"), lines)
    for name, layer in document.get("profiles", {}).items():
        if not isinstance(layer, dict):
            raise ConfigError(f"{file}: [profiles.{name}] has to be a table, got {type(layer).__name__}")
        _check(layer, f"{file}: profiles.{name}", TABLES, {})
    return document, lines


def _check(
    document: Mapping[str, Any], where: str, known: tuple[str, ...], lines: Mapping[str, tuple[str, int]]
) -> None:
    file = where
    for name, table in document.items():
        places = (line for other, (_, line) in lines.items() if other == name or other.startswith(f"{name}."))
        line = next(places, None)
        where = file if line is None else f"{file}:{line}"
        if name not in known:
            raise ConfigError(f"{where}: unknown table [{name}]{did_you_mean(name, known)}")
        if name != "include" and not isinstance(table, dict):
            raise ConfigError(f"{where}: [{name}] has to be a table, got {type(table).__name__}")


def _included(file: Path, names: Any) -> Iterator[Path]:
    """The files that ``include`` names, in order; a pattern may fit none, a name has to be there."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f'{file}: include: expected a list of files, such as include = ["sources/*.toml"]')
    for name in names:
        if any(sign in name for sign in "*?["):
            yield from sorted(path for path in file.parent.glob(name) if path != file)
        elif (path := file.parent / name).is_file():
            yield path.resolve()
        else:
            raise ConfigError(f"{file}: include: there is no file {name}")


def _laid_over(under: Mapping[str, Any], over: Mapping[str, Any]) -> _Tables:
    """The keys of both; of one that both have, tables are merged, and else that of ``over`` counts."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = _laid_over(below, value) if both else value  # type: ignore[arg-type]  # both are mappings
    return merged
