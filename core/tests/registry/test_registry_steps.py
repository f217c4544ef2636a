"""The rooms of a registry piece by piece: deadlines, entries, the catalogue, worker threads."""

import asyncio
import logging
import math
import threading
import time
from types import SimpleNamespace

import pytest

from operad import (
    CallError,
    ErrorCode,
    OperationRegistry,
    OperationSpec,
    OperationType,
    ResponseEnvelope,
    local_envelope,
    operation,
)
from operad.deadlines import DeadlineExpired, checked_number, earlier, until
from operad.envelopes import EnvelopeKinds, OpaqueMeta
from operad.errors import RegistrationError
from operad.registry.catalogue import Catalogue
from operad.registry.entry import Entry, described, no_operation
from operad.registry.pipeline import ResultPipeline
from operad.registry.workers import Workers


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


# --- deadlines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadline", "timeout", "found"),
    [(None, None, None), (5.0, None, 5.0), (None, 2, 1_002_000.0), (5.0, 2, 5.0), (2e9, 2.5, 1_002_500.0)],
)
def test_the_earlier_of_two_times(monkeypatch, deadline, timeout, found):
    monkeypatch.setattr("operad.deadlines._now", lambda: 1_000.0)
    assert earlier(deadline, timeout) == found


@pytest.mark.parametrize(
    ("value", "number"), [(5, 5.0), (0.5, 0.5), (10**400, math.inf), (-(10**400), -math.inf), (math.inf, math.inf)]
)
def test_a_time_is_any_number(value, number):
    found = checked_number(value, "timeout", "seconds")
    assert (found, type(found)) == (number, float)


@pytest.mark.parametrize("value", [True, "5", None, math.nan, [1]])
def test_what_is_no_time_is_refused_in_words(value):
    with pytest.raises(CallError, match="timeout: expected seconds as a number, got ") as caught:
        checked_number(value, "timeout", "seconds")
    assert caught.value.code == ErrorCode.VALIDATION_ERROR
    assert caught.value.details == {"message": caught.value.message}


async def test_a_deadline_of_now_begins_nothing(monkeypatch):
    monkeypatch.setattr("operad.deadlines._now", lambda: 1_000.0)

    async def work():
        return 5

    with pytest.raises(DeadlineExpired):
        await until(1_000_000.0, work)
    assert await until(1_000_001.0, work) == 5
    assert await until(math.inf, work) == 5


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


def test_who_brought_an_operation_is_named():
    assert described(handler) == f"the application ({__name__}.handler)"
    assert described(None) == "the application"
    assert described(SimpleNamespace()) == "the application"
    assert entry_of(handler=handler).label == f"the application ({__name__}.handler)"
    assert entry_of(handler=handler, owner='source "s"').label == 'source "s"'


def test_what_is_no_operation_is_told_how_to_become_one():
    assert no_operation(handler) == (
        "register takes an operation, or a spec and a handler, got function; wrap it: operation(handler)"
    )
    assert no_operation(5) == "register takes an operation, or a spec and a handler, got int; see operad.operation"
    assert no_operation(int).endswith("got type; wrap it: operation(int)")


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


class Later:
    """What can be awaited and is no coroutine."""

    def __await__(self):
        yield from asyncio.sleep(0).__await__()
        return "later"


def thread():
    return threading.current_thread().name.rstrip("0123456789")  # a pool may start a second thread


def plain(input, context):
    return thread()


def plain_items(input, context):
    yield thread()
    yield 2


def later(input, context):
    return Later()


def pair(input, context):
    return [1, 2]


async def late_items(input, context):
    return plain_items(input, context)


class Called:
    async def __call__(self, input, context):
        return "called"


class CalledPlain:
    def __call__(self, input, context):
        return "plain"


