"""Files in the user's cache folder: only the user can read them, and they are ignored if others can write them."""

from __future__ import annotations

import json
import os
import stat
import sys
import zlib
from contextlib import suppress
from typing import Any

_MOST_FILES = 256
_LARGEST = 64 * 2**20
"""The largest cache file that is read, in bytes."""


def cache_folder() -> str:
    """Return operad's folder in the user's cache folder; a relative path for a user without a home directory."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
        return os.path.join(local, "operad", "cache")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches/operad")
    base = os.environ.get("XDG_CACHE_HOME", "")
    # A relative path is ignored, as in the XDG Base Directory Specification.
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "operad")


def recall(kind: str, slot: Any, key: Any) -> Any:
    """Return the value that `remember` kept; None if it is missing, has another ``key``, or is not trusted.

    A file is not trusted if `read_private` returns None for it.

    Args:
        kind: a word for the kind of the value. File names begin with it.
        slot: a JSON value that identifies the value among those of its kind.
        key: a JSON value that differs from the one given to `remember` if the kept value is out of date.
    """
    try:
        found = json.loads(read_private(_file(kind, slot)) or b"null")
        # Two slots may share a file.
        return found["value"] if (found["slot"], found["key"]) == (slot, key) else None
    except (ValueError, KeyError, TypeError, RecursionError):  # another program's content
        return None


def remember(kind: str, slot: Any, key: Any, value: Any, *, most: int = _MOST_FILES) -> None:
    """Keep a JSON value for `recall`, which describes the arguments. Do nothing if the cache cannot be written.

    Only the latest ``most`` values of a kind are kept.
    """
    write_private(_file(kind, slot), json.dumps({"slot": slot, "key": key, "value": value}).encode())
    with suppress(OSError), os.scandir(cache_folder()) as entries:
        own = sorted(
            (entry.stat().st_mtime_ns, entry.path) for entry in entries if entry.name.startswith(f"{kind}-")
        )
        for _, path in own[:-most]:
            os.unlink(path)


def read_private(path: str) -> bytes | None:
    """Return the content of a regular file of this user; None if it cannot be read.

    None is also returned for a relative path, a link, more than 64 MiB, and a file that others can write.
    """
    if not os.path.isabs(path):
        return None
    flags = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK"))  # a pipe would block
    try:
        descriptor = os.open(path, os.O_RDONLY | flags)
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
    """Write a file atomically, so that only the user can read it. Ignore errors and relative paths."""
    if not os.path.isabs(path):
        return
    new = f"{path}.{os.getpid()}"
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        try:
            # O_EXCL: in a folder that others may write, a link to another file could wait under this name.
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(new, path)
        except OSError:
            with suppress(OSError):
                os.unlink(new)


def _file(kind: str, slot: Any) -> str:
    is_digest = isinstance(slot, str) and len(slot) == 64 and slot.isalnum()
    name = slot if is_digest else f"{zlib.crc32(json.dumps(slot).encode()):08x}"
    return os.path.join(cache_folder(), f"{kind}-{name}.json")
