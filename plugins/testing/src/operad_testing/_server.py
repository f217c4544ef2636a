"""A real server for tests: a separate process on a free port of 127.0.0.1."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

_COMES_UP_WITHIN = 30.0
_ENDS_WITHIN = 5.0
_PORTS = range(10_240, 32_768)
"""Ports that systems do not give to connections, or to servers that ask for any port."""


def free_port() -> int:
    """Return a port of 127.0.0.1 on which no process listens, for a server that must know it before it starts.

    A server that was stopped can use the port again: no other program is likely to get it meanwhile.
    """
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class ServerProcess(ABC):
    """A context that runs a server process, which can be killed and started again on the same port.

    A subclass defines the command (`command`) and checks whether the server is ready (`answers`).

    Args:
        arguments: additional command-line arguments, which `command` appends.
    """

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        self.arguments = list(arguments)
        self.port: int = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return the program and its arguments, for a server that listens on `port`.

        Raises `RuntimeError` if the program is missing.
        """

    @abstractmethod
    def answers(self, probe: socket.socket) -> bool:
        """Return True if the server is ready. ``probe`` is a new connection to it.

        If the server is not ready, return False or raise `OSError`.
        """

    @property
    def pid(self) -> int:
        """The process id. Raises `RuntimeError` if the server was not started, or was stopped or killed."""
        return self._running().pid

    def start(self) -> None:
        """Start the server, and return when it is ready.

        Raises:
            RuntimeError: the program is missing, ends, or is not ready within 30 s.
        """
        command = self.command()
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _COMES_UP_WITHIN
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                    if self.answers(probe):
                        return
            except OSError:
                pass
            time.sleep(0.02)
        code = self._process.returncode
        self.stop()
        late = f"was not ready on port {self.port} within {_COMES_UP_WITHIN:g} s"
        how = late if code is None else f"ended with exit code {code} before it was ready on port {self.port}"
        raise RuntimeError(f"{command[0]} {how}; run it by hand to see why")

    def stop(self) -> None:
        """Stop the server with SIGTERM, if it runs, and wait until it has ended. After 5 s, kill it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server with SIGKILL, if it runs, as in a crash, and wait until it has ended."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Suspend the server with SIGSTOP until `thaw` is called. Its connections stay open, as in a dead network.

        The process is suspended when this method returns. Raises `RuntimeError` if the server was not started.
        """
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        if process.poll() is None:
            os.waitpid(process.pid, os.WUNTRACED)

    def thaw(self) -> None:
        """Let a frozen server continue, with SIGCONT. Raises `RuntimeError` if the server was not started."""
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server is not running; call start() first")
        return self._process

    def _end(self, with_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(with_signal)
        try:
            process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