@pytest.mark.parametrize(
    ("function", "blocking", "type_", "found"),
    [
        (handler, None, "query", [5]),
        (plain, None, "query", ["operad_"]),
        (plain, False, "query", ["MainThread"]),
        (later, None, "query", ["later"]),
        (later, False, "query", ["later"]),
        (Called(), None, "query", ["called"]),
        (CalledPlain(), None, "query", ["plain"]),
        (plain_items, None, "query", ["operad_", 2]),
        (plain_items, False, "query", ["MainThread", 2]),
        (late_items, None, "subscription", ["MainThread", 2]),
        (later, None, "subscription", ["later"]),
        (pair, False, "subscription", [[1, 2]]),
    ],
)
async def test_each_kind_of_handler_runs_where_it_belongs(function, blocking, type_, found):
    async with OperationRegistry() as registry:
        registry.register_spec(spec(type=type_))
        registry.register_handler("t.op", function, blocking=blocking)
        assert [one.data async for one in registry.subscribe("t.op", 5)] == found
        assert (await registry.execute("t.op", 5)).data == found[0]


async def test_a_subscription_without_an_item_has_no_first_one():
    async def nothing(input, context):
        return
        yield

    async with OperationRegistry() as registry:
        registry.register(spec(type="subscription"), nothing)
        with pytest.raises(CallError) as caught:
            await registry.execute("t.op")
    message = 'the subscription "t.op" ended without an item'
    assert (caught.value.code, caught.value.message) == (ErrorCode.EXECUTION_ERROR, message)
    assert caught.value.details == {"message": message}


# --- the catalogue --------------------------------------------------------------------------------


def test_an_id_that_is_taken_names_both_owners_and_the_mend():
    catalogue = Catalogue()
    catalogue.add(entry_of(handler=handler, owner='source "a"'))
    with pytest.raises(RegistrationError) as caught:
        catalogue.add(entry_of(handler=handler, owner='source "b"'))
    assert str(caught.value) == (
        'operation "t.op" is registered already by source "a", and now again by source "b"; '
        "rename one of them, or pass replace=True"
    )
    catalogue.add(entry_of(owner='source "b"'), replace=True)
    assert catalogue.entries["t.op"].label == 'source "b"'


def test_a_handler_waits_for_its_spec_and_a_spec_for_its_handler():
    catalogue = Catalogue()
    catalogue.add_handler("t.op", handler, False)
    assert catalogue.handler("t.op") is handler
    with pytest.raises(RegistrationError, match="has a handler already, from the application"):
        catalogue.add_handler("t.op", plain, None)
    with pytest.raises(RegistrationError, match="has a handler already"):
        catalogue.add(entry_of(handler=plain))
    catalogue.add(entry_of())
    entry = catalogue.entries["t.op"]
    assert (entry.handler, entry.blocking, catalogue.handlers) == (handler, False, {})
    with pytest.raises(RegistrationError, match="pass replace=True to replace it"):
        catalogue.add_handler("t.op", plain, None)
    catalogue.add_handler("t.op", plain, True, replace=True)
    assert (catalogue.handler("t.op"), catalogue.entries["t.op"].blocking) == (plain, True)
    assert catalogue.handler("t.other") is None


def test_a_handler_of_its_own_is_not_exchanged_for_one_that_waits():
    catalogue = Catalogue()
    catalogue.add_handler("t.op", handler, None)
    catalogue.add(entry_of(handler=plain), replace=True)
    assert (catalogue.handler("t.op"), catalogue.handlers) == (plain, {})


def test_a_spec_that_replaces_another_keeps_the_handler_unless_it_is_new():
    catalogue = Catalogue()
    catalogue.add(entry_of(handler=handler))
    catalogue.add_spec(entry_of(title="new"), replace=True)
    assert (catalogue.entries["t.op"].spec.title, catalogue.handler("t.op")) == ("new", handler)
    catalogue.add_spec(entry_of("other"), replace=True)
    assert catalogue.handler("t.other") is None
    with pytest.raises(RegistrationError, match="registered already"):
        catalogue.add_spec(entry_of())


def test_observers_learn_of_what_is_new_or_other_and_of_nothing_else(caplog):
    told = []

    def broken(spec):
        raise ValueError("no")

    catalogue = Catalogue(
        (broken, lambda spec: told.append(("added", spec.title))),
        (lambda spec: told.append(("removed", spec.title)),),
    )
    catalogue.add(entry_of(title="a"))
    catalogue.add(entry_of(title="a"), replace=True)
    assert told == [("added", "a")]
    catalogue.add(entry_of(title="b"), replace=True)
    assert told[1:] == [("removed", "a"), ("added", "b")]
    catalogue.remove("t.op")
    assert told[3:] == [("removed", "b")]
    assert "failed for operation t.op" in caplog.text
    with pytest.raises(RegistrationError, match=r'operation "t\.op" is not registered'):
        catalogue.remove("t.op")


