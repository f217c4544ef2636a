"""What comes too late does not run: how late it is is known without a common clock."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from operad import CallHandler, ErrorCode, OperationRegistry, OperationSpec
from operad.transports import Capabilities, Delivery
from operad_calls import InProcessTransport, lateness
from operad_calls.lateness import Lateness
from operad_testing import Participant


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock, moved by hand."""
    made = SimpleNamespace(now=1_000.0, ahead=0.0)
    watches = SimpleNamespace(monotonic=lambda: made.now, time=lambda: made.now + made.ahead)
    monkeypatch.setattr(lateness, "time", watches)
    return made


def sent(at, timeout=1_000.0):
    """A request that was sent at a time (epoch ms) of its caller's clock."""
    return {"timeoutMs": timeout, "deadline": at + timeout}


def test_a_request_is_as_late_as_it_took_longer_than_the_quickest_one(clock):
    """Whatever the clocks of the two sides say: here they are an hour apart."""
    late, hour = Lateness(), 3_600_000.0
    assert late.of("a", sent(5_000 + hour), 5_010, 0.25) == 0
    assert late.of("a", sent(6_000 + hour), 6_003, 0.25) == 0
    assert late.of("a", sent(7_000 + hour), 9_003, 0.25) == 2_000
    assert late.of("b", sent(7_000), 9_003, 0.25) == 0, "of another peer nothing is known yet"


def test_the_way_of_a_peer_is_measured_anew_when_its_clock_may_have_moved(clock):
    """A clock that was set back makes everything look late, for two minutes at most."""
    late = Lateness()
    late.tick(0.25)
    late.of("a", sent(100_000), 50_000, 0.25)  # the caller's clock is 50 s ahead
    seen = []
    for second in range(1, 200):
        clock.now += 1
        late.tick(1.0)
        seen.append(late.of("a", sent(50_000 + second * 1_000), 50_000 + second * 1_000, 1.0))
    assert seen[0] == 50_000
    assert seen[-1] == 0


def test_how_long_the_loop_stood_still_is_measured(clock):
    """Of a peer that is not known, that is how late a request may be."""
    late = Lateness()
    late.tick(0.25)
    clock.now += 3.0
    assert late.of("new", {"timeoutMs": 1_000}, 0, 0.25) == 3_000
    late.tick(0.25)
    clock.now += 0.25
    assert late.of("new", {"timeoutMs": 1_000}, 0, 0.25) == 3_000, "it may have waited in the socket"
    late.tick(0.25)
    for _ in range(8):
        clock.now += 0.25
        late.tick(0.25)
    assert late.of("new", {"timeoutMs": 1_000}, 0, 0.25) == 0


def test_a_clock_that_is_set_forward_makes_requests_late_for_a_second(clock):
    """It may be that the machine was suspended: then what comes at once waited, whoever sent it. After that, what
    was measured by the clock counts as the clock does."""
    late = Lateness()

    def asked(peer="a"):
        now = (clock.now + clock.ahead) * 1_000
        return late.of(peer, sent(clock.now * 1_000), now, 0.25)

    late.tick(0.25)
    assert asked() == 0
    clock.ahead += 10
    assert asked() == 10_000
    assert asked("new") == 10_000
    for _ in range(5):
        clock.now += 0.25
        late.tick(0.25)
    assert (asked(), asked("new")) == (0, 0)
    clock.now += 0.25
    assert late.of("a", sent(clock.now * 1_000), (clock.now + clock.ahead + 3) * 1_000, 0.25) == 3_000


def test_a_clock_that_is_set_back_makes_nothing_late_and_hides_nothing(clock):
    late = Lateness()
    late.tick(0.25)
    assert late.of("a", sent(clock.now * 1_000), clock.now * 1_000, 0.25) == 0
    clock.ahead -= 10
    assert late.of("a", sent(clock.now * 1_000), (clock.now + clock.ahead) * 1_000, 0.25) == 0
    assert late.of("a", sent(clock.now * 1_000), (clock.now + clock.ahead + 3) * 1_000, 0.25) == 3_000


def test_a_clock_that_is_slewed_is_followed(clock):
    """By little at a time it may go far; nothing was set."""
    late = Lateness()
    for _ in range(100):
        clock.now += 0.25
        clock.ahead += 0.01
        late.tick(0.25)
        now = (clock.now + clock.ahead) * 1_000
        assert late.of("new", {"timeoutMs": 1_000}, now, 0.25) == 0


def test_what_is_no_time_tells_nothing(clock):
    late = Lateness()
    for deadline in (10**400, -(10**400), "soon", None, 1e300):
        assert late.of("a", {"timeoutMs": 5, "deadline": deadline}, 0, 0.25) == 0


def test_the_peers_that_are_remembered_are_bounded(clock, monkeypatch):
    monkeypatch.setattr(lateness, "_MAX_PEERS", 3)
    late = Lateness()
    for number in range(10):
        late.of(str(number), sent(1_000), 1_000, 0.25)
    assert list(late._shortest) == ["7", "8", "9"]


class Wired:
    """An in-process bus that says that it is none."""

    capabilities = Capabilities(detects_no_responders=True)

    def __init__(self):
        self.bus = InProcessTransport(strict=True)

    async def open(self, on_event, on_link):
        return await self.bus.open(lambda event, delivery: on_event(event, Delivery(to=delivery.to)), on_link)


async def test_a_mutation_that_waited_while_its_process_stood_still_does_not_run():
    """Its caller has been told ``TIMEOUT``; that it did not run is said, so that it may be called again."""
    ran = []

    async def work(input, context):
        ran.append(input)

    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="t", name="work", type="mutation"), work)
    transport = Wired()
    async with CallHandler(registry, transport), Participant.open(transport) as caller:
        time.sleep(0.5)  # the loop stands still, as with SIGSTOP
        await caller.request("t.work", "1", timeoutMs=200)
        (error,) = await caller.wait_for("call.error")
        assert (error["code"], error["details"]["sent"]) == (ErrorCode.UNAVAILABLE, False)
        assert ran == []
        await asyncio.sleep(0)
        await caller.request("t.work", "2", timeoutMs=20_000)
        await caller.wait_for("call.responded")


def test_a_loop_that_stood_still_for_less_than_a_second_has_stood_still(clock):
    late = Lateness()
    late.tick(0.25)
    clock.now += 0.75
    assert late.of("new", {"timeoutMs": 1_000}, 0, 0.25) == 750
    late.tick(0.25)
    clock.now += 0.5
    assert late.of("new", {"timeoutMs": 1_000}, 0, 0.25) == 750, "no more than a period and some slack"


def test_a_clock_that_is_set_forward_by_less_than_a_second_was_set(clock):
    late = Lateness()
    late.tick(0.25)
    clock.ahead += 0.5
    assert late.of("new", {"timeoutMs": 1_000}, 0, 0.25) == 500
    clock.ahead -= 0.5
    later = Lateness()
    later.tick(0.25)
    clock.ahead += 0.25
    assert later.of("new", {"timeoutMs": 1_000}, 0, 0.25) == 0


def test_each_time_that_a_clock_is_set_forward_what_comes_at_once_is_late(clock):
    late = Lateness()
    late.tick(0.25)
    for _ in range(2):
        clock.ahead += 3
        assert late.of("new", {"timeoutMs": 1_000}, 0, 0.25) == 3_000
        for _ in range(8):
            clock.now += 0.25
            late.tick(0.25)
        assert late.of("new", {"timeoutMs": 1_000}, 0, 0.25) == 0
