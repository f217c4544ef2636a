"""A small run of the chaos (see calls_chaos.py): the promises hold while processes die, freeze, and sockets are cut."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = os.environ.get("OPERAD_CHAOS_CALLS")


def run(over: str, calls: str) -> None:
    script = Path(__file__).with_name("calls_chaos.py")
    # How late a call may end is the full run's to judge: a test machine may be busy with anything.
    command = [sys.executable, str(script), "--over", over, "--calls", calls, "--overrun-ms", "30000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert report["outcomes"]["result"] > 0
    assert sum(report["outcomes"].values()) == int(calls)


def test_calls_end_once_whatever_breaks():
    """Every call ends once, no mutation runs twice, nothing is pending afterwards."""
    run("hub", CALLS or "1500")


@pytest.mark.long
@pytest.mark.parametrize("over", ["hub", "nats", "redis"])
def test_ten_thousand_calls_end_once_whatever_breaks(over: str):
    """The same at length, and over each transport that is no part of this process."""
    run(over, CALLS or "10000")