def test_one_kind_of_observer_is_enough():
    told = []
    adds, removes = (
        Catalogue((lambda spec: told.append("added"),)),
        Catalogue((), (lambda spec: told.append("removed"),)),
    )
    for catalogue in (adds, removes):
        catalogue.add(entry_of())
        catalogue.remove("t.op")
    assert told == ["added", "removed"]


def test_each_change_is_told_with_its_id_until_the_watcher_stops():
    catalogue = Catalogue()
    told = []
    stop = catalogue.watch(told.append)
    catalogue.add(entry_of())
    catalogue.add_handler("t.op", handler, None)
    catalogue.remove("t.op")
    assert told == ["t.op"] * 3
    stop()
    stop()
    catalogue.add(entry_of())
    assert len(told) == 3


def test_specs_are_sorted_and_the_same_until_something_changes():
    catalogue = Catalogue()
    for name in "bac":
        catalogue.add(entry_of(name))
    found = catalogue.specs()
    assert [one.name for one in found] == ["a", "b", "c"]
    assert catalogue.specs() is found
    catalogue.remove("t.a")
    assert [one.name for one in catalogue.specs()] == ["b", "c"]


# --- worker threads -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1])
def test_a_pool_has_at_least_one_thread(size):
    with pytest.raises(ValueError, match=f"max_threads: expected 1 or more, got {size}"):
        Workers(size)
    Workers(1)


async def test_what_a_thread_calls_after_the_end_of_its_call_is_refused():
    begun, go, told = threading.Event(), threading.Event(), []

    def slow(input, context):
        begun.set()
        go.wait(10)
        assert context.cancelled
        try:
            context.call_sync("t.other")
        except CallError as error:
            told.append(error)

    async with OperationRegistry() as registry:
        registry.register(spec(), slow)
        registry.register(spec("other"), handler)
        task = asyncio.ensure_future(registry.execute("t.op"))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        for _ in range(500):
            await asyncio.sleep(0.002)
            if told:
                break
    assert (told[0].code, told[0].message) == ("ABORTED", "the call of this handler has ended")


async def test_a_call_from_a_thread_may_not_block_the_loop():
    def wrong(input, context):
        return context.call_sync("t.other")

    async with OperationRegistry() as registry:
        registry.register(spec("other"), handler)
        registry.register(spec(), plain)

        async def inside(input, context):
            return context.call_sync("t.other")

        registry.register(spec("inside"), inside)
        registry.register(spec("right"), wrong)
        with pytest.raises(CallError):
            await registry.execute("t.inside")
        assert (await registry.execute("t.right")).data == {}


async def test_a_handler_that_raises_stop_iteration_does_not_hang():
    def stops(input, context):
        raise StopIteration

    async with OperationRegistry() as registry:
        registry.register(spec(), stops)
        with pytest.raises(CallError) as caught:
            await registry.execute("t.op")
    assert "StopIteration" in repr(caught.value.__cause__)


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


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ("keep", "keep"),
        ({}, "cast"),
        ({"t.*": "off"}, "off"),
        ({"*": "keep", "t.op": "off"}, "off"),
        ({"x.*": "off"}, "cast"),
        ({"t.o*": "keep", "t*": "off"}, "keep"),
    ],
)
def test_the_longest_pattern_says_how_data_are_normalised(rule, word):
    assert ResultPipeline(EnvelopeKinds(), normalize=rule).normalize_of("t.op") == word


@pytest.mark.parametrize("rule", ["fast", {"*": "fast"}])
def test_an_unknown_way_to_normalise_is_refused(rule):
    with pytest.raises(
        ValueError, match=r"'normalize' must be in \('cast', 'complete', 'keep', 'off'\) \(got 'fast'\)"
    ):
        ResultPipeline(EnvelopeKinds(), normalize=rule)


SHAPE = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"]}


def applied(value, **options):
    return ResultPipeline(EnvelopeKinds(), **options).finisher(spec(output_schema=SHAPE))(value)


