"""The bounds of calls in one record, and the tap that sees events pass."""
# ruff: noqa: SIM117  # what is opened first and closed last is the point of many of these tests

import asyncio
import logging

import pytest

from operad import (
    CallError,
    CallHandler,
    ErrorCode,
    InProcessTransport,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
)
from operad.transports import TransportError
from operad_calls import CallSettings, plugin, tap
from operad_calls.serving import following
from operad_testing import Participant, plugins_of
from plugins.calls.tests.parts import Heard


async def echo(input, context):
    return input


def registry_of(*names):
    registry = OperationRegistry()
    for name in names:
        registry.register(OperationSpec(namespace="t", name=name, type="query"), echo)
    return registry


def test_the_bounds_have_the_documented_defaults():
    settings = CallSettings()
    assert (settings.max_pending, settings.max_concurrent, settings.per_peer) == (10_000, 10_000, 5_000)
    assert (settings.credit, settings.credit_bytes, settings.link_bytes) == (64, 2**20, 2**23)
    assert (settings.lease, settings.timeout, settings.drain_timeout) == (30, 30, 10)
    assert CallSettings(max_concurrent=1).per_peer == 1
    assert CallSettings(max_concurrent_per_peer=7).per_peer == 7


@pytest.mark.parametrize("name", ["max_pending", "max_concurrent", "credit", "credit_bytes", "lease", "timeout"])
def test_a_bound_that_bounds_everything_is_refused(name):
    with pytest.raises(ValueError, match=name):
        CallSettings(**{name: 0})


async def test_what_is_given_beside_the_settings_comes_first():
    transport = InProcessTransport()
    settings = CallSettings(timeout=90.0, credit=3)
    async with PendingRequestMap(transport, settings=settings, credit=5) as calls:
        async with Participant.open(transport) as server:
            await server.link.register("op:t.op")
            tasks = [asyncio.create_task(calls.call("t.op")), asyncio.create_task(anext(calls.subscribe("t.op")))]
            single, stream = await server.wait_for("call.requested", 2)
            assert 60_000 < single["timeoutMs"] <= 90_000
            assert stream["credit"] == 5
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@pytest.mark.parametrize(
    "make",
    [
        lambda registry, transport: CallHandler(registry, transport, settings=CallSettings(timeout=0.1)),
        lambda registry, transport: plugins_of(plugin).call_server(registry, transport, timeout=0.1),
    ],
    ids=["by hand", "by the hook"],
)
async def test_a_single_call_that_says_nothing_ends_after_the_handlers_timeout(make):
    """A foreign client knows the four events only; no request runs without end."""

    async def waiting(input, context):
        await asyncio.sleep(60)

    transport, registry = InProcessTransport(), OperationRegistry()
    registry.register(OperationSpec(namespace="t", name="wait", type="mutation"), waiting)
    async with make(registry, transport):
        async with Participant.open(transport) as caller:
            fields = {"requestId": "1", "operationId": "t.wait", "input": {}, "replyTo": caller.link.inbox}
            await caller.send("op:t.wait", "call.requested", **fields)
            assert (await caller.wait_for("call.error"))[0]["code"] == ErrorCode.TIMEOUT


async def test_a_request_that_cannot_be_used_is_answered_where_its_id_can_be_read():
    transport = InProcessTransport()
    async with CallHandler(registry_of("echo"), transport) as handler, Participant.open(transport) as caller:
        fields = {"requestId": "1", "input": {}, "replyTo": caller.link.inbox}
        await caller.send(handler.link.inbox, "call.requested", **fields)
        (error,) = await caller.wait_for("call.error")
        assert (error["requestId"], error["code"]) == ("1", ErrorCode.VALIDATION_ERROR)


async def test_lines_about_what_a_peer_sends_are_bounded(caplog):
    transport = InProcessTransport()
    async with CallHandler(registry_of("echo"), transport) as handler, Participant.open(transport) as caller:
        with caplog.at_level(logging.WARNING):
            for _ in range(2_000):
                await caller.send(handler.link.inbox, "call.requested", requestId="x" * 1_000)
    assert 0 < len(caplog.records) <= 200


async def test_a_tap_sees_what_passes_and_changes_nothing():
    seen, links = [], []
    transport = InProcessTransport()
    tapped = tap(transport, seen.append, lambda state, epoch: links.append(state))
    async with CallHandler(registry_of("echo"), transport), PendingRequestMap(tapped) as calls:
        assert (await calls.call("t.echo", {"a": 1})).data == {"a": 1}
    passed = [(item.direction, item.event["type"]) for item in seen]
    assert passed == [("out", "call.requested"), ("in", "call.responded")]
    assert seen[0].to == "op:t.echo"
    assert "'a': 1" not in repr(seen[0])
    assert links == ["up", "down"]
    assert tapped.capabilities is transport.capabilities


