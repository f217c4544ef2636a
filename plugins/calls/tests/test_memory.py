"""Memory for large messages."""

import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from operad import CallHandler, InProcessTransport, OperationRegistry, PendingRequestMap
from operad.transports import Capabilities
from operad_calls.calling import pending
from operad_calls.serving import served

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
