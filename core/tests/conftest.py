"""Every test of the core leaves nothing behind."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from operad_testing import HeldResources, assert_nothing_pending


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


@pytest.fixture
def standing_clock(monkeypatch: pytest.MonkeyPatch) -> float:
    """The time of day (epoch s) of deadlines, which stands still; timers run. However busy the machine is, what is given
    a short time begins in it."""
    now = time.time()
    monkeypatch.setattr("operad.deadlines._now", lambda: now)
    return now


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what says that a cast has failed."""
        if str(record.msg).startswith("a value cannot be cast ("):
            self.records.append(record)


_SLIPS = ("AttributeError", "IndexError", "KeyError", "NameError", "TypeError", "UnboundLocalError", "ValueError")


@pytest.fixture(autouse=True)
def _no_cast_fails() -> Iterator[None]:
    """A cast raises nothing, whatever is wrong with it: so that it went wrong shows in the log alone."""
    logger, kept = logging.getLogger("operad_schema"), _Kept()
    logger.addHandler(kept)
    yield
    logger.removeHandler(kept)
    assert not [record.getMessage() for record in kept.records if {*_SLIPS} & {*(record.args or ())}]
