"""Running requests: those that never wait one after the other in one task, each other one in a task of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, copy_context
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

from operad_calls.serving.served import Served

_NONE = object()


class Running:
    """Begins requests in the order in which they came, in the next turn of the event loop.

    A task of its own for each request costs as much as all else that is done for one that never waits. So one
    task begins those that have come. The first that waits keeps it, and the rest have tasks of their own, for they
    may wait as well: a handler never meets the cancellation, or the context variables, of another one.
    """

    def __init__(self) -> None:
        self._come: deque[tuple[Served, Coroutine[Any, Any, None], Context]] = deque()
        """Each with the context variables of whoever brought it."""
        self._beginning: asyncio.Task[None] | None = None
        """Begins what has come, and has not waited yet."""

    async def assigned(self) -> None:
        """Wait until each that has come has a task, or is over."""
        while self._come:  # noqa: ASYNC110  # in the next turn of the event loop they have
            await asyncio.sleep(0)

    def add(self, served: Served, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` for a request, unless it is over before it begins."""
        context = copy_context()
        self._come.append((served, work, context))
        if self._beginning is None:
            self._beginning = _task(served, self._run(), context)
            asyncio.get_running_loop().call_soon(self._look, self._beginning)

    def _look(self, task: asyncio.Task[None]) -> None:
        """Right after the first step of a task: if it is there still, it waits."""
        if self._beginning is task:
            self._begin_the_rest()

    def _begin_the_rest(self) -> None:
        self._beginning = None
        while self._come:
            served, work, context = self._come.popleft()
            if served.is_over:
                work.close()
            else:
                served.task = _task(served, work, context)

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        held, weakly = getrefcount(task), getweakrefcount(task)
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
                    # Who keeps it may cancel it later, or find there what another request has left.
                    if _is_marked(task) or getrefcount(task) > held or getweakrefcount(task) > weakly:
                        return
                if self._beginning is not task or (self._come and not _is_in(self._come[0][2])):
                    return
        finally:
            if self._beginning is task:
                self._begin_the_rest()


def _task(served: Served, work: Coroutine[Any, Any, None], context: Context) -> asyncio.Task[None]:
    # A name is for who debugs, and spares asyncio to make one up. Task factories may know nothing of contexts.
    return context.run(asyncio.get_running_loop().create_task, work, name=served.operation_id)


def _is_marked(task: asyncio.Task[None]) -> bool:
    """Whether something is to happen to a task: it is cancelled, or somebody is to be told of its end."""
    return is_cancelled(task) or bool(getattr(task, "_callbacks", None))  # a name that asyncio does not promise


def is_cancelled(task: asyncio.Task[Any]) -> bool:
    """Whether a running task is to be cancelled at its next wait, or was cancelled before."""
    # Another such name: before Python 3.13 it is set also where the cancellation was taken back.
    return bool(task.cancelling()) or getattr(task, "_must_cancel", False)


def _is_in(context: Context) -> bool:
    """Whether the context variables are those of ``context``: the same objects, whatever they take for equal."""
    now = copy_context()
    if len(now) != len(context):
        return False
    return not now or all(now.get(var, _NONE) is value for var, value in context.items())
