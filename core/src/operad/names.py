"""Names for places that take identifiers only, such as the tools of a model, and the way back to the ids."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_HASH = 8


def safe_names(wanted: Mapping[str, str], *, limit: int = 50) -> dict[str, str]:
    """A name for each id: ``[A-Za-z_][A-Za-z0-9_-]*``, of at most ``limit`` characters, no two alike.

    What does not fit is cut and ends in a hash of the id. Where two ids would have one name, both have the hash:
    no name passes from one id to another when ids come and go, so a name that somebody approved stays what it was,
    or is gone.

    Args:
        wanted: for each id, the text that its name is made of.
        limit: characters; hosts put a prefix of their own before names of at most 64.

    Returns:
        The ids by name, in the order of ``wanted``: the way back, which the names alone do not tell.
    """
    plain = {id: _safe(text) for id, text in wanted.items()}
    counts = Counter(plain.values())
    names: dict[str, str] = {}
    for id, name in plain.items():
        if len(name) > limit or counts[name] > 1:
            digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
            name = f"{name[: limit - _HASH - 1]}_{digest}"
        names[name] = id
    return names


def _safe(text: str) -> str:
    name = _UNSAFE.sub("_", text)
    return name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"
