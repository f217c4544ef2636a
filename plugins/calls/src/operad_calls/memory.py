"""Memory for large messages."""

from __future__ import annotations

_KEPT = 16 * 2**20
"""Bytes: about four of the largest messages, as many as one message has copies on its way through a process."""


def keep_memory() -> None:
    """Let this process keep the memory of large messages for the next one.

    glibc returns each large block to the system at once, and the next one causes a page fault for each 4 KiB: half
    of the time that a message of 1 MB takes in a hub. The largest block that was ever freed decides which blocks
    are large (mallopt(3), ``M_MMAP_THRESHOLD``), so this allocates one, never writes to it, and frees it. The
    process keeps at most twice its size. With another allocator, or with thresholds set by the environment
    (``MALLOC_TRIM_THRESHOLD_``), this changes nothing.
    """
    bytearray(_KEPT)
