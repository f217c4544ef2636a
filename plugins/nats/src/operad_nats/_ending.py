"""Cancel the tasks of nats-py and wait for their end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

_PATIENCE = 0.1


async def ended(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks until they have ended, and ignore what they raised.

    Once is not enough: `asyncio.wait_for`, in which nats-py waits, loses a cancellation that comes in the turn of
    the event loop in which it has its result (Python 3.11), and nats-py would try to connect forever.
    """
    tasks = set(tasks)
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_PATIENCE)
    for task in tasks:
        if not task.cancelled():
            task.exception()
