"""Worker threads, in which plain ``def`` handlers run, and the calls that a handler makes from its thread.

A thread cannot be stopped: if a call ends early, its function continues. The function can check
``context.cancelled``. Its calls through ``context.call_sync`` are cancelled, and later ones are rejected.

Plain functions that call plain functions cannot block each other: when every thread of the pool is taken, a nested
function runs in the thread that waits for its call (`Waiting`), which has nothing else to do.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar

from operad.context import worker_threads
from operad.errors import CallError, ErrorCode

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from operad.context import OperationContext

T = TypeVar("T")

_END: Any = object()

_thread = threading.local()
"""Has ``is_worker`` in the threads of a pool."""
_waiting: contextvars.ContextVar[Waiting | None] = contextvars.ContextVar("operad_waiting", default=None)
"""The worker thread that waits for the calls that are made in a context."""


class _Job:
    """A function that two threads may run; the first one does."""

    __slots__ = ("_claim", "_function", "future")

    def __init__(self, function: Callable[[], Any]) -> None:
        from concurrent.futures import Future

        self.future: Future[Any] = Future()
        self._function = function
        self._claim = threading.Lock()

    def __call__(self) -> None:
        if not self._claim.acquire(blocking=False) or not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._function())
        except BaseException as error:  # noqa: BLE001  # the future carries it, as that of a pool does
            self.future.set_exception(error)


class Waiting:
    """A thread that waits for a coroutine; a waiting worker thread runs the plain functions of the coroutine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_worker = self._is_idle = getattr(_thread, "is_worker", False)
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def start(self, coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T]:
        """Start a coroutine in an event loop; return its future. Raises `RuntimeError` if the loop is closed."""
        token = _waiting.set(self if self._is_worker else None)
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, loop)
        finally:
            _waiting.reset(token)

    def result(self, future: Future[T]) -> T:
        """Wait in this thread until the coroutine has ended, and return its result or raise its exception."""
        if not self._is_worker:
            return future.result()
        future.add_done_callback(self._jobs.put)  # the future in the queue marks the end
        while (job := self._jobs.get()) is not future:
            job()
            with self._lock:
                self._is_idle = True
        with self._lock:
            self._is_idle = False
        while not self._jobs.empty():  # calls of tasks that the coroutine left behind
            self._jobs.get()()
        result: T = future.result()
        return result

    def offer(self, job: _Job) -> bool:
        """Give the thread a job. Return False if the thread is busy; then also queue the job in the pool."""
        with self._lock:
            was_idle, self._is_idle = self._is_idle, False
            self._jobs.put(job)
            return was_idle


class WorkerCall:
    """A call whose handler runs in a worker thread."""

    __slots__ = ("_lock", "_loop", "_nested", "cancelled", "context")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._nested: set[Future[Any]] = set()
        self.cancelled = False
        self.context = contextvars.copy_context()
        """The context variables of the call, which a generator keeps between its steps."""

    def cancel(self) -> None:
        """Cancel the calls that the handler has made. The handler itself continues and can check `cancelled`."""
        with self._lock:
            self.cancelled = True
            nested = tuple(self._nested)
        for future in nested:
            future.cancel()

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop, wait for it in this thread, and return its result.

        Raises:
            CallError: ``ABORTED`` if the call of this handler has ended.
            RuntimeError: the thread runs an event loop, which the wait would block.
        """
        from concurrent.futures import CancelledError

        waiting = Waiting()
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # as expected in a worker thread
            pass
        else:
            coroutine.close()
            raise RuntimeError("call_sync would block this event loop; use `await context.env[id](input)`")
        with self._lock:
            future = self._start(coroutine, waiting)
            self._nested.add(future)
        try:
            return waiting.result(future)
        except CancelledError:
            raise _over() from None
        finally:
            with self._lock:
                self._nested.discard(future)

    def soon(self, callback: Callable[[T], None], argument: T) -> None:
        """Call a function in the event loop, from any thread; do nothing if the loop is closed."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, argument)

    def _start(self, coroutine: Coroutine[Any, Any, T], waiting: Waiting) -> Future[T]:
        if not self.cancelled:
            try:
                return waiting.start(coroutine, self._loop)
            except RuntimeError:  # the loop is closed
                pass
        coroutine.close()
        raise _over()


def _over() -> CallError:
    return CallError(ErrorCode.ABORTED, "the call of this handler has ended")


class Workers:
    """A bounded pool of threads, made at the first use.

    Args:
        size: the number of functions that run at the same time. Raises `ValueError` if it is below 1.
    """

    __slots__ = ("_load", "_lock", "_pool", "_size")

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"max_threads: expected 1 or more, got {size}")
        self._size = size
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._load = 0
        """The number of functions that the pool runs or has queued."""

    async def run(self, call: OperationContext, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function of ``call`` in a thread and return its result. A cancellation only ends the wait."""
        worker: Any = call.worker
        if worker is None:
            worker = call.worker = WorkerCall()
        job = _Job(partial(worker.context.run, _body, function, args))
        waiting = _waiting.get()
        if waiting is None or self._load < self._size or not waiting.offer(job):
            self._submit(job)
        try:
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            worker.cancel()
            raise

    def _submit(self, job: _Job) -> None:
        pool = self._pool
        if pool is None:
            from concurrent.futures import ThreadPoolExecutor

            pool = self._pool = ThreadPoolExecutor(self._size, "operad", initializer=_mark)
        with self._lock:
            self._load += 1
        pool.submit(job).add_done_callback(partial(self._submitted, job))

    def _submitted(self, job: _Job, of_pool: Future[None]) -> None:
        with self._lock:
            self._load -= 1
        if of_pool.cancelled():  # the pool was closed before it had a thread
            job.future.cancel()

    async def items(
        self, call: OperationContext, generator: GeneratorType[Any, Any, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield the items of a plain generator, whose steps run in threads."""
        try:
            while (item := await self.run(call, _step, call, generator)) is not _END:
                yield item
        finally:
            if not generator.gi_running:  # else the thread that runs it closes it after its step
                await self.run(call, _close, generator)

    def close(self) -> None:
        """Cancel queued functions and let the threads end, without waiting for functions that still run."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _mark() -> None:
    _thread.is_worker = True
    worker_threads.add(threading.current_thread())


def _body(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return function(*args)
    except StopIteration as error:  # a future cannot carry it: the caller would wait forever
        raise RuntimeError("the handler raised StopIteration; raise another exception, or return") from error


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
