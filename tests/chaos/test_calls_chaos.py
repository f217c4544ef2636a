"""A small run of the chaos (see calls_chaos.py): the promises hold while processes die, freeze, and sockets are cut."""

import os

import pytest

from tests.chaos.calls_chaos import Chaos

CALLS = os.environ.get("OPERAD_CHAOS_CALLS")


@pytest.mark.parametrize(
    ("over", "calls"),
    [
        ("hub", 1_500),
        *(pytest.param(over, 10_000, marks=pytest.mark.long) for over in ("hub", "nats", "redis")),
    ],
)
async def test_calls_end_once_whatever_breaks(over: str, calls: int):
    """Every call ends once, no mutation runs twice, nothing is pending afterwards, and memory is flat."""
    report = await Chaos(over, count := int(CALLS or calls)).run()
    outcomes = report["outcomes"]
    assert report["ended_once"], report
    assert (sum(outcomes.values()), outcomes["result"] > 0) == (count, True)
    assert [outcome for outcome in outcomes if outcome.startswith("BROKEN")] == []
    assert report["mutations_run_twice"] == []
    assert not any(report["pending_afterwards"].values()), report
    assert report["worst_overrun"] < 30, "seconds: a test machine may be busy with anything"
    assert report["memory_growth"] < 64 * 2**20, report
