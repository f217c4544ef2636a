"""The file and line of each table and key, for error messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

Lines = Mapping[str, tuple[str, int]]
"""For each table and key, by its name as `dotted` returns it: the name of the file, and the line, from 1."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^."'\s]+))\s*(?:\.|$)""")
_HEADER = re.compile(r"""[ \t]*\[\[?((?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\]"'\n])+)\]""")
_NAME = r"""(?:"[^"\n]*"|'[^'\n]*'|[\w-]+)"""
_KEY = re.compile(rf"[ \t]*({_NAME}(?:[ \t]*\.[ \t]*{_NAME})*)[ \t]*=")


def dotted(*parts: str) -> str:
    """Return the name of a table or key as TOML writes it: ``sources."a b"``."""
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in parts)


def parts_of(name: str) -> list[str]:
    """Return the parts of a name that `dotted` has joined."""
    return [double or single or bare for double, single, bare in _PART.findall(name)]


def lines_of(text: str, name: str) -> dict[str, tuple[str, int]]:
    """Return the place of each table and key of a file; ``text`` is its content, ``name`` its name.

    The result is for messages only, because a line of a multi-line string may look like a table or key.
    """
    found: dict[str, tuple[str, int]] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        if (header := _HEADER.match(line)) is not None:
            place = dotted(*parts_of(header[1])).removeprefix("tool.operad.")
            table = "" if place == "tool.operad" else place
        elif (key := _KEY.match(line)) is not None:
            place = f"{table}.{dotted(*parts_of(key[1]))}".lstrip(".")
        else:
            continue
        found.setdefault(place, (name, number))
    return found


def place_of(table: str, lines: Lines) -> tuple[str, int] | None:
    """Return the file and line of a table or key; if unknown, of the first key in it, else of a table around it.

    The result is ``None`` if all of these are unknown.
    """
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
    """A string with the place of a table, ``operad.toml:12: sources.shop``, and with the lines of all keys."""

    lines: Lines
    __slots__ = ("lines",)

    @classmethod
    def of(cls, table: str, lines: Lines, otherwise: str) -> Place:
        """Return the place of a table or key. If its line is not known, ``otherwise`` is the name of the file."""
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
    """Return the place of a key inside a table: ``below(where, ".auth")``."""
    made = Place(where + tail)
    if not isinstance(where, Place):
        return where + tail
    made.lines = where.lines
    return made


def exactly(where: str, message: str) -> str:
    """Return the message with exact lines: each place in it gets the line of the key that it names.

    If ``where`` is a plain string, which has no lines, the message is unchanged.
    """
    if not isinstance(where, Place):
        return message

    def told(found: re.Match[str]) -> str:
        path = re.sub(r"\['([^']*)'\]", lambda item: "." + dotted(item[1]), found["path"]).partition("[")[0]
        key = found["key"]
        place = place_of(path if key is None else f"{path}.{dotted(key)}", where.lines)
        file, line = place or (found["file"], found["line"])
        return f"{found['before'] or ''}{file}:{line}: {found['path']}"

    return _TOLD.sub(told, message)
