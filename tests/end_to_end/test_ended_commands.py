"""A command that is ended by a signal leaves nothing of what its sources started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

HOSTILE = Path(__file__).parents[2] / "plugins/mcp/tests/mcp_hostile_server.py"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_a_call_that_is_ended_by_a_signal_ends_the_servers_that_it_started(tmp_path: Path) -> None:
    (tmp_path / "operad.toml").write_text(
        f'[sources.h]\ntype = "mcp"\ncommand = {sys.executable!r}\nmode = "legacy"\nshutdown_timeout = 0.3\n'
        f'args = [{str(HOSTILE)!r}, "stubborn", "children"]\n'
    )
    command = [sys.executable, "-m", "operad_cli.main", "call", "h.hang", "--timeout", "60"]
    endings = {
        ending: subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(ending) != signal.SIG_IGN  # as under nohup: the command ignores it, too
    }
    family: list[psutil.Process] = []
    try:
        until = time.monotonic() + 60
        while len(family) < 3 * len(endings):  # the server, and two that it started
            assert time.monotonic() < until
            time.sleep(0.05)
            family = [
                child for each in endings.values() for child in psutil.Process(each.pid).children(recursive=True)
            ]
        time.sleep(0.5)  # until the calls are under way
        for ending, each in endings.items():
            each.send_signal(ending)
        for ending, each in endings.items():
            assert each.wait(60) == 128 + ending
    finally:
        for each in endings.values():
            each.kill()
            each.wait()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
