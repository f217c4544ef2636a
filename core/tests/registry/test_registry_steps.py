"""The rooms of a registry piece by piece: deadlines, entries, the catalogue, worker threads."""

import asyncio
import threading
import time

import pytest

from operad import (
    CallError,
    OperationRegistry,
    OperationSpec,
    ResponseEnvelope,
    local_envelope,
)
from operad.deadlines import until
from operad.envelopes import EnvelopeKinds, OpaqueMeta
from operad.errors import RegistrationError
from operad.registry.catalogue import Catalogue
from operad.registry.entry import Entry
from operad.registry.pipeline import ResultPipeline

# --- deadlines ------------------------------------------------------------------------------------


def test_a_deadline_of_what_waits_needs_a_task():
    async def work():
        await asyncio.sleep(60)

    async def main():
        loop, found = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def outside():
            step = until((time.time() + 5) * 1000, work)
            try:
                step.send(None)
            except BaseException as error:
                found.set_result(repr(error))

        loop.call_soon(outside)
        return await found

    assert "needs a running asyncio task" in asyncio.run(main())


# --- entries --------------------------------------------------------------------------------------


def spec(name="op", **more):
    return OperationSpec(namespace="t", name=name, type=more.pop("type", "query"), **more)


PIPELINE = ResultPipeline(EnvelopeKinds())


def entry_of(name="op", handler=None, owner=None, **more):
    return Entry(spec(name, **more), handler, None, owner, PIPELINE)


async def handler(input, context):
    return input


class Later:
    """What can be awaited and is no coroutine."""

    def __await__(self):
        yield from asyncio.sleep(0).__await__()
        return "later"


def thread():
    return threading.current_thread().name.rstrip("0123456789")  # a pool may start a second thread


def later(input, context):
    return Later()


# --- the catalogue --------------------------------------------------------------------------------


def test_a_spec_that_replaces_another_keeps_the_handler_unless_it_is_new():
    catalogue = Catalogue()
    catalogue.add(entry_of(handler=handler))
    catalogue.add_spec(entry_of(title="new"), replace=True)
    assert (catalogue.entries["t.op"].spec.title, catalogue.handler("t.op")) == ("new", handler)
    catalogue.add_spec(entry_of("other"), replace=True)
    assert catalogue.handler("t.other") is None
    with pytest.raises(RegistrationError, match="registered already"):
        catalogue.add_spec(entry_of())


# --- worker threads -------------------------------------------------------------------------------


async def test_a_generator_is_closed_when_its_reader_leaves():
    closed = []

    def items(input, context):
        try:
            yield 1
            yield 2
        finally:
            closed.append(threading.current_thread().name)

    async with OperationRegistry() as registry:
        registry.register_spec(spec(type="subscription"))
        for blocking in (None, False):
            registry.register_handler("t.op", items, blocking=blocking, replace=True)
            async with registry.subscribe("t.op") as stream:
                assert (await anext(stream)).data == 1
    assert [name.partition("_")[0] for name in closed] == ["operad", "MainThread"]


# --- the pipeline ---------------------------------------------------------------------------------


SHAPE = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"]}


def test_the_first_five_mismatches_are_told(caplog):
    shape = {"properties": {f"p{number}": {"type": "integer"} for number in range(9)}}
    finish = ResultPipeline(EnvelopeKinds(), normalize="off").finisher(spec(output_schema=shape))
    finish({f"p{number}": "x" for number in range(6)})
    (record,) = caplog.records
    assert record.getMessage().count("expected integer") == 5
    assert len(record.paths) == 6


def test_an_envelope_passes_and_its_data_are_cast_with_what_was_received():
    finish = ResultPipeline(EnvelopeKinds()).finisher(spec(output_schema=SHAPE))
    clean = local_envelope({"b": "x"}, "t.op")
    assert finish(clean).data == {"b": "x"}
    cast = finish(local_envelope({"a": "1", "b": "x"}, "t.op"))
    assert (cast.data, cast.received) == ({"a": 1, "b": "x"}, {"a": "1", "b": "x"})
    raw = finish({"a": "1", "b": "x"})
    assert (raw.data, raw.received) == ({"a": 1, "b": "x"}, {"a": "1", "b": "x"})
    strange = ResponseEnvelope({"a": "1"}, OpaqueMeta("strange", {}))
    assert finish(strange) is strange
    loose = ResultPipeline(EnvelopeKinds()).finisher(spec())
    assert loose(clean) is clean
    assert loose(5).data == 5


@pytest.mark.parametrize(("wrong", "more"), [(1, ""), (3, ""), (4, " (and 1 more)"), (6, " (and 3 more)")])
async def test_the_first_three_faults_of_an_input_are_told_and_all_listed(wrong, more):
    schema = {"properties": {f"p{number}": {"type": "integer"} for number in range(9)}}
    async with OperationRegistry() as registry:
        registry.register(spec(input_schema=schema), handler)
        with pytest.raises(CallError) as caught:
            await registry.execute("t.op", {f"p{number}": "x" for number in range(wrong)})
    faults = [f"expected integer, got str at $.p{number}" for number in range(wrong)]
    assert caught.value.message == f'invalid input for "t.op": {"; ".join(faults[:3])}{more}'
    assert [row["message"] for row in caught.value.details["errors"]] == faults
    assert caught.value.details["errors"][0] == {"path": "$.p0", "message": faults[0], "keyword": "type"}
