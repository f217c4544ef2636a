"""The file and line of each table and key, for error messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

Lines = Mapping[str, tuple[str, int]]
"""The name of the file and the line, from 1, of each table and key, by their names as `dotted` writes them."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^."'\s]+))\s*(?:\.|$)""")
_HEADER = re.compile(r"""[ \t]*\[\[?((?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\]"'\n])+)\]""")
_NAME = r"""(?:"[^"\n]*"|'[^'\n]*'|[\w-]+)"""
_KEY = re.compile(rf"[ \t]*({_NAME}(?:[ \t]*\.[ \t]*{_NAME})*)[ \t]*=")


def dotted(*parts: str) -> str:
    """Return the name of a table or key as TOML writes it: ``sources."a b"``."""
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in parts)


def parts_of(name: str) -> list[str]:
    """Return the parts of a name that `dotted` wrote."""
    return [double or single or bare for double, single, bare in _PART.findall(name)]


def _canonical(written: str) -> str:
    if '"' in written or "'" in written:
        return dotted(*parts_of(written))
    return written.replace(" ", "").replace("\t", "")


def lines_of(text: str, name: str) -> dict[str, tuple[str, int]]:
    """Return where each table and each of its keys begins; ``name`` is the file's.

    For messages only: text inside a multi-line string that looks like a table or key is found as well.
    """
    found: dict[str, tuple[str, int]] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        if (header := _HEADER.match(line)) is not None:
            place = _canonical(header[1]).removeprefix("tool.operad.")
            table = "" if place == "tool.operad" else place
        elif (key := _KEY.match(line)) is not None:
            place = f"{table}.{_canonical(key[1])}".lstrip(".")
        else:
            continue
        found.setdefault(place, (name, number))
    return found


def place_of(table: str, lines: Lines) -> tuple[str, int] | None:
    """Return the file and line of a table or key: its own, its first part's, or those of the table around it."""
    parts = parts_of(table)
    while parts:
        name = dotted(*parts)
        if name in lines:
            return lines[name]
        if within := [place for other, place in lines.items() if other.startswith(f"{name}.")]:
            return within[0]
        parts.pop()
    return None


class Place(str):
    """``operad.toml:12: sources.shop``, with the lines of the keys below it."""

    lines: Lines
    __slots__ = ("lines",)

    @classmethod
    def of(cls, table: str, lines: Lines, otherwise: str) -> Place:
        """Return the place of a table; if its line is not known, in the file called ``otherwise``."""
        found = place_of(table, lines)
        made = cls(f"{otherwise}: {table}" if found is None else f"{found[0]}:{found[1]}: {table}")
        made.lines = lines
        return made


_TOLD = re.compile(
    r"""(?P<before>unknown\ key\ "(?P<key>[^"]*)"[^@]*?\ @\ )?
    (?P<file>[^\s;@]+?):(?P<line>\d+):\ (?P<path>(?:[\w-]|\.|"[^"]*"|\['[^']*'\]|\[\d+\])+)""",
    re.VERBOSE,
)


def below(where: str, tail: str) -> str:
    """Return the place of a key below another one: ``below(where, ".auth")``."""
    made = Place(where + tail)
    if not isinstance(where, Place):
        return where + tail
    made.lines = where.lines
    return made


def exactly(where: str, message: str) -> str:
    """Return the message, with the line of the key itself for each place below ``where`` that it names."""
    if not isinstance(where, Place):
        return message

    def told(found: re.Match[str]) -> str:
        path = re.sub(r"\['([^']*)'\]", lambda item: "." + dotted(item[1]), found["path"]).partition("[")[0]
        key = found["key"]
        place = place_of(path if key is None else f"{path}.{dotted(key)}", where.lines)
        file, line = place or (found["file"], found["line"])
        return f"{found['before'] or ''}{file}:{line}: {found['path']}"

    return _TOLD.sub(told, message)
