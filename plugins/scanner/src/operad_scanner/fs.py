"""The file system for the scanner: the disk, or one that a test or an archive provides."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol


class ScannerFS(Protocol):
    """The two things that the scanner asks of a file system."""

    def python_files(self, root: Path) -> Iterable[Path]:
        """All ``.py`` files at or below ``root``. Raises `OSError` if there is no such place."""

    def read(self, path: Path) -> bytes:
        """The content of a file. Raises `OSError`."""


class LocalFS:
    """The local file system. Names that begin with ``_`` or ``.`` are passed over."""

    def python_files(self, root: Path) -> Iterable[Path]:
        """The file ``root`` itself, or the ``.py`` files below the folder ``root``."""
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
        """The content of a file."""
        return path.read_bytes()
