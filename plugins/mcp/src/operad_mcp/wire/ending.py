"""Functions that end a program and all processes that it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys

MARK = "OPERAD_MCP_SERVER"
"""The environment variable that identifies the programs that a server started, even after they left its process
group and lost their parent. Linux only.
"""
_POLL = 0.01


def new_mark() -> str:
    """Return a new random value of `MARK` for one server."""
    return secrets.token_hex(16)


async def end_process(process: asyncio.SubprocessTransport, mark: str, patience: float) -> None:
    """Wait for a program to end by itself; then send SIGTERM, then SIGKILL, to its remaining processes.

    On Windows, only the program itself is terminated.

    Args:
        process: the program. Its input has ended, and it leads its process group.
        mark: the value of `MARK` in its environment.
        patience: the seconds to wait before SIGTERM, and again before SIGKILL.
    """
    tree = _Tree(process, mark)
    try:
        await tree.wait(patience)
    finally:
        tree.signal(signal.SIGTERM)
        try:
            await tree.wait(patience, all_of_it=True)
        finally:
            if sys.platform != "win32":
                tree.signal(signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                process.kill()
            try:
                await tree.wait(patience)
            finally:  # also if the caller is cancelled meanwhile: the pipes must be closed
                process.close()


class _Tree:
    """A program and the processes that it started."""

    def __init__(self, process: asyncio.SubprocessTransport, mark: str) -> None:
        self._process = process
        self._mark = f"{MARK}={mark}".encode()
        self._strays: set[int] = set()

    async def wait(self, patience: float, *, all_of_it: bool = False) -> None:
        """Wait up to ``patience`` seconds until the program has ended, or with ``all_of_it`` all its processes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while self._process.get_returncode() is None or (all_of_it and self._lives()):
            if loop.time() >= deadline:
                return
            await asyncio.sleep(_POLL)

    def signal(self, sign: signal.Signals) -> None:
        """Send a signal to the program's process group, and to its processes that have left the group.

        On Windows, terminate the program instead.
        """
        if sys.platform == "win32":
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            return
        self._strays = self._marked()
        self._group(sign)
        for pid in self._strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, sign)

    def _lives(self) -> bool:
        if sys.platform == "win32":
            return False
        self._strays = {pid for pid in self._strays if _environment(pid).find(self._mark) >= 0}
        return self._group(0) or bool(self._strays)

    def _group(self, sign: int) -> bool:
        """Send a signal to the process group, whose id is the program's pid; return True if it had a process."""
        try:
            os.killpg(self._process.get_pid(), sign)
        except (ProcessLookupError, PermissionError):  # no process, only zombies, or no permission
            return False
        return True

    def _marked(self) -> set[int]:
        """Return the processes with this server's mark that have left its group."""
        if sys.platform != "linux":
            return set()
        others = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {
            os.getpid(),
            self._process.get_pid(),
        }
        return {pid for pid in others if self._mark in _environment(pid)}


def _environment(pid: int) -> bytes:
    """Return the initial environment of a process; empty if it has ended, is a zombie, or is another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""
