"""Streams for programs without an event loop: blocking iterators over asynchronous ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Self, TypeVar

from operad.subscriptions import close
from operad.sync.portal import Portal

T = TypeVar("T")


class Subscription(Generic[T]):
    """A stream that can be iterated in any thread.

    Leaving a ``for`` loop closes the stream without waiting; ``close()`` and ``with`` wait until it is closed.
    """

    def __init__(self, portal: Portal, items: Any) -> None:
        self._portal, self._items = portal, items
        self._closed = False

    def __iter__(self) -> Iterator[T]:
        return _Loop(self)  # only the loop holds it: leaving the loop deletes it, which closes the stream

    def __next__(self) -> T:
        if self._closed:
            raise StopIteration
        try:
            item: T = self._portal.run(_next(self._items))
        except StopAsyncIteration:
            self._closed = True
            raise StopIteration from None
        except BaseException:
            self.close()
            raise
        return item

    def close(self) -> None:
        """Close the stream, and wait until it is closed. Idempotent; does nothing in a forked child."""
        if not self._closed:
            self._closed = True
            if self._portal.is_here:
                self._portal.run(close(self._items))

    def close_soon(self) -> None:
        """Close the stream without waiting until it is closed."""
        if not self._closed:
            self._closed = True
            items = self._items
            self._portal.soon(lambda: close(items))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Loop(Iterator[T]):
    """The iterator of one ``for``."""

    def __init__(self, subscription: Subscription[T]) -> None:
        self._subscription = subscription

    def __next__(self) -> T:
        return next(self._subscription)

    def __del__(self) -> None:
        self._subscription.close_soon()


async def _next(items: Any) -> Any:
    return await anext(items)
