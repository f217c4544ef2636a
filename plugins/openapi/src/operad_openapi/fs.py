"""Reading the files of a document: from disk, or from wherever an application keeps them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol


class OpenAPIFS(Protocol):
    """Where OpenAPI documents and the files that they refer to are read from."""

    async def read(self, path: str, limit: int) -> bytes:
        """The content of the file at ``path``.

        Args:
            path: absolute.
            limit: the most bytes that are wanted; an implementation may stop one byte beyond it.

        Raises:
            OSError: the file cannot be read.
        """
        ...

    async def realpath(self, path: str) -> str:
        """``path`` with symbolic links resolved: what a check against the allowed folders compares."""
        ...


class LocalFS:
    """The file system of this machine, read in a worker thread."""

    async def read(self, path: str, limit: int) -> bytes:
        """As `OpenAPIFS.read`."""

        def read() -> bytes:
            with Path(path).open("rb") as file:
                return file.read(limit + 1)

        return await asyncio.to_thread(read)

    async def realpath(self, path: str) -> str:
        """As `OpenAPIFS.realpath`."""
        return str(await asyncio.to_thread(Path(path).resolve))
