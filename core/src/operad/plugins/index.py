"""What each installed plugin offers, remembered in the user's cache: a short command loads those that it needs.

The cache is believed only if nobody else can have written it, and while neither ``sys.path``, nor a folder on it,
nor a plugin's own module has changed: installing, upgrading and removing change a folder's time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from operad.config.private_files import cache_folder, read_private, write_private

_FORM = 1
"""Of the file; another one is written anew."""
_FILES = 64


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


def _file(key: list[Any]) -> str:
    import zlib

    # One for each environment and choice, and no more than so many; what it holds says for which it is.
    number = zlib.crc32(repr([sys.prefix, sys.path, key[1]]).encode()) % _FILES
    return os.path.join(cache_folder(), f"plugins-{number:02x}.json")


def recall(key: list[Any]) -> list[dict[str, Any]] | None:
    """The plugins as remembered under ``key``; ``None`` where that is not to be believed."""
    try:
        found = json.loads(read_private(_file(key)) or b"null")
        if found["form"] == _FORM and found["key"] == key:
            for each in found["plugins"]:
                each["name"], each["value"], each["distribution"], each["version"], each["file"], each["stamp"]
                each["offers"].items()
            return list(found["plugins"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # not what was written here
        pass
    return None


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
    write_private(_file(key), json.dumps({"form": _FORM, "key": key, "plugins": entries}).encode())
