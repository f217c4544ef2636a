"""Check that a test leaves nothing behind: no task, timer, thread, socket or child process."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import attrs

GRACE = 2.0
"""Seconds that closing connections and ending threads get."""
_STEP = 0.01
_POOLS = ("operad", "asyncio_")
"""Threads of worker pools: they wait for work and end with the interpreter."""


@attrs.frozen
class HeldResources:
    """What the process holds: compare it before and after."""

    threads: frozenset[int]
    sockets: int
    """On Linux; elsewhere 0."""
    children: frozenset[str]
    """On Linux; elsewhere none."""

    @classmethod
    def now(cls) -> HeldResources:
        """As of now."""
        threads = {
            thread.ident
            for thread in threading.enumerate()
            if thread.ident is not None and not thread.name.startswith(_POOLS)
        }
        return cls(frozenset(threads), _sockets(), _children())

    def left(self, before: HeldResources) -> list[str]:
        """What is there and was not before, in words."""
        threads = [
            thread.name for thread in threading.enumerate() if thread.ident in self.threads - before.threads
        ]
        words = [f"thread {name}" for name in threads]
        if self.sockets > before.sockets:
            words.append(f"{self.sockets - before.sockets} socket(s)")
        return [*words, *(f"process {pid}" for pid in self.children - before.children)]


def _sockets() -> int:
    count = 0
    try:
        for name in os.listdir("/proc/self/fd"):
            try:
                count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
            except OSError:  # closed meanwhile; the listing's own descriptor, for one
                continue
    except OSError:  # not Linux
        return 0
    return count


def _children() -> frozenset[str]:
    found: set[str] = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(listing.read_text().split())
        except OSError:  # the thread ended meanwhile
            continue
    return frozenset(found)


def _in_loop() -> list[str]:
    """Tasks and timers of the running loop, in words."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    words = [f"task {task.get_coro()!r}" for task in tasks]
    # Private, and the only place that knows; an event loop that has it not is not asked.
    timers = getattr(asyncio.get_running_loop(), "_scheduled", ())
    return [*words, *(f"timer {timer!r}" for timer in timers if not timer.cancelled())]


async def assert_nothing_pending(before: HeldResources | None = None, *, grace: float = GRACE) -> None:
    """Check that nothing is pending in the running event loop but the caller.

    Args:
        before: what the process held before the test (`HeldResources.now`); without it only the loop counts.
        grace: seconds that what is being closed gets.

    Raises:
        AssertionError: a task or a timer is left, or, with ``before``, a thread, socket or child process.
    """
    for _ in range(int(grace / _STEP) + 1):
        left = _in_loop() if before is None else [*_in_loop(), *HeldResources.now().left(before)]
        if not left:
            return
        await asyncio.sleep(_STEP)
    raise AssertionError(f"left behind: {', '.join(left)}")
