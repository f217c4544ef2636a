"""What completion knows: ids and input fields, remembered when a command saw them. Reading it starts nothing."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from operad import OperationRegistry

MANY = 300
"""With more operations than that the fields of those in use alone are kept: making all schemas takes time."""


def folder() -> Path:
    """Where the cache lies: ``$XDG_CACHE_HOME/operad``, else ``~/.cache/operad``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "operad"


def _file(config: Path) -> Path:
    digest = hashlib.sha256(str(config.resolve()).encode()).hexdigest()[:16]
    return folder() / f"{digest}.json"


def remember(config: Path, registry: OperationRegistry, operation_id: str | None) -> None:
    """Keep what a registry holds for the completions that follow.

    ``operation_id`` is the one for which sources were opened; ``None``: all of them are, and what is not there now
    is forgotten.
    """
    old = recall(config)
    specs = registry.specs()
    known = {spec.id: old.get(spec.id, []) for spec in specs}
    for spec in specs if len(specs) <= MANY else [spec for spec in specs if spec.id == operation_id]:
        known[spec.id] = fields_of(spec.input_schema.raw)
    if operation_id is not None:
        known = {**old, **known}
    if known == old:
        return
    with suppress(OSError):  # a cache that cannot be written is none
        folder().mkdir(parents=True, exist_ok=True)
        file = _file(config)
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(known), encoding="utf-8")
        new.replace(file)


def recall(config: Path) -> dict[str, list[str]]:
    """The fields of each operation by its id, as last seen."""
    try:
        found = json.loads(_file(config).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def fields_of(schema: Any) -> list[str]:
    """The names of the properties of an input schema."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return list(properties) if isinstance(properties, dict) else []
