"""Report the progress of large bodies to observers of the call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

LARGE = 1024 * 1024
"""Bytes: of a smaller body nothing is told."""
_CHUNK = 256 * 1024
_TIMES = 100
"""How often, at most, where the length is known; else for each `LARGE`."""

Report = Callable[..., None]
"""`operad.OperationContext.report`."""


class Progress:
    """Counts the bytes of one body.

    Args:
        report: takes what is told.
        kind: ``upload`` or ``download``.
        total: the length of the body; ``None``: not known.
    """

    def __init__(self, report: Report, kind: str, total: int | None) -> None:
        self._report = report
        self._kind = kind
        self._total = total
        self._step = LARGE if total is None else max(total // _TIMES, _CHUNK)
        self._size = 0
        self._next = self._step if total is None or total >= LARGE else float("inf")

    def passed(self, size: int) -> None:
        """So many bytes more have passed."""
        self._size += size
        if self._size >= self._next or (self._size == self._total and self._size >= LARGE):
            self._next = self._size + self._step
            self._report(self._kind, progress=self._size, total=self._total, unit="By")


async def told(chunks: AsyncIterator[bytes], progress: Progress) -> AsyncIterator[bytes]:
    """The chunks, counted as each has been taken."""
    async for chunk in chunks:
        yield chunk
        progress.passed(len(chunk))


async def in_chunks(data: bytes) -> AsyncIterator[bytes]:
    """A body in pieces, so that it can be told how much of it has been sent."""
    for start in range(0, len(data), _CHUNK):
        yield data[start : start + _CHUNK]
