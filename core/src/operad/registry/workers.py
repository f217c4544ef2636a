"""Worker threads, in which plain ``def`` handlers run, and the calls that a handler makes from its thread.

A thread cannot be stopped: if a call ends early, its function runs on. The function can check
``context.cancelled``. Its calls through ``context.call_sync`` are cancelled, and later ones are rejected.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar

from operad.errors import CallError, ErrorCode

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from operad.context import OperationContext

T = TypeVar("T")

_END: Any = object()


class WorkerCall:
    """A call whose handler runs in a worker thread."""

    __slots__ = ("_lock", "_loop", "_nested", "cancelled", "context")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._nested: set[Future[Any]] = set()
        self.cancelled = False
        self.context = contextvars.copy_context()
        """One for the whole call, so that a generator keeps its context variables."""

    def cancel(self) -> None:
        """Cancel the calls of the handler. The handler itself can only check `cancelled`."""
        with self._lock:
            self.cancelled = True
            nested = tuple(self._nested)
        for future in nested:
            future.cancel()

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop; wait for it in the worker thread.

        Raises:
            CallError: ``ABORTED`` if the call of this handler is over.
            RuntimeError: when called in an event loop, which would wait for itself.
        """
        from concurrent.futures import CancelledError

        try:
            asyncio.get_running_loop()
        except RuntimeError:  # as it has to be in a worker thread
            pass
        else:
            coroutine.close()
            raise RuntimeError("call_sync would block this event loop; use `await context.env[id](input)`")
        with self._lock:
            future = self._start(coroutine)
            self._nested.add(future)
        try:
            return future.result()
        except CancelledError:
            raise _over() from None
        finally:
            with self._lock:
                self._nested.discard(future)

    def soon(self, callback: Callable[[T], None], argument: T) -> None:
        """Call a function in the event loop, unless that is closed; from any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, argument)

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        if not self.cancelled:
            try:
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            except RuntimeError:  # the loop is closed
                pass
        coroutine.close()
        raise _over()


def _over() -> CallError:
    return CallError(ErrorCode.ABORTED, "the call that this handler serves is over")


class Workers:
    """A bounded pool of threads, made at the first use.

    Args:
        size: how many functions run at once.
    """

    __slots__ = ("_pool", "_size")

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"max_threads: expected 1 or more, got {size}")
        self._size = size
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, call: OperationContext, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in a thread and return its result. A cancellation ends the wait, not the thread."""
        pool = self._pool
        if pool is None:
            from concurrent.futures import ThreadPoolExecutor

            pool = self._pool = ThreadPoolExecutor(self._size, "operad")
        worker: Any = call.worker
        if worker is None:
            worker = call.worker = WorkerCall()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(pool, worker.context.run, _body, function, args)
        except asyncio.CancelledError:
            worker.cancel()
            raise

    async def items(
        self, call: OperationContext, generator: GeneratorType[Any, Any, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield the items of a generator whose steps run in threads."""
        try:
            while (item := await self.run(call, _step, call, generator)) is not _END:
                yield item
        finally:
            if not generator.gi_running:  # else the thread that runs it closes it after its step
                await self.run(call, _close, generator)

    def close(self) -> None:
        """Let the threads end, without waiting for those that still run."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _body(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return function(*args)
    except StopIteration as error:  # a future cannot carry it: the caller would wait forever
        raise RuntimeError("the handler raised StopIteration") from error


def _step(call: OperationContext, generator: GeneratorType[Any, Any, Any]) -> Any:
    item = next(generator, _END)
    if call.cancelled:
        _close(generator)
    return item


def _close(generator: GeneratorType[Any, Any, Any]) -> None:
    try:
        generator.close()
    except ValueError:
        if not generator.gi_running:  # another thread is closing it
            raise
