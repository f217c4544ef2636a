"""The cancellation of tasks of nats-py, which may swallow it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

_PATIENCE = 0.1


async def ended(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks until they have ended, and ignore their exceptions.

    They are cancelled repeatedly. In Python 3.11, `asyncio.wait_for` loses a cancellation that arrives together
    with its result, and nats-py would then try to connect forever.
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
