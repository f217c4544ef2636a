"""Interceptors stand around calls: they see, change, answer or refuse them, and open nothing that is guarded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from core.tests.kit import data_of, echo, error_of, raising, spec, streaming, until
from operad import (
    AccessControl,
    CallError,
    Identity,
    OperationContext,
    OperationRegistry,
    ResponseEnvelope,
    local_envelope,
    operation,
)
from operad.plugin import InterceptedCall, Interceptor
from operad_testing import CallLog, make_plugin, plugins_of

INTEGER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ANN = Identity("ann", ["write"])


async def who(input: Any, context: OperationContext) -> Any:
    return None if context.identity is None else context.identity.id


async def count(input: Any, context: OperationContext) -> AsyncIterator[int]:
    for number in range(input["n"]):
        yield number


def registry_of(*interceptors: Any, **handlers: Any) -> OperationRegistry:
    registry = OperationRegistry()
    for name, handler in handlers.items():
        registry.register(spec(name, type="query", input_schema=INTEGER), handler)
    for each in interceptors:
        registry.use(each)
    return registry


def passing(change: Callable[[InterceptedCall], Any] = lambda call: call, items: Any = lambda item: item) -> Any:
    """Return an interceptor of streams that changes the call or the items."""

    async def tap(call: InterceptedCall, proceed: Any) -> Any:
        async for envelope in proceed(change(call)):
            yield items(envelope)

    return tap


def named(name: str, log: list[str]) -> Callable[..., Any]:
    async def tap(call: InterceptedCall, proceed: Any) -> Any:
        log.append(f"{name} in")
        try:
            return await proceed(call)
        finally:
            log.append(f"{name} out")

    return tap


def evolving(**changes: Any) -> Callable[..., Any]:
    async def tap(call: InterceptedCall, proceed: Any) -> Any:
        return await proceed(call.evolve(**changes))

    return tap


async def test_they_stand_from_the_outside_in_by_order_plugins_first_then_as_they_came() -> None:
    log: list[str] = []
    outer = Interceptor(named("outer", log), order=-1)
    plugin = make_plugin("p", operad_interceptors=[Interceptor(named("plugin", log)), outer])
    registry = OperationRegistry(plugins_of(plugin))
    registry.register(spec("echo"), echo)
    await registry.execute("t.echo")
    assert log[:2] == ["outer in", "plugin in"]
    log.clear()
    registry.use(named("one", log))
    registry.use(named("two", log))
    registry.use(named("first", log), order=-2)
    await registry.execute("t.echo")
    names = ["first", "outer", "plugin", "one", "two"]
    assert log == [f"{name} in" for name in names] + [f"{name} out" for name in reversed(names)]


async def test_patterns_choose_the_operations_and_removing_ends_it() -> None:
    log: list[str] = []
    registry = registry_of(echo=echo, other=who)
    remove = registry.use(named("tap", log), match=["t.e*", "x.*"])
    await registry.execute("t.echo", {"n": 1})
    await registry.execute("t.other", {"n": 1})
    assert log == ["tap in", "tap out"]
    remove()
    remove()
    await registry.execute("t.echo", {"n": 1})
    assert log == ["tap in", "tap out"]
    registry.use(named("late", log), match="t.other")
    await registry.execute("t.other", {"n": 1})
    assert log[2:] == ["late in", "late out"]


async def test_one_may_change_what_comes_and_what_goes_or_answer_itself() -> None:
    async def double(call: InterceptedCall, proceed: Any) -> Any:
        envelope = await proceed(call.evolve(input={"n": call.input["n"] * 2}))
        return ResponseEnvelope([envelope.data], envelope.meta)

    async def seven(call: InterceptedCall, proceed: Any) -> Any:
        if call.input["n"] == 7:
            return local_envelope("seven", call.spec.id)
        return await proceed(call)

    registry = registry_of(seven, double, echo=echo)
    assert (await registry.execute("t.echo", {"n": 2})).data == [{"n": 4}]
    assert (await registry.execute("t.echo", {"n": 7})).data == "seven"


async def writing(call: InterceptedCall, proceed: Any) -> Any:
    call.input["n"] = "many"
    return await proceed(call)


@pytest.mark.parametrize(
    "tap", [evolving(input={"n": "many"}), writing], ids=["another input", "one written into"]
)
async def test_an_input_that_an_interceptor_changed_is_validated_again(tap: Any) -> None:
    ran: list[Any] = []

    async def run(input: Any, context: OperationContext) -> None:
        ran.append(input)

    error = await error_of(registry_of(tap, run=run).execute("t.run", {"n": 1}), "invalid input")
    assert (error.code, ran) == ("VALIDATION_ERROR", [])


async def test_another_identity_is_checked_again_and_counts() -> None:
    registry = registry_of()
    registry.register(spec("guarded", access_control=AccessControl(required_scopes=["write"])), who)
    registry.register(spec("open"), who)
    remove = registry.use(evolving(identity=Identity("bob")))
    context = OperationContext(identity=ANN)
    with pytest.raises(CallError, match="^ACCESS_DENIED"):
        await registry.execute("t.guarded", {}, context)
    assert (await registry.execute("t.open", {}, context)).data == "bob"
    remove()
    registry.use(evolving(identity=ANN))
    assert (await registry.execute("t.open", {})).data == "ann"
    # Checked before: an interceptor lends no identity.
    with pytest.raises(CallError, match="does not have the scopes write"):
        await registry.execute("t.guarded", {})


@pytest.mark.parametrize("way", ["evolve", "context", "in place", "spec"])
async def test_none_can_make_a_call_trusted_or_one_of_another_operation(way: str) -> None:
    async def trust(call: InterceptedCall, proceed: Any) -> Any:
        if way == "evolve":
            call = call.evolve(trusted=True)
        elif way == "context":
            call = call.evolve(context=OperationContext(trusted=True), identity=Identity("root"))
        elif way == "spec":
            call = InterceptedCall(spec("x"), call.input, call.context)
        else:
            call.context.trusted = True
            call.context.identity = Identity("root")
        return await proceed(call)

    error = await error_of(registry_of(trust, echo=echo).execute("t.echo", {"n": 1}), "trusted")
    assert error.code == "EXECUTION_ERROR"


async def test_access_and_input_are_checked_before_any_of_them() -> None:
    log: list[str] = []
    registry = registry_of(named("tap", log))
    guard = AccessControl(required_scopes=["write"])
    registry.register(spec("guarded", access_control=guard, input_schema=INTEGER), echo)
    for input, context in [({"n": 1}, None), ({"n": "x"}, OperationContext(trusted=True))]:
        await error_of(registry.execute("t.guarded", input, context))
    assert log == []


async def test_going_on_twice_is_for_what_may_run_again() -> None:
    async def again(call: InterceptedCall, proceed: Any) -> Any:
        await proceed(call)
        return await proceed(call)

    runs = []

    async def run(input: Any, context: Any) -> Any:
        runs.append(context)
        return len(runs)

    registry = registry_of(again)
    registry.register(spec("query", type="query"), run)
    registry.register(spec("put", type="mutation", idempotent=True), run)
    registry.register(spec("post", type="mutation"), run)
    assert (await registry.execute("t.query")).data == 2
    assert (await registry.execute("t.put")).data == 4
    with pytest.raises(CallError, match="only queries and idempotent mutations may run again"):
        await registry.execute("t.post")
    assert len(runs) == 5


async def test_they_see_call_errors_only_and_theirs_pass_as_they_are() -> None:
    seen: list[str] = []

    async def nested(input: Any, context: Any) -> Any:
        return await context.env["t.absent"]({})

    async def watch(call: InterceptedCall, proceed: Any) -> Any:
        try:
            return await proceed(call)
        except BaseException as error:
            seen.append(f"{type(error).__name__} {getattr(error, 'code', '')}")
            raise

    async def refuse(call: InterceptedCall, proceed: Any) -> Any:
        if call.spec.name == "echo":
            raise CallError("OVERLOADED", "come back later")
        return await proceed(call)

    registry = registry_of(refuse, watch, boom=raising(KeyError("secret")), nested=nested, echo=echo)
    for name, code in [("boom", "EXECUTION_ERROR"), ("nested", "EXECUTION_ERROR"), ("echo", "OVERLOADED")]:
        assert (await error_of(registry.execute(f"t.{name}", {"n": 1}))).code == code
    assert seen == ["CallError EXECUTION_ERROR", "CallError EXECUTION_ERROR"]


@pytest.mark.parametrize("answer", [None, {"data": 1}, 7])
async def test_what_is_no_envelope_is_no_answer(answer: Any) -> None:
    async def tap(call: InterceptedCall, proceed: Any) -> Any:
        return answer

    with pytest.raises(CallError, match=f"must return a ResponseEnvelope, got {type(answer).__name__}"):
        await registry_of(tap, echo=echo).execute("t.echo", {"n": 1})


async def test_what_they_raise_by_mistake_is_an_error_of_the_call() -> None:
    registry = registry_of(raising(ZeroDivisionError("oops")), echo=echo)
    error = await error_of(registry.execute("t.echo", {"n": 1}), "oops")
    assert (error.code, error.undeclared) == ("EXECUTION_ERROR", True)


def test_only_what_can_be_awaited_is_taken() -> None:
    registry = OperationRegistry()

    def plain(call: Any, proceed: Any) -> Any:
        return proceed(call)

    async def coroutine(call: Any, proceed: Any) -> Any:
        return await proceed(call)

    with pytest.raises(TypeError, match="^call: expected an async def, got"):
        registry.use(plain)
    with pytest.raises(TypeError, match="^subscribe: expected an async def with yield, got"):
        registry.use(coroutine, subscribe=coroutine)  # type: ignore[arg-type]  # the mistake is the subject
    with pytest.raises(TypeError, match="expected a function"):
        registry.use(None)


async def test_they_run_under_the_deadline_and_may_shorten_it_but_not_more() -> None:
    async def slow(input: Any, context: Any) -> Any:
        await asyncio.sleep(30)

    def ending(ms: float) -> Any:
        async def tap(call: InterceptedCall, proceed: Any) -> Any:
            return await proceed(call.evolve(deadline=time.time() * 1000 + ms))

        return tap

    for tap, timeout in [(ending(20), 30.0), (ending(20), None), (ending(60_000), 0.02), (slow, 0.02)]:
        with pytest.raises(CallError, match="^TIMEOUT"):
            await registry_of(tap, slow=slow).execute("t.slow", {"n": 1}, timeout=timeout)


async def test_a_cancelled_call_is_cancelled_in_its_own_task() -> None:
    log: list[str] = []
    tasks: list[Any] = []

    async def slow(input: Any, context: OperationContext) -> Any:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(30)

    call = asyncio.create_task(registry_of(named("tap", log), slow=slow).execute("t.slow", {"n": 1}))
    await until(lambda: tasks)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (tasks, log) == ([call], ["tap in", "tap out"])


async def test_nested_calls_pass_through_them_and_observers_see_the_outcome() -> None:
    log: list[str] = []
    calls = CallLog()

    @operation(namespace="t")
    async def outer(context: OperationContext) -> Any:
        return (await context.env["t.inner"]({})).data

    @operation(namespace="t")
    async def inner() -> int:
        return 1

    async def refuse(call: InterceptedCall, proceed: Any) -> Any:
        log.append(call.spec.id)
        if call.spec.name == "inner":
            raise CallError("CLOSED", "not today")
        return await proceed(call)

    registry = OperationRegistry(plugins_of(calls))
    for item in (outer, inner):
        registry.register(item)
    registry.use(refuse)
    with pytest.raises(CallError, match="not today"):
        await registry.execute("t.outer")
    assert log == ["t.outer", "t.inner"]
    assert [outcome.error.code for _, outcome in calls.finished if outcome.error] == ["CLOSED", "CLOSED"]


async def test_operations_that_a_source_changes_find_theirs_again() -> None:
    log: list[str] = []
    registry = registry_of(named("tap", log), echo=echo)
    await registry.execute("t.echo", {"n": 1})
    registry.register(spec("echo"), who, replace=True)
    registry.register(spec("new"), who)
    await registry.execute("t.echo")
    await registry.execute("t.new")
    assert log == ["tap in", "tap out"] * 3


def streams_of(handler: Any, *interceptors: Any, call: Any = None) -> OperationRegistry:
    registry = OperationRegistry()
    registry.register(spec("count", type="subscription", input_schema=INTEGER), handler)
    for each in interceptors:
        registry.use(call, subscribe=each)
    return registry


# --- streams ---------------------------------------------------------------------------------------------


async def test_streams_have_interceptors_of_their_own() -> None:
    log: list[str] = []

    async def even(call: InterceptedCall, proceed: Any) -> Any:
        async for envelope in proceed(call.evolve(input={"n": call.input["n"] + 1})):
            if envelope.data % 2 == 0:
                yield envelope

    registry = streams_of(count, even, call=named("call", log))
    assert await data_of(registry.subscribe("t.count", {"n": 6})) == [0, 2, 4, 6]
    assert log == []
    assert (await registry.execute("t.count", {"n": 6})).data == 0
    assert log == ["call in", "call out"]


def forever(closed: list[str]) -> Any:
    """Return a handler that notes when it is closed."""

    async def ones(input: Any, context: Any) -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append("handler")

    return ones


async def test_a_stream_that_is_left_closes_what_they_opened() -> None:
    closed: list[str] = []

    def tap(name: str) -> Any:
        async def through(call: InterceptedCall, proceed: Any) -> Any:
            try:
                async for envelope in proceed(call):
                    yield envelope
            finally:
                closed.append(name)

        return through

    stream = streams_of(forever(closed), tap("outer"), tap("inner")).subscribe("t.count", {"n": 1})
    assert (await anext(stream)).data == 1
    await stream.aclose()
    assert closed == ["outer", "inner", "handler"]


async def test_a_stream_that_is_left_closes_what_they_opened_though_one_of_them_fails_on_its_way_out() -> None:
    closed: list[str] = []

    async def broken(call: InterceptedCall, proceed: Any) -> Any:
        try:
            async for envelope in proceed(call):
                yield envelope
        finally:
            raise ValueError("on the way out")

    async def stubborn(call: InterceptedCall, proceed: Any) -> Any:
        try:
            async for envelope in proceed(call):
                yield envelope
        except GeneratorExit:
            yield local_envelope(2, "t.count")

    for tap in (broken, stubborn):
        stream = streams_of(forever(closed), tap).subscribe("t.count", {"n": 1})
        assert (await anext(stream)).data == 1
        with pytest.raises((ValueError, RuntimeError)):
            await stream.aclose()
        assert closed.pop() == "handler"


async def test_streams_are_checked_bounded_and_answer_envelopes_too() -> None:
    async def slow(input: Any, context: Any) -> AsyncIterator[int]:
        yield 0
        await asyncio.sleep(30)

    async def again(call: InterceptedCall, proceed: Any) -> Any:
        for _ in range(2):
            async for envelope in proceed(call):
                yield envelope

    for handler, tap, timeout, code in [
        (count, passing(lambda call: call.evolve(input={"n": "x"})), None, "VALIDATION_ERROR"),
        (count, passing(lambda call: call.evolve(trusted=True)), None, "EXECUTION_ERROR"),
        (count, passing(items=lambda item: item.data), None, "EXECUTION_ERROR"),
        (count, again, None, "EXECUTION_ERROR"),
        (slow, passing(), 0.02, "TIMEOUT"),
    ]:
        items = streams_of(handler, tap).subscribe("t.count", {"n": 2}, timeout=timeout)
        assert (await error_of(data_of(items))).code == code


async def test_a_handlers_error_in_a_stream_is_a_call_error_for_them() -> None:
    seen: list[str] = []

    async def watch(call: InterceptedCall, proceed: Any) -> Any:
        try:
            async for envelope in proceed(call):
                yield envelope
        except CallError as error:
            seen.append(error.code)
            raise CallError("BROKEN", "the stream broke") from error

    stream = streams_of(streaming(0, KeyError("x")), watch).subscribe("t.count", {"n": 1})
    assert (await anext(stream)).data == 0
    assert (await error_of(anext(stream), "the stream broke")).code == "BROKEN"
    assert seen == ["EXECUTION_ERROR"]


async def test_going_on_with_what_is_no_call_and_changing_one_in_place_are_told(caplog: Any) -> None:
    registry = registry_of(echo=echo)

    async def lost(call: Any, proceed: Any) -> Any:
        return await proceed(call.input)

    async def changed(call: Any, proceed: Any) -> Any:
        call.input = {}
        return await proceed(call)

    for interceptor, says in (
        (lost, r"proceed takes call or call\.evolve"),
        (changed, "can't set attribute|FrozenInstanceError"),
    ):
        remove = registry.use(interceptor)
        with pytest.raises(CallError, match=says):
            await registry.execute("t.echo", {"n": 1})
        remove()
    assert (await registry.execute("t.echo", {"n": 1})).data == {"n": 1}


@pytest.mark.parametrize("is_started", [False, True])
async def test_a_kept_proceed_runs_no_handler_after_the_call_has_ended(is_started: bool) -> None:
    ran: list[Any] = []
    kept: list[Any] = []

    async def handler(input: Any, context: OperationContext) -> str:
        ran.append(input)
        return "x"

    async def tap(call: InterceptedCall, proceed: Any) -> ResponseEnvelope[Any]:
        kept.append(proceed(call) if is_started else lambda: proceed(call))
        return local_envelope("mine", "t.op")

    assert (await registry_of(tap, op=handler).execute("t.op", {"n": 1})).data == "mine"
    with pytest.raises(RuntimeError, match="after the call had ended"):
        await (kept.pop() if is_started else kept.pop()())
    assert ran == []


async def test_a_kept_proceed_of_a_stream_opens_nothing_after_the_stream_has_ended() -> None:
    kept: list[Any] = []

    async def tap(call: InterceptedCall, proceed: Any) -> AsyncIterator[ResponseEnvelope[Any]]:
        kept.append(lambda: proceed(call))
        yield local_envelope("mine", "t.op")

    assert await data_of(streams_of(count, tap).subscribe("t.count", {"n": 1})) == ["mine"]
    with pytest.raises(RuntimeError, match="after the call had ended"):
        kept.pop()()


@pytest.mark.parametrize("ways", ["execute", "subscribe"])
async def test_an_interceptor_that_sets_a_field_of_the_input_does_not_change_the_callers_object(ways: str) -> None:
    async def items(input: Any, context: OperationContext) -> AsyncIterator[Any]:
        yield input

    async def tap(call: InterceptedCall, proceed: Any) -> ResponseEnvelope[Any]:
        call.input["n"] = 2
        return await proceed(call)

    async def taps(call: InterceptedCall, proceed: Any) -> AsyncIterator[ResponseEnvelope[Any]]:
        call.input["n"] = 2
        async for envelope in proceed(call):
            yield envelope

    given = {"n": 1, "file": b"x"}
    async with streams_of(items, taps, call=tap) as registry:
        calling = registry.execute if ways == "execute" else lambda *call: anext(registry.subscribe(*call))
        assert (await calling("t.count", given)).data == {"n": 2, "file": b"x"}
    assert given == {"n": 1, "file": b"x"}
