"""Running requests: those that never wait one after the other in one task, each other one in a task of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, copy_context
from sys import getrefcount
from typing import Any

from operad.calls.served import Served

_NONE = object()


class Running:
    """Begins requests in the order in which they came, in the next turn of the event loop.

    A task of its own for each request costs as much as all else that is done for one that never waits. So one
    task begins those that have come. The first that waits keeps it, and the next task begins the rest: a handler
    never meets the cancellation, or the context variables, of another one.
    """

    def __init__(self) -> None:
        self._come: deque[tuple[Served, Coroutine[Any, Any, None], Context]] = deque()
        """Each with the context variables of whoever brought it."""
        self._beginning: asyncio.Task[None] | None = None
        """Begins what has come, and has not waited yet."""

    async def begun(self) -> None:
        """Wait until all that have come have begun."""
        while self._come:  # noqa: ASYNC110  # the next turn of the event loop begins them
            await asyncio.sleep(0)

    def add(self, served: Served, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` for a request, unless it is over before it begins."""
        self._come.append((served, work, copy_context()))
        if self._beginning is None:
            self._begin()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        served, _, context = self._come[0]
        # A name is for who debugs, and spares asyncio to make one up. Task factories may know nothing of contexts.
        task = context.run(loop.create_task, self._run(), name=served.operation_id)
        self._beginning = task
        loop.call_soon(self._look, task)

    def _look(self, task: asyncio.Task[None]) -> None:
        """Right after the first step of a task: if it is there still, it waits."""
        if self._beginning is task:
            self._go_on()

    def _go_on(self) -> None:
        self._beginning = None
        if self._come:
            self._begin()

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        held = getrefcount(task)
        try:
            while self._come:
                served, work, _ = self._come.popleft()
                if served.is_over:
                    work.close()
                else:
                    served.task = task
                    task.set_name(served.operation_id)
                    await work
                    served.task = None
                    if _is_marked(task) or getrefcount(task) > held:  # or kept by somebody who may cancel it
                        return
                if self._beginning is not task or (self._come and not _is_in(self._come[0][2])):
                    return
        finally:
            if self._beginning is task:
                self._go_on()


def _is_marked(task: asyncio.Task[None]) -> bool:
    """Whether something is to happen to a task: it is cancelled, or somebody is to be told of its end."""
    if task.cancelling() or getattr(task, "_callbacks", None):  # names that asyncio does not promise
        return True
    return getattr(task, "_must_cancel", False)  # before Python 3.13 also where the cancellation was taken back


def _is_in(context: Context) -> bool:
    """Whether the context variables are those of ``context``: the same objects, whatever they take for equal."""
    now = copy_context()
    if len(now) != len(context):
        return False
    return not now or all(now.get(var, _NONE) is value for var, value in context.items())
