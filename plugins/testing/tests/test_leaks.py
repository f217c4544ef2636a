"""`assert_nothing_pending` names what a test left behind."""

from __future__ import annotations

import asyncio

import pytest

from operad.testing import assert_nothing_pending


async def test_a_timer_that_is_left_is_named() -> None:
    def later() -> None: ...

    timer = asyncio.get_running_loop().call_later(3600, later)
    with pytest.raises(AssertionError, match=r"timer .*later"):
        await assert_nothing_pending(grace=0.05)
    timer.cancel()
    await assert_nothing_pending()


async def test_a_task_that_is_left_is_named() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(forever())
    await asyncio.sleep(0)
    with pytest.raises(AssertionError, match=r"task .*forever"):
        await assert_nothing_pending(grace=0.05)
    task.cancel()
    await asyncio.wait([task])
    await assert_nothing_pending()
