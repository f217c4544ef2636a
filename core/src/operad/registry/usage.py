"""The calls of a source that are in progress: a source that is replaced is closed after them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from operad.subscriptions import close

T = TypeVar("T")


class Usage:
    """Counts the calls of a source that are in progress."""

    def __init__(self) -> None:
        self._running = 0
        self._ended = asyncio.Event()

    def __enter__(self) -> None:
        self._running += 1
        self._ended.clear()

    def __exit__(self, *_: object) -> None:
        self._running -= 1
        if not self._running:
            self._ended.set()

    def counted(self, function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        """Return a function that counts while ``function`` runs."""

        async def call(*args: Any) -> T:
            with self:
                return await function(*args)

        return call

    async def items(self, items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """Yield the items of a stream, which counts until it is closed."""
        with self:
            try:
                async for item in items:
                    yield item
            finally:
                await close(items)

    async def end(self, seconds: float) -> None:
        """Wait until no call is in progress, but not longer than ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._running:
                    await self._ended.wait()
