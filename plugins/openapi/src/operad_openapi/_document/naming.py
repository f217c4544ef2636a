"""Names of operations, and the filters that choose among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from operad import ConfigError
from operad.words import did_you_mean
from operad_openapi._document.listing import RawOperation

T = TypeVar("T")
_SPACE = re.compile(r"\s+")


class Naming:
    """The names of operations: from the configuration, else from the document.

    Args:
        names: the option ``names``.
    """

    def __init__(self, names: Mapping[str, str] | str | Callable[[Mapping[str, Any]], str | None]) -> None:
        self._names = names
        self._unused = set(names) if isinstance(names, Mapping) else set()

    def of(self, raw: RawOperation) -> str:
        """Return the configured name of an operation, else `wanted_name`.

        Raises:
            ConfigError: the configured name is not a printable text without spaces, or is empty.
        """
        wanted: Any = self._configured(raw) if self._names else None
        if wanted is None:
            return wanted_name(raw)
        if not isinstance(wanted, str) or not wanted.isprintable() or not wanted or _SPACE.search(wanted):
            where = f"{raw.method} {raw.path}"
            raise ConfigError(f"names: {where}: expected a printable name without spaces, got {wanted!r:.100}")
        return wanted

    def _configured(self, raw: RawOperation) -> str | None:
        if isinstance(self._names, Mapping):
            for key in words_of(raw):
                if key in self._names:
                    self._unused.discard(key)
                    return self._names[key]
            return None
        if isinstance(self._names, str):
            return _function_name(raw)
        given, tags = raw.node.get("operationId"), raw.node.get("tags")
        return self._names({"operationId": given, "method": raw.method, "path": raw.path, "tags": tags or []})

    def check(self, operations: Iterable[RawOperation]) -> None:
        """Raise `ConfigError` for a key of the table that names none of ``operations``."""
        for key in self._unused:
            known = {word for raw in operations for word in words_of(raw)}
            raise ConfigError(f'names: unknown operation "{key}"{did_you_mean(key, known)}')


def words_of(raw: RawOperation) -> tuple[str, ...]:
    """Return the keys of an operation in tables of the configuration, such as ``getPet`` and ``GET /pets/{id}``.

    The first key is the ``operationId``; it is left out if the document does not declare it.
    """
    given = raw.node.get("operationId")
    route = f"{raw.method} {raw.path}"
    return (given, route) if isinstance(given, str) else (route,)


def _function_name(raw: RawOperation) -> str | None:
    """Return the function's name in an ``operationId`` as FastAPI makes it: function, path and method, joined."""
    given = raw.node.get("operationId")
    ending = re.sub(r"\W", "_", raw.path) + f"_{raw.method.lower()}"
    if isinstance(given, str) and given.endswith(ending) and given != ending:
        return given.removesuffix(ending)
    return None


def wanted_name(raw: RawOperation) -> str:
    """Return the ``operationId``, else ``{method}_{path}`` without braces and with underscores for slashes.

    Spaces become underscores, and characters that are not printable are removed.
    """
    given = raw.node.get("operationId")
    name = given if isinstance(given, str) and given.strip() else _path_name(raw)
    if name.isprintable() and " " not in name and not name[0].isspace():
        return name
    name = _SPACE.sub("_", name.strip())
    return "".join(character for character in name if character.isprintable()) or "operation"


def _path_name(raw: RawOperation) -> str:
    path = raw.path.partition("#")[0].replace("{", "").replace("}", "").strip("/")
    return "_".join([raw.method.lower(), *filter(None, re.split(r"[/?&=\s]+", path))])


class Names:
    """A set of unique names, ignoring case: a name that is taken gets ``_2``, ``_3`` and so on, in order."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        self.claimed: list[str] = []
        """All names that `claim` returned, in order."""

    def claim(self, name: str) -> str:
        """Return ``name``, with a number appended if it is taken."""
        key = candidate = name.lower()
        number = self._next.get(key, 2)
        while candidate in self._taken:
            candidate = f"{key}_{number}"
            number += 1
        if candidate == key:
            self._taken.add(key)
            self.claimed.append(name)
            return name
        self._next[key] = number  # thousands of one name must not be counted from two each
        self._taken.add(candidate)
        self.claimed.append(f"{name}_{number - 1}")
        return self.claimed[-1]


class Filters:
    """The options ``include`` and ``exclude``. Raises `ConfigError` for an empty pattern."""

    def __init__(self, include: list[str], exclude: list[str]) -> None:
        self._include = {pattern: _parsed(pattern) for pattern in include}
        self._exclude = {pattern: _parsed(pattern) for pattern in exclude}
        self._used: set[str] = set()

    def admits(self, name: str, raw: RawOperation) -> bool:
        """Return True if ``include`` is empty or matches the operation, and ``exclude`` does not match it."""
        included = not self._include or self._matching(self._include, name, raw)
        excluded = bool(self._exclude) and self._matching(self._exclude, name, raw)
        return included and not excluded

    def _matching(self, patterns: dict[str, tuple[str, str]], name: str, raw: RawOperation) -> bool:
        found = [pattern for pattern, parsed in patterns.items() if _matches(parsed, name, raw)]
        self._used.update(found)
        return bool(found)

    def check(self, names: Iterable[str]) -> None:
        """Raise `ConfigError` for a pattern that matched no operation; the message suggests one of ``names``."""
        for option, patterns in (("include", self._include), ("exclude", self._exclude)):
            for pattern in patterns:
                if pattern not in self._used:
                    hint = did_you_mean(pattern, names) if patterns[pattern][0] == "id" else ""
                    raise ConfigError(f'{option}: no operation matches "{pattern}"{hint}')


def fits(name: str, glob: str) -> bool:
    """Return True if a name matches a glob or equals it; an ``operationId`` may itself contain ``*``."""
    return name == glob or fnmatchcase(name, glob)


def first_fitting(table: Mapping[str, T], *names: str) -> T | None:
    """Return the value of a key that equals one of ``names``, else of the first glob that matches one.

    Returns ``None`` if no key matches.
    """
    exact = (table[name] for name in names if name in table)
    globs = (value for glob, value in table.items() if any(fnmatchcase(name, glob) for name in names))
    return next(exact, None) or next(globs, None)


def _parsed(pattern: str) -> tuple[str, str]:
    if not pattern:
        raise ConfigError('include, exclude: expected a pattern such as "tag:pets" or "get*", got an empty text')
    for kind in ("tag", "path", "method", "id"):
        if pattern.startswith(f"{kind}:"):
            return kind, pattern[len(kind) + 1 :]
    if re.match(r"[A-Za-z]+ /", pattern):
        return "route", pattern
    return "id", pattern


def _matches(pattern: tuple[str, str], name: str, raw: RawOperation) -> bool:
    kind, glob = pattern
    if kind == "tag":
        tags = raw.node.get("tags")
        return isinstance(tags, list) and any(isinstance(tag, str) and fits(tag, glob) for tag in tags)
    if kind == "path":
        return fits(raw.path, glob)
    if kind == "method":
        return raw.method.upper() == glob.upper()
    if kind == "route":
        method, _, path = glob.partition(" ")
        return raw.method.upper() == method.upper() and fits(raw.path, path)
    return fits(name, glob)
