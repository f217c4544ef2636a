"""Signals that ask a service to stop."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from operad import OperadError
from operad_auth.http import until_stopped


@pytest.fixture(params=["signals of the loop", "as on Windows"])
async def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> asyncio.AbstractEventLoop:
    running = asyncio.get_running_loop()

    def has_none(*_: Any) -> None:
        raise NotImplementedError

    if request.param == "as on Windows":
        monkeypatch.setattr(running, "add_signal_handler", has_none)
    return running


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize(
    "own", [signal.SIG_DFL, signal.SIG_IGN, lambda *_: None], ids=["default", "ignored", "own"]
)
async def test_a_signal_asks_for_a_drain_and_what_was_there_before_is_there_again(own: Any) -> None:
    before = signal.signal(signal.SIGTERM, own)
    try:
        with until_stopped() as stopped:
            assert not stopped.is_set()
            signal.raise_signal(signal.SIGTERM)
            await stopped.wait()
        assert signal.getsignal(signal.SIGTERM) == own
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("loop")
async def test_a_second_signal_ends_a_drain_that_takes_too_long() -> None:
    async def drain() -> None:
        with until_stopped() as stopped:
            signal.raise_signal(signal.SIGINT)
            await stopped.wait()
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)

    with pytest.raises(OperadError, match="second signal"):
        await drain()
