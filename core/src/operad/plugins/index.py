"""What each installed plugin offers, remembered in the user's cache: a short command loads those that it needs.

The cache is believed only if nobody else can have written it, and while neither ``sys.path``, nor a folder on it,
nor a plugin's own module has changed: installing, upgrading and removing change a folder's time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from operad.config import private_files

_KIND = "plugins"
_FORM = 2
"""Of what is kept; another one is made anew."""


class Point:
    """An entry point, as remembered."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: str) -> None:
        self.name = name
        self.value = value

    def load(self) -> object:
        """Import it."""
        module, _, attribute = self.value.partition(":")
        found: object = import_module(module.strip())
        for part in filter(None, attribute.split("[")[0].strip().split(".")):
            found = getattr(found, part)
        return found


def only_offers(each: dict[str, Any]) -> list[str] | None:
    """What a plugin offers that does nothing until it is asked for; ``None`` for others, and those that failed."""
    offers = each["offers"]  # of one that was refused: none
    if not offers or _stamp(each["file"]) != each["stamp"]:
        return None
    # Only the command line asks for commands, and does so itself.
    if set(offers.get("hooks", ())) - {"operad_commands"}:
        return None
    return [name for names in offers.values() for name in names]


def key_of_now(choices: list[Any]) -> list[Any]:
    """What a change of says that something else may be installed, or another plugin have a name that two claim."""
    return [sys.version, choices, [[path, _stamp(path)] for path in sys.path]]


def _stamp(path: str | None) -> list[int] | None:
    try:
        found = os.stat(path or ".")
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size, found.st_ino]


def _slot(key: list[Any]) -> list[Any]:
    """One for each environment and choice."""
    return [_FORM, sys.prefix, list(sys.path), key[1]]


def recall(key: list[Any]) -> list[dict[str, Any]] | None:
    """The plugins as remembered under ``key``; ``None`` where that is not to be believed."""
    try:
        found = list(private_files.recall(_KIND, _slot(key), key))
        for each in found:
            each["name"], each["value"], each["distribution"], each["version"], each["file"], each["stamp"]
            each["offers"].items()
    except (KeyError, TypeError, AttributeError):  # nothing, or not what was written here
        return None
    return found


def remember(key: list[Any], found: Iterable[Any], plugins: Any) -> None:
    """Keep what is installed (`Found`) and what of it is loaded (`Plugins`) under ``key``.

    Where two plugins claim one name nothing is kept: who has it is a matter of the order of loading.
    """
    if any(record.status == "conflict" for record in plugins.records):
        return
    offers = {
        (record.name, record.distribution): {kind: list(names) for kind, names in record.contributes.items()}
        for record in plugins.records
        if record.status == "loaded"
    }
    entries = []
    for item in found:
        point = item.entry_point
        module = sys.modules.get(point.value.partition(":")[0].strip())
        file = getattr(module, "__file__", None)
        entries.append(
            {
                "name": point.name,
                "value": point.value,
                "distribution": item.distribution,
                "version": item.version,
                "file": file,
                "stamp": _stamp(file) if file else None,
                "offers": offers.get((point.name, item.distribution), {}) if file else {},
            }
        )
    private_files.remember(_KIND, _slot(key), key, entries)
