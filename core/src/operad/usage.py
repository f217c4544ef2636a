"""Counters of the calls in progress, and lifespans, which end after the calls that use their state."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

from operad.errors import SourceError
from operad.subscriptions import close
from operad.words import in_words

T = TypeVar("T")

LifespanFunction = Callable[[Any], AbstractAsyncContextManager[Any]]
"""``lifespan(registry)`` opens resources that handlers share, yields them as their state, and closes them."""
LAST_CALLS = 10.0
"""The maximum time, in seconds, that a lifespan waits for calls in progress before it ends."""

logger = logging.getLogger("operad")


class Usage:
    """A counter of the calls of a source that are in progress; each call enters it as a context manager."""

    lifespan: Lifespan | None = None
    """The lifespan whose state the calls receive: the source's, else the registry's; ``None`` without either."""
    _outer: Usage | None = None

    def __init__(self) -> None:
        self._running = 0
        self._ended = asyncio.Event()

    def within(self, outer: Usage | None) -> None:
        """Also count calls in ``outer``, and use its lifespan by default; do nothing if ``outer`` is ``None``."""
        if outer is not None:
            self._outer, self.lifespan = outer, self.lifespan or outer.lifespan

    def __enter__(self) -> None:
        self._running += 1
        if self._outer is not None:
            self._outer.__enter__()

    def __exit__(self, *_: object) -> None:
        self._running -= 1
        if not self._running:
            self._ended.set()
        if self._outer is not None:
            self._outer.__exit__()

    def counted(self, function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        """Return a wrapper of ``function`` whose calls are counted as calls in progress."""

        if self._outer is not None:
            function = self._outer.counted(function)

        async def call(*args: Any) -> T:  # without `with`, which costs two calls
            self._running += 1
            try:
                return await function(*args)
            finally:
                self._running -= 1
                if not self._running:
                    self._ended.set()

        return call

    async def items(self, items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """Yield the items of a stream, which is counted as a call in progress until it is closed."""
        with self:
            try:
                async for item in items:
                    yield item
            finally:
                await close(items)

    async def end(self, seconds: float) -> None:
        """Wait until no call is in progress, for at most ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._running:
                    self._ended.clear()
                    await self._ended.wait()


class Lifespan(Usage):
    """A running lifespan function: it starts before the calls that use its state, and ends after them.

    It runs in a task of its own, because task groups and cancel scopes must be left by the task that entered them.
    """

    def __init__(self, function: LifespanFunction, owner: str) -> None:
        super().__init__()
        self.lifespan = self
        undecorated: Any = function
        self._function = asynccontextmanager(undecorated) if inspect.isasyncgenfunction(function) else function
        self._owner = owner
        self._leave = asyncio.Event()
        self._started: asyncio.Future[Any] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> Any:
        """The value that the function yielded. Raises `RuntimeError` before its start and after its end."""
        if self._task is None or self._started is None or not self._started.done():
            raise RuntimeError(f"the lifespan of {self._owner} is not running; enter it: `async with registry`")
        return self._started.result()

    async def start(self, registry: Any) -> None:
        """Enter the function's context, if it is not entered yet. Raises `SourceError` if the function fails."""
        if self._task is not None:
            return
        self._leave = asyncio.Event()  # of this event loop
        self._started = started = asyncio.get_running_loop().create_future()
        self._task = task = asyncio.create_task(self._run(registry, started))
        try:
            await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not started.done():
                task.cancel()
                self._task = None
        if not started.done():
            await task

    async def _run(self, registry: Any, started: asyncio.Future[Any]) -> None:
        try:
            async with self._function(registry) as state:
                started.set_result(state)
                await self._leave.wait()
        except Exception as error:
            when = "shutdown" if started.done() else "start"
            raise SourceError(f"{self._owner}: its lifespan raised {in_words(error)} at {when}") from error

    async def aclose(self, seconds: float = LAST_CALLS) -> None:
        """End the lifespan when no call runs or after ``seconds``; idempotent. Raises `SourceError` on failure."""
        if self._task is None:
            return
        await self.end(seconds)
        if self._running:
            logger.warning(
                "the lifespan of %s ends after %g s; calls in progress: %d", self._owner, seconds, self._running
            )
        self._leave.set()
        task, self._task = self._task, None
        if task is not None:
            await task