async def test_a_tap_passes_on_the_states_of_a_link():
    heard, states = Heard(), []
    tapped = tap(heard, lambda passed: None, lambda *state: states.append(state))
    async with PendingRequestMap(tapped) as calls, Participant.open(heard.bus) as server:
        await server.link.register("op:t.op")
        call = asyncio.ensure_future(calls.call("t.op"))
        await server.wait_for("call.requested")
        heard.on_link("down", 1)
        with pytest.raises(CallError, match="UNAVAILABLE"):
            await call
    assert states[:2] == [("up", 1), ("down", 1)]


async def test_a_tap_that_fails_stops_no_event(caplog):
    def see(passed):
        raise RuntimeError("the disk is full")

    transport = InProcessTransport()
    async with CallHandler(registry_of("echo"), transport), PendingRequestMap(tap(transport, see)) as calls:
        assert (await calls.call("t.echo", {"a": 1})).data == {"a": 1}
    assert "the disk is full" in caplog.text


class Refusing:
    """A bus that refuses addresses while they are named."""

    def __init__(self):
        self.bus = InProcessTransport()
        self.capabilities = self.bus.capabilities
        self.refused = set()
        self.on_event = None

    async def open(self, on_event, on_link):
        self.on_event = on_event
        self.link = await self.bus.open(on_event, on_link)
        return self

    @property
    def inbox(self):
        return self.link.inbox

    async def register(self, topic, group=None):
        if topic in self.refused:
            raise TransportError(f"{topic} belongs to somebody else")
        return await self.link.register(topic, group)

    async def send(self, to, event):
        return await self.link.send(to, event)

    async def drain(self, timeout):
        await self.link.drain(timeout)

    async def close(self):
        await self.link.close()


async def test_an_address_that_is_refused_is_tried_again(monkeypatch, caplog):
    """It is logged, not counted, and served as soon as it is free."""
    monkeypatch.setattr(following, "RETRY", 0.05)
    transport, registry = Refusing(), registry_of("one")
    transport.refused.add("op:t.two")
    async with CallHandler(registry, transport) as handler:
        registry.register(OperationSpec(namespace="t", name="two"), echo)
        async with asyncio.timeout(30):
            while "belongs to somebody else" not in caplog.text:
                await asyncio.sleep(0.01)
            assert handler.serving == 1
            transport.refused.clear()
            while handler.serving != 2:
                await asyncio.sleep(0.01)


async def test_what_a_link_could_not_register_again_is_not_counted_as_served():
    """After a break a hub may have given a name to another one; the link says so."""
    transport = Refusing()
    async with CallHandler(registry_of("one", "two"), transport) as handler:
        assert handler.serving == 2
        refused = [{"topic": "op:t.two", "reason": "taken"}, {"topic": "op:t.other", "reason": ""}, 7, {}]
        answer = {"type": "link.registered", "id": "", "payload": {"topics": ["op:t.one"], "refused": refused}}
        from operad.transports import Delivery

        transport.on_event(answer, Delivery())
        assert handler.serving == 1
        answer["payload"]["refused"] = []
        transport.on_event(answer, Delivery())
        assert handler.serving == 2


async def test_a_map_can_be_opened_again_in_another_loop():
    transport = InProcessTransport()
    calls = PendingRequestMap(transport)

    async def once():
        async with CallHandler(registry_of("echo"), transport), calls:
            assert (await calls.call("t.echo", {"a": 1}, retry="unsent")).data == {"a": 1}

    await once()
    await asyncio.to_thread(asyncio.run, once())


async def test_nothing_but_a_call_error_comes_out_of_a_call():
    """Times that are none included."""
    async with PendingRequestMap(InProcessTransport()) as calls:
        for times in (
            {"timeout": float("nan")},
            {"deadline": "soon"},
            {"timeout": "5"},
            {"deadline": float("nan")},
        ):
            with pytest.raises(CallError) as caught:
                await calls.call("t.op", **times)
            assert caught.value.code == ErrorCode.VALIDATION_ERROR
            with pytest.raises(CallError):
                await anext(calls.subscribe("t.op", **times))
        for times in ({"timeout": 10**400}, {"deadline": float("inf")}):
            with pytest.raises(CallError) as caught:
                await calls.call("t.op", **times)
            assert caught.value.code == ErrorCode.OPERATION_NOT_FOUND


async def test_the_table_calls_of_a_configuration_is_the_settings(tmp_path):
    """What is unknown or of the wrong kind in it is an error that names it."""
    from operad import ConfigError

    path = tmp_path / "operad.toml"
    path.write_text("[calls]\nmax_concurrent = 7\nlease = 2.5\n")
    async with OperationRegistry.from_config(path) as registry:
        settings = registry.configured("calls", CallSettings)
        assert (settings.max_concurrent, settings.per_peer, settings.lease) == (7, 3, 2.5)
    for wrong in ("max_concurent = 7", "lease = 0", 'credit = "many"'):
        path.write_text(f"[calls]\n{wrong}\n")
        with pytest.raises(ConfigError, match="calls"):  # when it is read, or at the latest when it is asked for
            OperationRegistry.from_config(path).configured("calls", CallSettings)
