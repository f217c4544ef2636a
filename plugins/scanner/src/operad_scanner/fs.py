"""File systems for the scanner: the local one, or one that a test or an archive provides."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol


class ScannerFS(Protocol):
    """The interface of the file system that the scanner uses."""

    def python_files(self, root: Path) -> Iterable[Path]:
        """Return all ``.py`` files at or below ``root``. Raises `OSError` if ``root`` does not exist."""

    def read(self, path: Path) -> bytes:
        """Return the content of a file. Raises `OSError` if it cannot be read."""


class LocalFS:
    """The local file system. Files and folders with names that begin with ``_`` or ``.`` are skipped."""

    def python_files(self, root: Path) -> Iterable[Path]:
        """Return ``[root]`` for a file, else ``.py`` files below ``root``. Raises `OSError` if it is missing."""
        if root.is_file():
            return [root]
        if not root.is_dir():
            raise FileNotFoundError(f"no such file or folder: {root}")
        return [
            path
            for path in root.rglob("*.py")
            if not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
            and path.is_file()  # to read a pipe would wait forever
        ]

    def read(self, path: Path) -> bytes:
        """Return the content of a file. Raises `OSError` if it cannot be read."""
        return path.read_bytes()
