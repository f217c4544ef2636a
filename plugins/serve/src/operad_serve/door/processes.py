"""Processes that serve, and the supervisor that starts them: ``operad serve --workers`` and ``--reload``.

The supervisor serves nothing itself. Each process runs the whole command again. With ``--workers`` they share the
supervisor's sockets; with ``--reload`` there is one process, which is replaced when a file changes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from pathlib import Path
from socket import socket
from typing import Any

import attrs

from operad_auth.http import tell_manager
from operad_serve.door.messages import report

_spawn = multiprocessing.get_context("spawn")
_TICK = 0.3
"""Seconds between two checks of signals and files."""
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


@attrs.frozen
class Share:
    """The data that a process gets from its supervisor."""

    sockets: Mapping[str, socket]
    """The bound sockets, by name: ``http`` and ``health``."""
    ready: Event
    """An event that the process sets when it is ready to serve."""
    is_first: bool
    """Whether the process reports to the user. The others would report the same."""


_share: Share | None = None


def share() -> Share | None:
    """Return the data that this process received from its supervisor; None if it has no supervisor."""
    return _share


def _work(command: Callable[[], Any], given: Share) -> None:
    """Run a command in a process of its own, until the supervisor ends."""
    global _share
    _share = given
    os.environ.pop("NOTIFY_SOCKET", None)  # the supervisor talks to the service manager
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # Ctrl-C reaches the supervisor alone, which stops its processes
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
    command()


class Supervisor:
    """The parent of several processes: starts them, and stops them on SIGINT or SIGTERM.

    Args:
        command: the function that each process runs. It must be importable from its module.
        sockets: the sockets that the processes share, by name; default: no sockets.
    """

    def __init__(self, command: Callable[[], Any], sockets: Mapping[str, socket] | None = None) -> None:
        self._command = command
        self._sockets = sockets or {}
        self._signals = 0

    def run(self, count: int) -> int:
        """Run ``count`` processes until a signal. Return the largest of their exit codes.

        A process that ends after it was ready is replaced. If one ends before it was ready, all are stopped, and
        its exit code is returned, or 1 instead of 0.
        """
        with self._handled():
            running = [self._start(is_first=number == 0) for number in range(count)]
            is_told = False
            while not self._signals:
                wait([process.sentinel for process, _ in running], _TICK)
                for number, (process, ready) in enumerate(running):
                    if process.is_alive():
                        continue
                    if not ready.is_set():  # the next one would fail in the same way
                        self._stop([each for each, _ in running])
                        return process.exitcode or 1
                    report(f"worker {process.pid} ended with code {process.exitcode}; starting another")
                    running[number] = self._start(is_first=False)
                if not is_told and all(ready.is_set() for _, ready in running):
                    is_told = True
                    tell_manager("READY=1")
            tell_manager("STOPPING=1")
            return self._stop([process for process, _ in running])

    def run_reloading(self, folders: Iterable[Path]) -> int:
        """Run one process until a signal, and return its exit code. Replace it when a Python or TOML file changes.

        Files in ``folders`` and below are watched. If the process ends, the next change starts it again.
        """
        folders = tuple(folders)
        with self._handled():
            before = _files(folders)
            process, _ = self._start(is_first=True)
            is_reported = False
            while not self._signals:
                if process.is_alive():
                    wait([process.sentinel], _TICK)
                else:
                    time.sleep(_TICK)
                if not process.is_alive() and not is_reported:
                    report("not serving; waiting for a change")
                    is_reported = True
                after = _files(folders)
                changed = sorted(path for path, _ in before ^ after)
                if changed:
                    report(f"{changed[0]} changed; reloading")
                    before, is_reported = after, False
                    self._stop([process])
                    process, _ = self._start(is_first=True)
            return self._stop([process])

    def _start(self, *, is_first: bool) -> tuple[Any, Event]:
        ready = _spawn.Event()
        process = _spawn.Process(target=_work, args=(self._command, Share(self._sockets, ready, is_first)))
        process.start()
        return process, ready

    def _stop(self, processes: list[Any]) -> int:
        """Let processes drain, and end them immediately on another signal. Return the exit code."""
        seen = self._signals
        for process in processes:
            process.terminate()
        while any(process.is_alive() for process in processes):
            wait([process.sentinel for process in processes if process.is_alive()], _TICK)
            if self._signals > max(seen, 1):
                seen = self._signals
                for process in processes:
                    process.terminate()
        # A negative code is that of a process that ended by the signal, before its own handler was there.
        return max([0, *(process.exitcode or 0 for process in processes)])

    @contextmanager
    def _handled(self) -> Iterator[None]:
        """Count the signals that end the command."""

        def count(_number: int, _frame: object) -> None:
            self._signals += 1

        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, count) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def _files(folders: Iterable[Path]) -> set[tuple[str, int]]:
    """Return the Python files and TOML files below folders, with the time of their last change."""
    found = set()
    for folder in folders:
        for parent, names, files in os.walk(folder):
            if "pyvenv.cfg" in files:
                names.clear()
                continue
            names[:] = [name for name in names if not name.startswith(".") and name not in _SKIPPED]
            for name in files:
                if name.endswith((".py", ".toml")):
                    path = os.path.join(parent, name)
                    try:
                        found.add((path, os.stat(path).st_mtime_ns))
                    except OSError:  # it was removed meanwhile
                        continue
    return found
