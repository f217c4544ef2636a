"""Every test of the core leaves nothing behind."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator

import pytest

from operad.testing import HeldResources, assert_nothing_pending


@pytest.fixture
async def _quiet_loop() -> AsyncIterator[None]:
    before = HeldResources.now()
    yield
    await assert_nothing_pending(before)


@pytest.fixture(autouse=True)
def _nothing_pending(request: pytest.FixtureRequest) -> Iterator[None]:
    """An asynchronous test leaves no task, timer, thread, socket or process; another one no thread or process."""
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        request.getfixturevalue("_quiet_loop")
        yield
        return
    before = HeldResources.now()
    yield
    assert not [word for word in HeldResources.now().left(before) if "socket" not in word]
