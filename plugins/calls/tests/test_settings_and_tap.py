"""The bounds of calls in one record, and the tap that sees events pass."""

import asyncio

import pytest

from operad import (
    CallError,
    CallHandler,
    ConfigError,
    ErrorCode,
    InProcessTransport,
    OperationRegistry,
    PendingRequestMap,
)
from operad.transports import Delivery
from operad_calls import CallSettings, plugin, tap
from operad_testing import Participant, plugins_of
from plugins.calls.tests.parts import Heard, echo, error_of, event, registry_of, waiting, with_caller


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
    transport, registry = InProcessTransport(), registry_of(wait=("mutation", waiting))
    async with make(registry, transport), Participant.open(transport) as caller:
        fields = {"requestId": "1", "operationId": "t.wait", "input": {}, "replyTo": caller.link.inbox}
        await caller.send("op:t.wait", "call.requested", **fields)
        assert (await caller.wait_for("call.error"))[0]["code"] == ErrorCode.TIMEOUT


async def test_a_request_that_cannot_be_used_is_answered_where_its_id_can_be_read():
    async with with_caller(registry_of()) as (handler, caller):
        fields = {"requestId": "1", "input": {}, "replyTo": caller.link.inbox}
        await caller.send(handler.link.inbox, "call.requested", **fields)
        (error,) = await caller.wait_for("call.error")
        assert (error["requestId"], error["code"]) == ("1", ErrorCode.VALIDATION_ERROR)


async def test_lines_about_what_a_peer_sends_are_bounded(caplog):
    async with with_caller(registry_of()) as (handler, caller):
        for _ in range(2_000):
            await caller.send(handler.link.inbox, "call.requested", requestId="x" * 1_000)
    assert 0 < len(caplog.records) <= 200


async def test_a_tap_sees_what_passes_and_changes_nothing():
    seen, links = [], []
    transport = InProcessTransport()
    tapped = tap(transport, seen.append, lambda state, epoch: links.append(state))
    async with CallHandler(registry_of(echo=("query", echo)), transport), PendingRequestMap(tapped) as calls:
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
        assert (await error_of(call)).code == ErrorCode.UNAVAILABLE
    assert states[:2] == [("up", 1), ("down", 1)]


async def test_a_tap_that_fails_stops_no_event(caplog):
    def see(passed):
        raise RuntimeError("the disk is full")

    transport = InProcessTransport()
    async with (
        CallHandler(registry_of(echo=("query", echo)), transport),
        PendingRequestMap(tap(transport, see)) as calls,
    ):
        assert (await calls.call("t.echo", {"a": 1})).data == {"a": 1}
    assert "the disk is full" in caplog.text


async def test_what_a_link_could_not_register_again_is_not_counted_as_served():
    """After a break a hub may have given a name to another one; the link says so."""
    heard = Heard()
    async with CallHandler(registry_of(one=("query", echo), two=("query", echo)), heard) as handler:
        for refused, serving in (([{"topic": "op:t.two", "reason": "taken"}], 1), ([], 2)):
            heard.on_event(event("link.registered", topics=["op:t.one"], refused=refused), Delivery())
            assert handler.serving == serving


async def test_a_map_can_be_opened_again_in_another_loop():
    transport = InProcessTransport()
    calls = PendingRequestMap(transport)

    async def once():
        async with CallHandler(registry_of(echo=("query", echo)), transport), calls:
            assert (await calls.call("t.echo", {"a": 1}, retry="unsent")).data == {"a": 1}

    await once()
    await asyncio.to_thread(asyncio.run, once())


NAN = float("nan")


@pytest.mark.parametrize("times", [{"timeout": NAN}, {"timeout": "5"}, {"deadline": NAN}, {"deadline": "soon"}])
async def test_a_time_that_is_none_is_a_call_error(times):
    async with PendingRequestMap(InProcessTransport()) as calls:
        with pytest.raises(CallError, match="VALIDATION_ERROR"):
            await calls.call("t.op", **times)
        with pytest.raises(CallError, match="VALIDATION_ERROR"):
            await anext(calls.subscribe("t.op", **times))


@pytest.mark.parametrize("times", [{"timeout": 10**400}, {"deadline": float("inf")}])
async def test_a_time_may_be_longer_than_any_clock(times):
    async with PendingRequestMap(InProcessTransport()) as calls:
        assert (await error_of(calls.call("t.op", **times))).code == ErrorCode.OPERATION_NOT_FOUND


async def test_the_table_calls_of_a_configuration_is_the_settings(tmp_path):
    """What is unknown or of the wrong kind in it is an error that names it."""
    path = tmp_path / "operad.toml"
    path.write_text("[calls]\nmax_concurrent = 7\nlease = 2.5\n")
    async with OperationRegistry.from_config(path) as registry:
        settings = registry.configured("calls", CallSettings)
        assert (settings.max_concurrent, settings.per_peer, settings.lease) == (7, 3, 2.5)
    for wrong in ("max_concurent = 7", "lease = 0", 'credit = "many"'):
        path.write_text(f"[calls]\n{wrong}\n")
        with pytest.raises(ConfigError, match="calls"):  # when it is read, or at the latest when it is asked for
            OperationRegistry.from_config(path).configured("calls", CallSettings)
