"""One event loop in a background thread, shared by all synchronous objects of a process."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, Self, TypeVar

from operad.errors import CallError, ErrorCode

T = TypeVar("T")

logger = logging.getLogger("operad.sync")

_EXIT_SECONDS = 5.0


class Closable(Protocol):
    """What is closed when the process ends, if nobody did before."""

    def close(self) -> None:
        """Close it."""


class Portal:
    """The loop and its thread. `portal` starts it when it is first needed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="operad.sync", daemon=True)
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        self._giving_up: asyncio.Task[None] | None = None
        self._process = os.getpid()
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether its thread runs in this process: a forked child has its parent's portal, and no thread."""
        return self._process == os.getpid()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def keep(self, opened: Closable) -> None:
        """Close it when the process ends, if it still lives then."""
        self._open.add(opened)

    def forget(self, opened: Closable) -> None:
        """It is closed."""
        self._open.discard(opened)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, in the context of this thread, and wait for it here.

        An exception in this thread while it waits (Ctrl-C) cancels it.

        Raises:
            RuntimeError: in the loop's own thread, which would wait for itself; in a forked child.
        """
        if not self.is_here:  # nobody would ever answer
            coroutine.close()
            raise RuntimeError(
                "this was opened before the process forked, and runs in the parent: open it in each process"
            )
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("operad.sync would wait for itself here: in an async handler use `await`")
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise RuntimeError("the process is ending: operad.sync takes no more calls") from None
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise CallError(ErrorCode.ABORTED, "the call was cancelled") from None
        except BaseException:
            future.cancel()  # nothing, if it is done
            raise

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a plain function in the loop's thread, and wait for what it answers."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self.run(call())

    def soon(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Start a coroutine in the loop, and wait for nothing; nothing happens where the loop is gone."""
        if not self.is_here:
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(make()))

    def stop(self) -> None:
        """Close what is open, and end the loop and the thread."""
        for opened in tuple(self._open):
            closer = threading.Thread(target=opened.close, daemon=True)
            try:
                closer.start()
            except RuntimeError:  # Python 3.12.0 and 3.12.1 start no thread any more when a process ends
                self._close_here(opened)
            else:
                closer.join(_EXIT_SECONDS)
        with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError):
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(_EXIT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_EXIT_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    def _close_here(self, opened: Closable) -> None:
        """Close in this thread, for no longer than in one of its own, and whatever it raises."""

        timers: list[asyncio.TimerHandle] = []

        def give_up() -> None:
            self._giving_up = self._loop.create_task(_cancel_all())

        def has_closed() -> None:
            timers[0].cancel()  # what is closed next has its own time

        self._loop.call_soon_threadsafe(lambda: timers.append(self._loop.call_later(_EXIT_SECONDS, give_up)))
        try:
            opened.close()
        except Exception:
            logger.exception("closing %r at the end of the process failed", opened)
        self._loop.call_soon_threadsafe(has_closed)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


class _Process:
    """The portal of this process, if it has one."""

    lock = threading.Lock()
    portal: Portal | None = None


def portal() -> Portal:
    """The portal of this process, started if need be."""
    found = _Process.portal
    if found is None:
        with _Process.lock:
            found = _Process.portal
            if found is None:
                found = _Process.portal = Portal()
    return found


class Opened:
    """Something that opens connections in the background loop; a context manager. `_opened_by` has the process."""

    _opened_by: int | None = None

    def _portal(self) -> Portal:
        if self._opened_by not in (None, os.getpid()):
            raise RuntimeError(
                f"this {type(self).__name__} was opened before the process forked, and its connections are the "
                "parent's: open one in each process"
            )
        return portal()

    def open(self) -> Self:
        """Open the connections. Entering a ``with`` does the same."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connections; idempotent."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()


def _stop() -> None:
    found = _Process.portal
    if found is not None:
        try:
            found.stop()  # what is open is closed in the loop in which it was opened
        finally:
            _Process.portal = None


def _forget() -> None:
    """In a forked child: the thread of the parent is not here."""
    _Process.portal, _Process.lock = None, threading.Lock()


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
