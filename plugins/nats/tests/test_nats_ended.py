"""A real server that ends connections for a reason of its own: each is followed by another one."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from operad import CallError, CallHandler, OperationRegistry, PendingRequestMap, operation
from operad_nats import NATSTransport
from operad_nats.testing import NATSServer

pytestmark = [pytest.mark.nats, pytest.mark.usefixtures("new_server")]


@operation(namespace="t", type="query")
async def size(text: str = "") -> int:
    return len(text)


class Configured(NATSServer):
    """A server with a file of configuration that can be read anew."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "server.conf"
        super().__init__(["-c", str(self._file)])

    def configure(self, password: str = "p", more: str = "") -> None:
        """Write the file, and have a server that runs read it."""
        # Its own bound of 2 s is for clients that are not busy with something else.
        self._file.write_text(f"authorization {{ user: u, password: {password}, timeout: 60 }}\n{more}\n")
        if self._process is not None:
            os.kill(self.pid, signal.SIGHUP)


@pytest.mark.parametrize(
    ("password", "more", "afterwards"),
    [("p", "max_payload: 4096", "PAYLOAD_TOO_LARGE"), ("another", "", None)],
    ids=["payload", "password"],
)
async def test_a_connection_that_the_server_ends_with_an_error_is_followed_by_another(
    password: str, more: str, afterwards: str | None, tmp_path: Path
) -> None:
    """A smaller payload than the link had been told, or credentials that do not count any more: nats-py's client
    would end for good, and everybody wait for ever for what is served again when it is back."""
    server = Configured(tmp_path)
    server.configure()
    registry = OperationRegistry()
    registry.register(size)
    with server:
        transport = NATSTransport(servers=server.url, user="u", password="p", reconnect_wait=0.05)
        async with CallHandler(registry, transport), PendingRequestMap(transport) as calls:
            assert (await calls.call("t.size", {"text": "x" * 9_000})).data == 9_000
            server.configure(password, more)
            async with asyncio.timeout(20):
                while (await outcome(calls, 9_000)) in (None, "TIMEOUT"):
                    await asyncio.sleep(0.05)
                if password != "p":
                    assert await outcome(calls, 1) == "UNAVAILABLE"
                    server.configure()
                while (await outcome(calls, 1)) is not None:
                    await asyncio.sleep(0.05)
                assert await outcome(calls, 9_000) == afterwards


async def outcome(calls: PendingRequestMap, length: int) -> str | None:
    """The code of a call's error, if it fails."""
    try:
        await calls.call("t.size", {"text": "x" * length}, timeout=2)
    except CallError as error:
        return str(error.code)
    return None
