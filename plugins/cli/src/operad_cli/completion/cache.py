"""What completion knows: ids and input fields, remembered when a command saw them. Reading it starts nothing.

Nothing of operad is imported: a completion has to answer before the next key.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from typing import Any

MANY = 300
"""With more operations than that the fields of those in use alone are kept: making all schemas takes time."""
_FILES = 256
"""No more configurations are remembered; of two with one number the last one is."""


def folder() -> str:
    """Where the cache lies: ``$XDG_CACHE_HOME/operad``, else ``~/.cache/operad``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "operad")


def _file(config: str) -> str:
    number = zlib.crc32(os.path.realpath(config).encode()) % _FILES
    return os.path.join(folder(), f"completion-{number:02x}.json")


def remember(config: str, specs: Iterable[Any], operation_id: str | None) -> None:
    """Keep the ids and fields of specs for the completions that follow.

    ``operation_id`` is the one for which sources were opened; ``None``: all of them are, and what is not there now
    is forgotten.
    """
    old = recall(config)
    specs = list(specs)
    known = {spec.id: old.get(spec.id, []) for spec in specs}
    for spec in specs if len(specs) <= MANY else [spec for spec in specs if spec.id == operation_id]:
        known[spec.id] = fields_of(spec.input_schema.raw)
    if operation_id is not None:
        known = {**old, **known}
    if known == old:
        return
    from operad.config import write_private  # what remembers has operad at hand

    write_private(_file(config), json.dumps({"config": os.path.realpath(config), "fields": known}).encode())


def recall(config: str) -> dict[str, list[str]]:
    """The fields of each operation by its id, as last seen."""
    if not os.path.isabs(folder()):  # of a user without a home
        return {}
    try:
        with open(_file(config), encoding="utf-8") as file:
            if not _is_own(file.fileno()):
                return {}
            found = json.load(file)
        if found["config"] == os.path.realpath(config):  # two may have one number
            return {str(name): [str(field) for field in fields] for name, fields in found["fields"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):  # not what was written here
        pass
    return {}


def _is_own(descriptor: int) -> bool:
    """Whether nobody but this user can have written an open file: the shell is told what it says."""
    about = os.fstat(descriptor)
    return not hasattr(os, "getuid") or (about.st_uid == os.getuid() and not about.st_mode & 0o022)


def fields_of(schema: Any) -> list[str]:
    """The names of the properties of an input schema."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return list(properties) if isinstance(properties, dict) else []
