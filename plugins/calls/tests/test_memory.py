"""Memory for large messages."""

import asyncio
import platform
import subprocess
import sys
import tracemalloc
from types import SimpleNamespace

import pytest

from operad import CallHandler, InProcessTransport, OperationRegistry, PendingRequestMap
from operad.transports import Capabilities
from operad_calls.calling import pending
from operad_calls.serving import served
from plugins.calls.tests.parts import Wired, cancel, with_server

PROGRAM = """
import resource, sys
if sys.argv[1] == "kept":
    from operad_calls.memory import keep_memory
    keep_memory()

def handle():  # as a message on its way through a hub: read, encoded anew, and waiting for its socket
    return b"x" * 1_200_000, b"y" * 1_700_000, bytearray(b"z") * 1_000_000

for _ in range(5):
    handle()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    handle()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 40)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that gives memory back")
def test_what_one_large_message_leaves_behind_serves_the_next_one():
    """Without page faults, of which each message would meet a thousand."""
    faults = {}
    for word in ("given back", "kept"):
        command = [sys.executable, "-c", PROGRAM, word]
        faults[word] = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert faults["kept"] < 10 < 500 < faults["given back"]


async def test_memory_is_kept_for_what_has_a_wire_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(served, "keep_memory", lambda: asked.append("served"))
    monkeypatch.setattr(pending, "keep_memory", lambda: asked.append("calls"))
    bus = InProcessTransport()
    async with CallHandler(OperationRegistry(), bus), PendingRequestMap(bus):
        assert asked == []
    wire = SimpleNamespace(open=bus.open, capabilities=Capabilities(detects_no_responders=True))
    async with CallHandler(OperationRegistry(), wire), PendingRequestMap(wire):
        assert asked == ["served", "calls"]


async def test_large_requests_that_wait_are_not_in_memory_twice():
    """Each is written when its turn has come: what waits is what the caller has of it."""
    async with with_server(Wired()) as (calls, server):
        value = "x" * 1_000_000
        tracemalloc.start()
        try:
            tasks = [asyncio.create_task(calls.call("t.op", value)) for _ in range(64)]
            await server.wait_for("call.requested", 8)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            await cancel(*tasks)
        assert held < 30_000_000, f"{held} bytes are held by 64 requests of 1 MB, of which 8 may be on their way"
