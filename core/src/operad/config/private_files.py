"""Files of the user's cache: written so that nobody else reads them, believed if nobody else can write them."""

from __future__ import annotations

import json
import os
import stat
import zlib
from contextlib import suppress
from typing import Any

_FILES = 256
_LARGEST = 64 * 2**20
"""Bytes of a file that is read; what is larger counts as absent."""


def cache_folder() -> str:
    """Where operad keeps what it can make again: ``$XDG_CACHE_HOME/operad``, else ``~/.cache/operad``.

    Relative for a user who has no home: then there is no cache.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    # A relative one is ignored, as the XDG Base Directory Specification wants it.
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "operad")


def read_private(path: str) -> bytes | None:
    """The content of a file; ``None`` if it is not there, is another user's, or others may write it.

    Args:
        path: absolute; a relative one names nothing.
    """
    if not os.path.isabs(path):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST:
            return None
        if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o022):
            return None
        return file.read()


def write_private(path: str, content: bytes) -> None:
    """Write a file that its user alone can read, whole or not at all; one that cannot be written is none.

    Args:
        path: absolute; nothing is written for a relative one.
        content: of the file.
    """
    if not os.path.isabs(path):
        return
    new = f"{path}.{os.getpid()}"
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        try:
            # A file of its own: in a folder that others may write, one could be waiting that is linked elsewhere.
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(new, path)
        except OSError:
            with suppress(OSError):
                os.unlink(new)


def recall(kind: str, slot: Any, key: Any) -> Any:
    """What `remember` kept; ``None`` where nothing was, the key is another one, or others can have written it.

    Args:
        kind: of what is kept, a word.
        slot: what it is about, as JSON.
        key: what changes when it is no longer true, as JSON.
    """
    try:
        found = json.loads(read_private(_file(kind, slot)) or b"null")
        # Two may have one file: what it holds says for which it is.
        return found["value"] if (found["slot"], found["key"]) == (slot, key) else None
    except (ValueError, KeyError, TypeError, RecursionError):  # not what was written here
        return None


def remember(kind: str, slot: Any, key: Any, value: Any) -> None:
    """Keep a value as JSON; see `recall`. Of each kind the latest 256 are kept, and none where none can be."""
    content = json.dumps({"slot": slot, "key": key, "value": value})
    write_private(_file(kind, slot), content.encode())
    with suppress(OSError), os.scandir(cache_folder()) as entries:
        own = sorted(
            (entry.stat().st_mtime_ns, entry.path) for entry in entries if entry.name.startswith(f"{kind}-")
        )
        for _, path in own[:-_FILES]:
            os.unlink(path)


def _file(kind: str, slot: Any) -> str:
    return os.path.join(cache_folder(), f"{kind}-{zlib.crc32(json.dumps(slot).encode()):08x}.json")
