"""Envelopes of kinds that no plugin here declares: the work was done, so they pass."""

import asyncio
import logging
import pickle

import attrs
import pytest

from operad import (
    CallError,
    CallHandler,
    ErrorCode,
    InProcessTransport,
    OpaqueMeta,
    OperationRegistry,
    PendingRequestMap,
    Plugins,
    ResponseEnvelope,
    from_remote,
)
from operad.envelopes import EnvelopeKinds
from operad_calls.calling import map as module
from plugins.calls.tests.parts import echo, error_of, registry_of, reply, with_server

SMOKE = {"data": "fire", "meta": {"source": "smoke", "puffs": 3, "wind": {"knots": 4.5}}}


def test_an_envelope_of_an_unknown_kind_becomes_what_came():
    """Its metadata are read-only, and go out again as they came in."""
    envelope = EnvelopeKinds().from_wire(SMOKE)
    assert envelope.meta == OpaqueMeta("smoke", SMOKE["meta"])
    assert envelope.to_wire() == SMOKE
    assert EnvelopeKinds().is_error(envelope) is False
    with pytest.raises(TypeError):
        envelope.meta.fields["puffs"] = 4


def test_binary_data_of_an_unknown_kind_are_bytes_and_go_out_as_they_came():
    wire = {"data": "AAE=", "meta": {"source": "smoke", "encoding": "base64"}}
    envelope = EnvelopeKinds().from_wire(wire)
    assert envelope.data == b"\x00\x01"
    assert envelope.to_wire() == wire
    odd = {"data": 7, "meta": {"source": "smoke", "encoding": "base64"}}
    assert EnvelopeKinds().from_wire(odd).to_wire() == odd


def test_an_unknown_kind_is_warned_about_once_with_what_to_install(caplog):
    """A peer chooses the names of kinds: the log is bounded, in lines and in their length."""
    kinds = EnvelopeKinds()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            kinds.from_wire({"data": 1, "meta": {"source": "mcp"}})
        assert len(caplog.records) == 1
        assert "pip install operad-mcp" in caplog.text
        for number in range(1_000):
            kinds.from_wire({"data": 1, "meta": {"source": f"{number}" * 1_000}})
    assert len(caplog.records) <= 100
    assert all(len(record.getMessage()) < 1_000 for record in caplog.records)


async def test_a_thin_client_and_a_gateway_need_no_plugin_of_the_workers():
    """A worker's answer of any kind passes through a gateway without plugins to a caller without plugins."""

    @attrs.frozen
    class SmokeMeta:
        source = "smoke"
        puffs: int

    async def signal(input, context):
        return ResponseEnvelope("fire", SmokeMeta(3))

    worker, front, gateway = InProcessTransport(strict=True), InProcessTransport(strict=True), OperationRegistry()
    registry = registry_of(signal=("mutation", signal, {"output_schema": {"type": "integer"}}))
    async with CallHandler(registry, worker), await from_remote(worker, plugins=Plugins()) as session:
        for operation in session.operations:
            gateway.register(operation)
        handler, calls = CallHandler(gateway, front, reexport=True), PendingRequestMap(front, plugins=Plugins())
        async with handler, calls:
            envelope = await calls.call("t.signal")
            assert envelope.to_wire() == {"data": "fire", "meta": {"source": "smoke", "puffs": 3}}


async def test_plugins_are_loaded_when_a_map_opens_and_never_by_an_event(monkeypatch):
    """What a peer sends cannot make this process import anything."""
    async with with_server(InProcessTransport(strict=True)) as (calls, server):
        monkeypatch.setattr(module, "load_plugins", lambda: pytest.fail("loaded plugins for an event"))
        task = asyncio.create_task(calls.call("t.op"))
        await reply(server, (await server.wait_for("call.requested"))[0], output=SMOKE)
        assert (await task).to_wire() == SMOKE


async def test_codes_of_nested_calls_stay_inside_unless_declared():
    """What a handler charged before its nested call found nobody is not undone by the code of that call."""

    async def charge(input, context):
        await context.env["mail.send"]({})

    async def declared(input, context):
        raise CallError(ErrorCode.OVERLOADED, "come back later")

    busy = ("mutation", declared, {"error_schemas": [{"code": "OVERLOADED"}]})
    registry = registry_of(charge=("mutation", charge), busy=busy)
    error = await error_of(registry.execute("t.charge"))
    assert (error.code, error.ran) == (ErrorCode.EXECUTION_ERROR, None)
    assert error.details["cause"]["code"] == ErrorCode.OPERATION_NOT_FOUND
    assert error.details["cause"]["details"] == {"operationId": "mail.send"}
    assert (await error_of(registry.execute("t.busy"))).code == ErrorCode.OVERLOADED
    error = await error_of(registry.execute("t.unknown"))
    assert (error.code, error.ran) == (ErrorCode.OPERATION_NOT_FOUND, False)


async def test_a_forwarded_call_says_itself_that_nothing_ran():
    """An operation of a peer that is gone ran nowhere; what called it did run."""

    async def outer(input, context):
        await context.env["t.one"]({})

    transport, here = InProcessTransport(), registry_of(outer=("mutation", outer))
    handler = CallHandler(registry_of(one=("mutation", echo)), transport)
    async with handler, await from_remote(transport) as session:
        for operation in session.operations:
            here.register(operation)
        await handler.aclose()
        for name, code, ran in (("one", "OPERATION_NOT_FOUND", False), ("outer", "EXECUTION_ERROR", None)):
            error = await error_of(here.execute(f"t.{name}"))
            assert (error.code, error.ran) == (code, ran)


def test_opaque_metadata_compare_by_what_they_hold():
    assert OpaqueMeta("a", {"source": "a", "n": 1}) == OpaqueMeta("a", {"n": 1, "source": "a"})
    assert OpaqueMeta("a", {"source": "a"}) != OpaqueMeta("b", {"source": "b"})
    assert pickle.loads(pickle.dumps(CallError("X", "m", [1, 2]))).details == [1, 2]
