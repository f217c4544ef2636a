"""The check that a test leaves nothing behind: no task, timer, thread, socket or child process."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import attrs

GRACE = 2.0
"""Seconds to wait until connections are closed and threads have ended."""
_STEP = 0.01
_POOLS = ("operad", "asyncio_")
"""How the names of threads in worker pools begin. They wait for work, and end with the interpreter."""


@attrs.frozen
class HeldResources:
    """The resources that the process holds at one moment, such as before a test or after it."""

    threads: frozenset[int]
    sockets: int
    """The number of open sockets on Linux; 0 on other systems."""
    children: frozenset[str]
    """The ids of the child processes on Linux; empty on other systems."""

    @classmethod
    def now(cls) -> HeldResources:
        """Return the resources that the process holds now."""
        threads = {
            thread.ident
            for thread in threading.enumerate()
            if thread.ident is not None and not thread.name.startswith(_POOLS)
        }
        return cls(frozenset(threads), _sockets(), _children())

    def left(self, before: HeldResources) -> list[str]:
        """Return descriptions, such as ``process 7``, of resources in this record that are not in ``before``."""
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
            except OSError:  # closed meanwhile, such as the descriptor of the listing itself
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
    """Return descriptions of tasks and timers of the running loop."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    words = [f"task {task.get_coro()!r}" for task in tasks]
    # A private attribute, because there is no public one; event loops without it are skipped.
    timers = getattr(asyncio.get_running_loop(), "_scheduled", ())
    return [*words, *(f"timer {timer!r}" for timer in timers if not timer.cancelled())]


async def assert_nothing_pending(before: HeldResources | None = None, *, grace: float = GRACE) -> None:
    """Check that nothing except the caller is pending in the running event loop.

    Args:
        before: the resources held before the test (`HeldResources.now`). If None, check tasks and timers only.
        grace: seconds to wait for resources that are being closed.

    Raises:
        AssertionError: a task or a timer is left after ``grace`` seconds, or, with ``before``, a thread, socket or
            child process.
    """
    for _ in range(int(grace / _STEP) + 1):
        left = _in_loop() if before is None else [*_in_loop(), *HeldResources.now().left(before)]
        if not left:
            return
        await asyncio.sleep(_STEP)
    raise AssertionError(f"the test left behind: {', '.join(left)}; end or close this before the test ends")
