"""Memory for large messages."""

from __future__ import annotations

_KEPT = 16 * 2**20
"""Bytes: some four of the largest messages, as many as there are at once of one on its way through a process."""


def keep_memory() -> None:
    """Let this process keep what large messages leave behind, for the next one.

    glibc gives each large piece of memory back to the system at once, and meets a page fault for each 4 KiB of the
    next one: half of what a message of 1 MB costs a hub. The largest piece that was ever given back decides what
    counts as large (mallopt(3), ``M_MMAP_THRESHOLD``), so one that is never written to is taken and given back. A
    process keeps twice its size at most. Where the allocator is another one, or its thresholds are set by the
    environment (``MALLOC_TRIM_THRESHOLD_``), this changes nothing.
    """
    bytearray(_KEPT)
