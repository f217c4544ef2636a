"""Messages about unknown keys of a table."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_args, get_type_hints

import attrs

from operad.words import did_you_mean, nearest


def unknown_key(config_type: type[Any], key: str, known: Collection[str]) -> str:
    """Return the message about an unknown key: with the nearest known key, all known keys, or the key's table."""
    told = f'unknown key "{key}"'
    if key in ("include", "profiles"):
        return f"{told}; it belongs at the top of the file, before the first table"
    if nearest(key, known) is None and (owner := _owner(config_type, key)):
        return f"{told}; it is a key of {owner}"
    own = f"; a transport's own go into options = {{ {key} = … }}" if "options" in known else ""
    return told + did_you_mean(key, known) + (own if nearest(key, known) is None else "")


def _owner(config_type: type[Any], key: str) -> str | None:
    """Return the field whose table has a key."""
    for field in attrs.fields(config_type) if attrs.has(config_type) else ():
        hint = field.type if not isinstance(field.type, str) else get_type_hints(config_type).get(field.name)
        for member in (hint, *get_args(hint)):
            if isinstance(member, type) and attrs.has(member) and key in {f.alias for f in attrs.fields(member)}:
                return str(field.alias)
    return None
