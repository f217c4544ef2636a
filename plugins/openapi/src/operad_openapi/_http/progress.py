"""Report the progress of large bodies to observers of the call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

LARGE = 1024 * 1024
"""The progress of a body with fewer bytes is not reported."""
_CHUNK = 256 * 1024
_TIMES = 100
"""The maximum number of reports if the length is known; otherwise there is one for each `LARGE` bytes."""

Report = Callable[..., None]
"""The type of `operad.OperationContext.report`."""


class Progress:
    """A counter of the bytes of one body.

    Args:
        report: called with the progress.
        kind: ``upload`` or ``download``.
        total: the length of the body in bytes; ``None`` if it is not known.
    """

    def __init__(self, report: Report, kind: str, total: int | None) -> None:
        self._report = report
        self._kind = kind
        self._total = total
        self._step = LARGE if total is None else max(total // _TIMES, _CHUNK)
        self._size = 0
        self._next = self._step if total is None or total >= LARGE else float("inf")

    def passed(self, size: int) -> None:
        """Add ``size`` bytes that were sent or received, and report the progress if a step is complete."""
        self._size += size
        if self._size >= self._next or (self._size == self._total and self._size >= LARGE):
            self._next = self._size + self._step
            self._report(self._kind, progress=self._size, total=self._total, unit="By")


async def told(chunks: AsyncIterator[bytes], progress: Progress) -> AsyncIterator[bytes]:
    """Yield the chunks, and report progress after the consumer has taken each."""
    async for chunk in chunks:
        yield chunk
        progress.passed(len(chunk))


async def in_chunks(data: bytes) -> AsyncIterator[bytes]:
    """Yield a body in pieces of 256 KiB, so that its progress can be reported."""
    for start in range(0, len(data), _CHUNK):
        yield data[start : start + _CHUNK]
