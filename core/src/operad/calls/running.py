"""Running requests: those that never wait one after the other in one task, each other one in a task of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, copy_context
from typing import Any

from operad.calls.served import Served


class Running:
    """Begins requests in the order in which they came, in the next turn of the event loop.

    A task of its own for each request costs as much as all else that is done for one that never waits. So one
    task begins those that have come. The first that waits keeps it, and the next task begins the rest: a handler
    never meets the cancellation, or the context variables, of another one.
    """

    def __init__(self) -> None:
        self._come: deque[tuple[Served, Coroutine[Any, Any, None]]] = deque()
        self._beginning: asyncio.Task[None] | None = None
        """Begins what has come, and has not waited yet."""
        self._begun: Served
        """What it began last."""
        self._context: Context
        """The context variables of whoever brought what has come."""

    async def begun(self) -> None:
        """Wait until all that have come have begun."""
        while self._come:  # noqa: ASYNC110  # the next turn of the event loop begins them
            await asyncio.sleep(0)

    def add(self, served: Served, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` for a request, unless it is over before it begins."""
        self._come.append((served, work))
        if self._beginning is None:
            self._context = copy_context()
            self._begin(served)

    def _begin(self, served: Served) -> None:
        loop = asyncio.get_running_loop()
        # A name is for who debugs, and spares asyncio to make one up.
        task = loop.create_task(self._run(), name=served.operation_id, context=self._context.copy())
        self._beginning, self._begun = task, served
        loop.call_soon(self._look)

    def _look(self) -> None:
        """Right after the first step of a task: if it is there still, it waits."""
        if self._beginning is not None:
            self._beginning.set_name(self._begun.operation_id)
            self._go_on()

    def _go_on(self) -> None:
        self._beginning = None
        if self._come:
            self._begin(self._come[0][0])

    async def _run(self) -> None:
        task, before = asyncio.current_task(), self._context
        assert task is not None
        try:
            while self._come:
                served, work = self._come.popleft()
                if served.is_over:
                    work.close()
                    continue
                served.task, self._begun = task, served
                await work
                if self._beginning is not task or task.cancelling() or not _is_as(before):
                    return
        finally:
            if self._beginning is task:
                self._go_on()


def _is_as(before: Context) -> bool:
    """Whether the context variables are what they were."""
    try:
        return copy_context() == before
    except Exception:  # noqa: BLE001  # what a handler has set cannot be compared
        return False