@pytest.mark.parametrize(
    ("options", "value", "data", "warned"),
    [
        ({}, {"a": "1", "b": "x", "c": 1}, {"a": 1, "b": "x"}, False),
        ({}, {"a": 1}, {"a": 1}, True),
        ({"normalize": "complete"}, {"a": 1, "c": 1}, {"a": 1, "b": ""}, True),
        ({"normalize": "keep"}, {"a": "1", "b": "x", "c": 1}, {"a": 1, "b": "x", "c": 1}, False),
        ({"normalize": "keep"}, {"a": 1}, {"a": 1}, True),
        ({"normalize": "off"}, {"a": "1", "b": "x"}, {"a": "1", "b": "x"}, True),
        ({"normalize": "off"}, {"b": "x"}, {"b": "x"}, False),
        ({"on_mismatch": "ignore"}, {"a": 1}, {"a": 1}, False),
        ({"normalize": "complete", "on_mismatch": "ignore"}, {"a": 1}, {"a": 1, "b": ""}, False),
        ({"normalize": "off", "on_mismatch": "ignore"}, {"a": "1"}, {"a": "1"}, False),
    ],
)
def test_what_becomes_of_data_that_do_not_match(options, value, data, warned, caplog):
    assert applied(value, **options).data == data
    lines = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(lines) == warned
    if warned:
        assert 'the result of "t.op" does not match its output schema: expected ' in lines[0].getMessage()
        assert (lines[0].operation_id, len(lines[0].paths)) == ("t.op", 1)


def test_data_that_do_not_match_are_an_error_where_that_is_asked_for():
    with pytest.raises(CallError) as caught:
        applied({"a": 1}, on_mismatch="raise")
    assert caught.value.code == ErrorCode.EXECUTION_ERROR
    assert caught.value.details["message"] == caught.value.message
    assert caught.value.details["errors"] == [
        {"path": "$", "message": "expected the property 'b', got none at $", "keyword": "required"}
    ]


def test_the_first_five_mismatches_are_told(caplog):
    shape = {"properties": {f"p{number}": {"type": "integer"} for number in range(9)}}
    finish = ResultPipeline(EnvelopeKinds(), normalize="off").finisher(spec(output_schema=shape))
    finish({f"p{number}": "x" for number in range(6)})
    (record,) = caplog.records
    assert record.getMessage().count("expected integer") == 5
    assert len(record.paths) == 6


def test_what_a_cast_drops_and_invents_is_said_once_each(caplog):
    caplog.set_level(logging.INFO, "operad")
    finish = ResultPipeline(EnvelopeKinds(), "complete", on_mismatch="ignore").finisher(spec(output_schema=SHAPE))

    def said(value):
        caplog.clear()
        finish(value)
        return [one.getMessage() for one in caplog.records if one.levelno == logging.INFO]

    text = 'the cast to the output schema of "t.op" %s (logged once; see `received` of the envelope)'
    assert said({"b": "x"}) == []
    assert said({"b": "x", **{f"c{number}": 1 for number in range(6)}}) == [
        text % "drops $.c0, $.c1, $.c2, $.c3, $.c4, …"
    ]
    assert said({"b": "x", "c": 1}) == []
    assert said({"a": 1}) == [text % "fills in $.b"]
    assert said({"a": 1, "c": 1}) == []
    other = ResultPipeline(EnvelopeKinds(), "complete", on_mismatch="ignore").finisher(spec(output_schema=SHAPE))
    caplog.clear()
    other({f"c{number}": 1 for number in range(5)})
    assert [one.getMessage() for one in caplog.records] == [
        text % "drops $.c0, $.c1, $.c2, $.c3, $.c4", text % "fills in $.b",
    ]  # fmt: skip


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


async def test_a_method_of_no_object_is_told_how_to_be_registered():
    class Shop:
        @operation(namespace="shop")
        async def buy(self, thing: str) -> str:
            return thing

    async with OperationRegistry() as registry:
        with pytest.raises(RegistrationError, match=r"register that of an object, .*Shop\(…\)\.buy\)"):
            registry.register(Shop.buy)
        registry.register(Shop().buy)
        assert (await registry.execute("shop.buy", {"thing": "x"})).data == "x"
        assert registry.get_spec("shop.buy").type is OperationType.MUTATION
