"""File systems for documents: the local one, or one that the application provides."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Protocol


class OpenAPIFS(Protocol):
    """The interface of a file system with OpenAPI documents and the files that they refer to."""

    async def read(self, path: str, limit: int) -> bytes:
        """Return the content of the file at ``path``.

        Args:
            path: an absolute path.
            limit: the maximum size of a document in bytes; reading may stop after ``limit + 1`` bytes.

        Raises:
            OSError: the file cannot be read.
        """
        ...

    async def realpath(self, path: str) -> str:
        """Return the absolute path of a file, with symbolic links, ``.`` and ``..`` resolved.

        The result is compared with the allowed folders, so it must not contain ``..``. A missing file is no error
        here; `read` raises it.
        """
        ...


def read_file(path: str, limit: int) -> bytes:
    """Return at most ``limit + 1`` bytes of a local file. Raises `OSError` if it cannot be read."""
    with Path(path).open("rb") as file:
        # read(n) allocates n bytes immediately: what the file holds is a better guess than the limit.
        return file.read(min(limit, os.fstat(file.fileno()).st_size) + 1)


class LocalFS:
    """The local file system; files are read in a worker thread."""

    async def read(self, path: str, limit: int) -> bytes:
        """Return the content of a file; for arguments and errors see `OpenAPIFS.read`."""
        data = await asyncio.to_thread(read_file, path, limit)
        # The event loop holds the thread's result until the next step: a document should not live twice.
        await asyncio.sleep(0)
        return data

    async def realpath(self, path: str) -> str:
        """Return ``path`` with symbolic links resolved."""
        return str(await asyncio.to_thread(Path(path).resolve))
