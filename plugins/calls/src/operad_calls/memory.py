"""Reuse of memory for large messages."""

from __future__ import annotations

_KEPT = 16 * 2**20
"""The size in bytes: four of the largest messages, because a process may hold four copies of a message."""


def keep_memory() -> None:
    """Let this process reuse the memory of a large message for the next one.

    glibc immediately returns large blocks to the system, and each new one causes a page fault per 4 KiB. These
    faults take half of the time of a message of 1 MB in a hub. A block is large if it exceeds the largest block
    ever freed (mallopt(3), ``M_MMAP_THRESHOLD``), so this function frees an unused block of 16 MiB. The process
    then keeps at most 32 MiB. With another allocator, or if ``MALLOC_TRIM_THRESHOLD_`` is set, nothing changes.
    """
    bytearray(_KEPT)
