"""The mount point of an application, and the path of a request below it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

_MOUNT = re.compile(r"(?:/[^/]+)+")


def place_of(scope: Mapping[str, Any]) -> tuple[str, str]:
    """Return the root of an application, without a final slash (empty for ``/``), and the path below it.

    In ASGI 3 ``path`` begins with ``root_path``. Some hosts remove the root from ``path``. Litestar removes its
    mount without adding it to ``root_path``, and appends a slash. Then ``raw_path``, the path of the request line,
    shows both.

    Args:
        scope: the ASGI scope of an HTTP request.
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        return root, path[len(root) :] or "/"
    raw: bytes = scope.get("raw_path") or b""
    if not raw or raw == path.encode("utf-8", "replace"):
        return root, path
    asked = unquote(raw.decode("latin-1"))
    if path.endswith("/") and not asked.endswith("/"):
        path = path[:-1] or "/"
    mount = asked.removesuffix(path)
    if path != "/" and mount != asked and _MOUNT.fullmatch(mount):
        root = mount
    return root, path
