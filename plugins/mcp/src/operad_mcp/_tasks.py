"""Tools that run as tasks (2025-11-25): the server answers at once, and is asked until there is a result."""

from __future__ import annotations

import asyncio
from typing import Any

from operad import CallError, ErrorCode, OperationContext
from operad_mcp._items import Json, Maker
from operad_mcp._live import Live

_POLL = (0.05, 1.0, 30.0)
"""Seconds between two questions: the least, what holds where the server does not say, and the most."""
_AT_WORK = ("working", "input_required", "submitted")


async def run_task(maker: Maker, params: Json, context: OperationContext, *, name: str) -> tuple[Any, Live]:
    """Call a tool as a task; its raw result, and the connection that it came by.

    A cancelled call cancels the task. What the server asks for on the way comes with the result's request.

    Raises:
        CallError: as `Maker.ask`.
    """
    raw, live = await maker.ask("tools/call", {**params, "task": {}}, context, name=name, safe=False)
    task = raw.get("task") if isinstance(raw, dict) else None
    if not isinstance(task, dict) or not isinstance(task.get("taskId"), str):
        return raw, live  # it answered the call itself
    known = {"taskId": task["taskId"]}
    try:
        while task.get("status") == "working":
            await asyncio.sleep(_pause(task))
            found, _ = await maker.ask("tasks/get", known, context, name=name)
            if not isinstance(found, dict) or found.get("status") not in (
                *_AT_WORK,
                "completed",
                "failed",
                "cancelled",
            ):
                message = f"{maker.connection.name}: the state of the task of {name} is not understood"
                raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
            task = found
        return await maker.ask("tasks/result", known, context, name=name)
    except BaseException:
        if task.get("status") in _AT_WORK:
            await maker.connection.farewell("tasks/cancel", known)
        raise


def _pause(task: Json) -> float:
    least, usual, most = _POLL
    wanted = task.get("pollInterval")
    seconds = wanted / 1000 if isinstance(wanted, (int, float)) and not isinstance(wanted, bool) else usual
    return min(max(seconds, least), most)
