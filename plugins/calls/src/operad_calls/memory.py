"""Reuse of memory for large messages."""

from __future__ import annotations

_KEPT = 16 * 2**20
"""The size in bytes: four of the largest messages, because a process may hold four copies of a message."""


def keep_memory() -> None:
    """Let this process keep the memory of large messages for the next one.

    glibc immediately returns each large block to the system. The next block causes a page fault for each 4 KiB.
    These take half of the time that a message of 1 MB spends in a hub. Which blocks are large depends on the
    largest block that was ever freed (mallopt(3), ``M_MMAP_THRESHOLD``), so this function allocates and frees a
    block of 16 MiB without writing to it. The process then keeps at most 32 MiB. With another allocator, or with
    thresholds set by the environment (``MALLOC_TRIM_THRESHOLD_``), this changes nothing.
    """
    bytearray(_KEPT)
