"""The file system for documents: the disk, or one of the application."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Protocol


class OpenAPIFS(Protocol):
    """Where OpenAPI documents and the files that they refer to are read from."""

    async def read(self, path: str, limit: int) -> bytes:
        """Return the content of the file at ``path``.

        Args:
            path: absolute.
            limit: the maximum of bytes to read; an implementation may stop one byte after it.

        Raises:
            OSError: the file cannot be read.
        """
        ...

    async def realpath(self, path: str) -> str:
        """Return ``path`` with symbolic links resolved, for the check against the allowed folders."""
        ...


def read_file(path: str, limit: int) -> bytes:
    """Return at most one byte more than ``limit`` of a file of this machine. Raises `OSError`."""
    with Path(path).open("rb") as file:
        # read(n) sets n bytes aside at once: what the file holds is a better guess than the limit.
        return file.read(min(limit, os.fstat(file.fileno()).st_size) + 1)


class LocalFS:
    """The file system of this machine, read in a worker thread."""

    async def read(self, path: str, limit: int) -> bytes:
        """Read a file; see `OpenAPIFS.read`."""
        data = await asyncio.to_thread(read_file, path, limit)
        # The event loop holds the thread's result until the next step: a document should not live twice.
        await asyncio.sleep(0)
        return data

    async def realpath(self, path: str) -> str:
        """Resolve a path; see `OpenAPIFS.realpath`."""
        return str(await asyncio.to_thread(Path(path).resolve))
