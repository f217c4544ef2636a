"""`operad.testing.ServerProcess`: real servers for tests, which can be killed and frozen."""

from __future__ import annotations

import signal
import socket
import sys
import time

import psutil
import pytest

from operad_testing import ServerProcess

SERVER = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    while True:
        client, _ = server.accept()
        client.sendall(b"here")
        client.close()
"""


class Greeter(ServerProcess):
    """Says "here" to everybody."""

    program = SERVER

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.program, str(self.port)]

    def answers(self, probe: socket.socket) -> bool:
        return probe.recv(4) == b"here"


def greeting(server: ServerProcess) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), 1) as client:
        return client.recv(4)


def test_a_server_is_ready_when_it_is_started_and_gone_afterwards() -> None:
    with Greeter() as server:
        pid = server.pid
        assert greeting(server) == b"here"
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_comes_back_on_the_same_port(end: str) -> None:
    with Greeter() as server:
        first = server.pid
        getattr(server, end)()
        with pytest.raises(ConnectionRefusedError):
            greeting(server)
        server.start()
        assert server.pid != first
        assert greeting(server) == b"here"


def test_a_frozen_server_keeps_its_connections_and_says_nothing() -> None:
    with Greeter() as server:
        server.freeze()
        process = psutil.Process(server.pid)
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        with socket.create_connection(("127.0.0.1", server.port), 1) as client:
            client.settimeout(0.05)
            with pytest.raises(TimeoutError):
                client.recv(4)
            server.thaw()
            client.settimeout(10)
            assert client.recv(4) == b"here"


def test_a_server_that_ends_at_once_is_an_error_that_names_it() -> None:
    server = Greeter()
    server.program = "raise SystemExit(1)"
    with pytest.raises(
        RuntimeError, match=f"ended with exit code 1 before it was ready on port {server.port}; run"
    ):
        server.start()
    server.stop()
    with pytest.raises(RuntimeError, match="not running"):
        server.freeze()


def test_a_server_that_ignores_the_wish_to_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operad_testing._server._ENDS_WITHIN", 0.1)
    server = Greeter()
    server.program = f"import signal; signal.signal({int(signal.SIGTERM)}, signal.SIG_IGN)\n{SERVER}"
    with server:
        pid = server.pid
        server.stop()
        assert not psutil.pid_exists(pid)
