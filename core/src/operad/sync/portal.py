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
from typing import Any, Self, TypeVar

from operad.errors import CallError, ErrorCode
from operad.registry.workers import Waiting

T = TypeVar("T")

logger = logging.getLogger("operad.sync")

_EXIT_SECONDS = 5.0


class Portal:
    """An event loop and its background thread. The function `portal` starts it when it is first needed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="operad.sync", daemon=True)
        self._open: weakref.WeakSet[Opened] = weakref.WeakSet()
        self._process = os.getpid()
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the background thread runs in this process; it does not in a forked child."""
        return self._process == os.getpid()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def keep(self, opened: Opened) -> None:
        """Close ``opened`` when the process ends, if the object still exists then."""
        self._open.add(opened)

    def forget(self, opened: Opened) -> None:
        """Do not close ``opened`` when the process ends, because it is already closed."""
        self._open.discard(opened)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, with the context variables of this thread, and return its result.

        An exception in this thread while it waits, such as Ctrl-C, cancels the coroutine.

        Raises:
            RuntimeError: this thread is that of the loop, which would wait for itself; this process is a forked
                child; or the process is ending.
            CallError: ``ABORTED`` if the coroutine was cancelled.
        """
        if not self.is_here:  # the wait would never end
            coroutine.close()
            raise RuntimeError(
                "this object was opened before the process forked and runs in the parent; open one in each process"
            )
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("operad.sync would wait for itself here; in an async handler use `await`")
        waiting = Waiting()
        try:
            future = waiting.start(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise RuntimeError("the process is ending; operad.sync accepts no more calls") from None
        try:
            return waiting.result(future)
        except concurrent.futures.CancelledError:
            raise CallError(ErrorCode.ABORTED, "the call was cancelled") from None
        except BaseException:
            future.cancel()  # no effect if it is done
            raise

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a plain function in the loop's thread, and return its result."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self.run(call())

    def soon(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Start the coroutine that ``make`` returns, without waiting for it; do nothing if the loop is closed."""
        if not self.is_here:
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(make()))

    def stop(self) -> None:
        """Close all open objects, then end the loop and the thread; wait at most 5 s for each of them."""
        for opened in tuple(self._open):
            try:
                asyncio.run_coroutine_threadsafe(opened.asynchronous.aclose(), self._loop).result(_EXIT_SECONDS)
            except Exception:
                logger.exception("closing %r at the end of the process failed", opened)
        with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError):
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(_EXIT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_EXIT_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


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
    """Return the portal of this process; the first call starts it."""
    found = _Process.portal
    if found is None:
        with _Process.lock:
            found = _Process.portal
            if found is None:
                found = _Process.portal = Portal()
    return found


class Opened:
    """The base of objects that open connections in the background loop; each is a context manager."""

    _opened_by: int | None = None
    asynchronous: Any
    """The asynchronous object behind this one, which opens and closes the connections."""

    def _portal(self) -> Portal:
        if self._opened_by not in (None, os.getpid()):
            raise RuntimeError(
                f"this {type(self).__name__} was opened before the process forked, and its connections are the "
                "parent's; open one in each process"
            )
        return portal()

    def open(self) -> Self:
        """Open the connections, and return this object; ``with`` calls this method."""
        raise NotImplementedError  # implemented by each subclass

    def close(self) -> None:
        """Close the connections; idempotent."""
        raise NotImplementedError  # implemented by each subclass

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
    """Forget the portal in a forked child, in which the thread of the parent does not exist."""
    _Process.portal, _Process.lock = None, threading.Lock()


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
