"""How the command ends while a plain function, whose thread cannot be stopped, still runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from plugins.cli.tests.conftest import Run

OPERATIONS = """
import threading, time
from operad import operation

@operation(namespace="slow")
def endless(marker: str) -> int:
    open(marker, "w").close()
    while True:
        time.sleep(0.01)

def work(result: str) -> None:
    time.sleep(1)  # longer than the grace of plain functions
    open(result, "w").close()

@operation(namespace="slow")
def start(result: str) -> None:
    threading.Thread(target=work, args=[result], name="operad_mine").start()
"""
COMMAND = [sys.executable, "-m", "operad_cli.main", "call", "slow.endless"]


def ended(process: subprocess.Popen[str], number: int) -> tuple[int, str]:
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def wait_for(marker: Path, process: subprocess.Popen[str]) -> None:
    while not marker.exists():
        assert process.poll() is None


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_a_signal_ends_a_call_of_a_plain_function_that_goes_on(
    run: Run, tmp_path: Path, number: int, code: int
) -> None:
    marker = tmp_path / "began"
    with subprocess.Popen([*COMMAND, f"marker={marker}"], stderr=subprocess.PIPE, text=True) as process:
        wait_for(marker, process)
        got, err = ended(process, number)
    assert got == code
    assert "a plain function was still running" in err


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_sigterm_ends_a_background_job_of_a_script_in_which_sigint_is_ignored(run: Run, tmp_path: Path) -> None:
    marker = tmp_path / "began"
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [sys.executable, "-c", ignoring, *COMMAND, f"marker={marker}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_for(marker, process)
        os.kill(process.pid, signal.SIGINT)  # has no effect
        got, err = ended(process, signal.SIGTERM)
    assert got == 128 + signal.SIGTERM
    assert "a plain function was still running" in err


def test_a_call_of_a_plain_function_ends_at_its_timeout(run: Run, tmp_path: Path) -> None:
    arguments = [*COMMAND, f"marker={tmp_path / 'began'}", "--timeout", "0.5"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "TIMEOUT" in done.stderr
    assert "a plain function was still running" in done.stderr


def test_a_thread_of_the_application_is_waited_for_whatever_its_name_is(run: Run, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "operad_cli.main", "call", "slow.start", f"result={tmp_path / 'result'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "result").exists()
