"""The way of a call piece by piece: its context, interceptors, views, sources, handles, and who is told what."""

import asyncio
import math
from types import SimpleNamespace

import attrs
import pytest

from operad import (
    AccessControl,
    CallError,
    ErrorCode,
    Identity,
    Operation,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    local_envelope,
    operation,
)
from operad.config.sources import SourceOptions
from operad.envelopes import EnvelopeKinds
from operad.errors import ConfigError, PluginError, RegistrationError, SourceError
from operad.functions.typed_calls import with_key
from operad.plugins import discovery
from operad.registry.catalogue import Catalogue
from operad.registry.entry import Entry
from operad.registry.interceptors import InterceptedCall, Interceptor, Interceptors, contributed
from operad.registry.loaded import LoadedSource
from operad.registry.pipeline import ResultPipeline
from operad.registry.views import Selection, combined_access
from operad.sources import Source
from operad.usage import Usage
from operad_testing import make_plugin, plugins_of

ANN = Identity(id="ann", scopes=frozenset({"s"}))
PIPELINE = ResultPipeline(EnvelopeKinds())


async def echo(input, context):
    return input


def spec(name="op", **more):
    return OperationSpec(namespace="t", name=name, **{"type": "query", **more})


def registry_of(*names, **more):
    registry = OperationRegistry()
    for name in names:
        registry.register(spec(name, **more), echo)
    return registry


def seen_by(registry, name="see"):
    """The contexts with which an operation is called."""
    found = []

    async def see(input, context):
        found.append(context)
        return input

    registry.register(spec(name), see)
    return found


# --- the context of a call ------------------------------------------------------------------------


async def test_each_call_has_an_id_of_its_own_or_the_one_that_it_was_given():
    registry = OperationRegistry()
    found = seen_by(registry)
    for context in (None, None, OperationContext(), OperationContext(request_id="mine", identity=ANN)):
        await registry.execute("t.see", 1, context)
    first, second = found[0].request_id, found[1].request_id
    prefix, _, number = first.rpartition("-")
    assert (len(prefix), second) == (16, f"{prefix}-{int(number) + 1}")
    assert found[2].request_id not in (None, first, second)
    assert (found[3].request_id, found[3].identity) == ("mine", ANN)
    assert found[0].trusted is False


async def test_a_context_that_a_handler_got_makes_a_nested_call():
    registry = OperationRegistry()
    found = seen_by(registry)

    async def outer(input, context):
        await registry.execute("t.see", 1, context)

    registry.register(spec("outer"), outer)
    await registry.execute("t.outer", 1, OperationContext(request_id="a", identity=ANN, trusted=True))
    assert (found[0].parent_request_id, found[0].identity, found[0].trusted) == ("a", ANN, True)
    assert found[0].request_id != "a"


@pytest.mark.parametrize("trusted", [1, "yes", object()])
async def test_only_true_is_trusted(trusted):
    registry = OperationRegistry()
    found = seen_by(registry)
    registry.register(spec("shut", access_control=AccessControl(required_scopes=("x",))), echo)
    context = OperationContext()
    context.trusted = trusted
    await registry.execute("t.see", 1, context)
    assert found[0].trusted is False
    with pytest.raises(CallError) as caught:
        await registry.execute("t.shut", 1, context)
    assert caught.value.code == ErrorCode.ACCESS_DENIED


async def test_what_a_handler_sees_of_the_callers_metadata_it_cannot_change():
    registry = OperationRegistry()
    found = seen_by(registry)
    mine = {"a": 1}
    await registry.execute("t.see", 1, OperationContext(metadata=mine))
    with pytest.raises(TypeError):
        found[0].metadata["a"] = 2
    assert mine == {"a": 1}


@pytest.mark.parametrize("context", [{}, "x", 5])
async def test_what_is_no_context_is_refused(context):
    message = f"context: expected an OperationContext, got {type(context).__name__}"
    with pytest.raises(CallError, match=message) as caught:
        await registry_of("op").execute("t.op", 1, context)
    assert (caught.value.code, caught.value.details) == (ErrorCode.VALIDATION_ERROR, {"message": message})


@pytest.mark.parametrize("deadline", ["soon", math.nan, True])
async def test_a_deadline_that_is_none_is_refused(deadline):
    with pytest.raises(CallError, match="deadline: expected epoch ms as a number, got"):
        await registry_of("op").execute("t.op", 1, OperationContext(deadline=deadline))


@pytest.mark.parametrize(
    ("key", "taken"), [("k", True), ("x" * 256, None), ("", False), ("a\nb", False), (5, False)]
)
async def test_a_key_is_a_short_printable_text(key, taken):
    from operad.context import LONGEST_KEY

    key, taken = ("x" * LONGEST_KEY, True) if taken is None else (key, taken)
    registry = registry_of("op")
    call = registry.execute("t.op", 1, idempotency_key=key)
    if taken:
        await call
    else:
        with pytest.raises(CallError, match=f"idempotency_key: expected 1 to {LONGEST_KEY} printable characters"):
            await call
    with pytest.raises(CallError):
        await registry.execute("t.op", 1, idempotency_key="x" * (LONGEST_KEY + 1))


@pytest.mark.parametrize(
    ("schema", "given"),
    [(True, {}), ({"type": "object"}, {}), ({"type": ["object", "null"]}, {}), ({"type": "null"}, None),
     ({"type": "object", "required": ["a"]}, {})],
)  # fmt: skip
async def test_an_input_that_is_left_out_is_empty_unless_null_is_what_is_taken(schema, given):
    registry = OperationRegistry()
    got = []

    async def take(input, context):
        got.append(input)

    registry.register(spec(input_schema=schema), take)
    try:
        await registry.execute("t.op")
    except CallError as error:
        got.append(error.details["errors"][0]["message"])
        given = "expected the property 'a', got none at $"
    assert got == [given]
    registry.register(spec("stream", type="subscription", input_schema=schema), take)
    got.clear()
    try:
        async for _ in registry.subscribe("t.stream"):
            pass
    except CallError as error:
        got.append(error.details["errors"][0]["message"])
    assert got == [given]


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("t.lisst", '; did you mean "t.list"?'),
        ("t.zzzz", ""),
        ("t.list" + "x" * 9, ""),
        ("t.lis", '; did you mean "t.list"?'),
    ],
)
async def test_an_id_that_is_not_here_is_told_with_the_one_that_was_meant(asked, hint):
    with pytest.raises(CallError) as caught:
        await registry_of("list", "other").execute(asked)
    assert caught.value.code == ErrorCode.OPERATION_NOT_FOUND
    assert caught.value.message == f'operation "{asked}" not found{hint}'


async def test_an_operation_without_a_handler_says_so():
    registry = OperationRegistry()
    registry.register_spec(spec())
    with pytest.raises(CallError, match=r'no handler registered for operation "t\.op"'):
        await registry.execute("t.op")


def test_a_registry_belongs_to_one_loop_at_a_time():
    registry = registry_of("op")
    first = asyncio.new_event_loop()
    first.run_until_complete(registry.execute("t.op", 1))
    with pytest.raises(RuntimeError, match="this registry is used in another event loop already"):
        asyncio.run(registry.execute("t.op", 1))
    first.close()
    assert asyncio.run(registry.execute("t.op", 1)).data == 1


@pytest.mark.parametrize(
    ("error", "code", "logged"),
    [
        (ValueError("odd"), "UNKNOWN_ERROR", True),
        (asyncio.CancelledError(), "ABORTED", False),
        (CallError("BROKEN", "it is"), "BROKEN", False),
    ],
)
async def test_what_a_handler_raises_is_a_call_error_and_logged_when_nobody_expected_it(
    error, code, logged, caplog
):
    registry = OperationRegistry()

    async def fail(input, context):
        raise error

    async def fail_later(input, context):
        yield 1
        raise error

    registry.register(spec(), fail)
    registry.register(spec("later", type="subscription"), fail_later)
    with pytest.raises(CallError) as caught:
        await registry.execute("t.op")
    found = caught.value
    assert found.code == code or (logged and found.undeclared)
    assert (found.logged, "operation 't.op' raised" in caplog.text) == (logged, logged)
    stream = registry.subscribe("t.later")
    assert (await anext(stream)).data == 1
    with pytest.raises(CallError) as caught:
        await anext(stream)
    assert caught.value.code == found.code


async def test_a_stream_has_its_timeout_for_each_item(standing_clock):
    registry = OperationRegistry()

    async def slow(input, context):
        yield 1
        await asyncio.sleep(60)

    registry.register(spec("slow", type="subscription"), slow)
    stream = registry.subscribe("t.slow", timeout=0.02)
    assert (await anext(stream)).data == 1
    with pytest.raises(CallError, match=r'"t\.slow" did not finish in time') as caught:
        await anext(stream)
    assert caught.value.code == ErrorCode.TIMEOUT
    assert caught.value.details["deadline"] > 0


# --- observers ------------------------------------------------------------------------------------


async def test_an_observer_learns_of_a_call_and_its_end_until_it_is_taken_away():
    registry = registry_of("op")
    rows = []
    stop = registry.observe(
        started=lambda call: rows.append((0, call)), finished=lambda call, outcome: rows.append((1, outcome))
    )
    await registry.execute("t.op", 1, OperationContext(identity=ANN, parent_request_id="p", request_id="r"))
    (_, record), (_, outcome) = rows
    assert (record.request_id, record.parent_request_id, record.operation_id) == ("r", "p", "t.op")
    assert (record.type.value, record.identity_id, record.is_stream) == ("query", "ann", False)
    assert outcome.items == 1
    async for _ in registry.subscribe("t.op", 1):
        pass
    assert (rows[2][1].is_stream, rows[3][1].items) == (True, 1)
    with pytest.raises(CallError):
        await registry.execute("t.none")
    assert (rows[4][1].type, rows[5][1].items) == (None, 0)
    stop()
    stop()
    await registry.execute("t.op", 1)
    assert len(rows) == 6


# --- interceptors ---------------------------------------------------------------------------------


def tap_of(name, log):
    async def tap(call, proceed):
        log.append(name)
        return await proceed(call)

    return tap


async def test_interceptors_stand_by_order_then_plugins_then_as_they_came():
    log, changed = [], []
    every = Interceptors(
        [Interceptor(tap_of("plugin", log)), Interceptor(tap_of("outer", log), order=-1)],
        lambda: changed.append(1),
    )
    assert every
    remove = every.add(Interceptor(tap_of("first", log)))
    every.add(Interceptor(tap_of("second", log)))
    every.add(Interceptor(tap_of("before", log), order=-2))
    every.add(Interceptor(tap_of("other", log), match="x.*"))
    entry = Entry(spec(), echo, None, None, PIPELINE)

    async def handle(call):
        log.append("handler")
        return local_envelope(1, "t.op")

    await every.around_call(entry, handle)(InterceptedCall(entry.spec, 1, OperationContext()))
    assert log == ["before", "outer", "plugin", "first", "second", "handler"]
    assert len(changed) == 4
    remove()
    remove()
    assert len(changed) == 5
    assert every.around_stream(entry, handle) is None
    none = Interceptors([], lambda: None)
    assert (bool(none), none.around_call(entry, handle)) == (False, None)


@pytest.mark.parametrize(
    ("match", "matches"), [("*", True), ("t.*", True), ("x.*", False), (("x.*", "t.op"), True), ([], False)]
)
def test_which_operations_an_interceptor_stands_around(match, matches):
    assert Interceptor(match=match).matches("t.op") is matches


def test_an_interceptor_is_itself_alone():
    assert Interceptor(echo) != Interceptor(echo)
    assert repr(Interceptor(echo)).startswith("Interceptor(")


def test_an_interceptor_is_a_function_of_its_kind():
    async def items(call, proceed):
        yield 1

    with pytest.raises(TypeError, match="an interceptor of calls is an async def, got"):
        Interceptor(lambda call, proceed: None)
    with pytest.raises(TypeError, match="an interceptor of streams is an async def with yield, got"):
        Interceptor(subscribe=echo)
    Interceptor(echo, items)

    class Object:
        async def __call__(self, call, proceed):
            return await proceed(call)

    Interceptor(Object())


def test_what_a_plugin_contributes_is_checked():
    one, asked_with = Interceptor(), []

    def hook(registry):
        asked_with.append(registry)
        return [one]

    assert contributed([hook, lambda registry: None], "the registry") == [one]
    assert asked_with == ["the registry"]
    with pytest.raises(PluginError, match="must return Interceptors, got int"):
        contributed([lambda registry: [5]], None)
    with pytest.raises(PluginError, match="raised .*no.*; fix the plugin or disable it"):
        contributed([lambda registry: (_ for _ in ()).throw(ValueError("no"))], None)
    with pytest.raises(ConfigError, match="no such key"):
        contributed([lambda registry: (_ for _ in ()).throw(ConfigError("no such key"))], None)


def test_a_call_is_replaced_and_not_changed():
    context = OperationContext(deadline=5.0)
    call = InterceptedCall(spec(), 1, context)
    assert (call.limit, call.input, call.context) == (None, 1, context)
    other = call.evolve(input=2, metadata={"a": 1})
    assert (other.input, dict(other.context.metadata), call.input, other.limit) == (2, {"a": 1}, 1, None)
    sooner = call.evolve(deadline=3.0)
    assert (sooner.limit, sooner.evolve(input=3).limit, call.limit) == (3.0, 3.0, None)
    assert call.evolve(context=OperationContext(deadline=9.0)).limit == 9.0
    with pytest.raises(ValueError, match="an interceptor must not make a call trusted"):
        call.evolve(trusted=True)
    assert repr(call).startswith("InterceptedCall(spec=")


async def test_what_an_interceptor_changes_is_checked_again():
    registry = OperationRegistry()
    registry.register(
        spec(input_schema={"type": "integer"}, access_control=AccessControl(required_scopes=("s",))), echo
    )
    change = {}

    async def tap(call, proceed):
        return await proceed(call.evolve(**change))

    registry.use(tap)
    context = OperationContext(identity=ANN)
    assert (await registry.execute("t.op", 1, context)).data == 1
    change["input"] = 7
    assert (await registry.execute("t.op", 1, context)).data == 7
    change["input"] = "x"
    with pytest.raises(CallError) as caught:
        await registry.execute("t.op", 1, context)
    assert caught.value.code == ErrorCode.VALIDATION_ERROR
    change.clear()
    change["identity"] = Identity(id="bob", scopes=frozenset())
    with pytest.raises(CallError) as caught:
        await registry.execute("t.op", 1, context)
    assert caught.value.code == ErrorCode.ACCESS_DENIED


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda call: 5, "proceed takes the call or call.evolve(…), got int"),
        (lambda call: InterceptedCall(spec("x"), 1, call.context), "an interceptor can change neither"),
        (
            lambda call: InterceptedCall(call.spec, 1, OperationContext(trusted=True)),
            "an interceptor can change neither",
        ),
    ],
)
async def test_what_an_interceptor_may_not_pass_on(wrong, message, caplog):
    registry = registry_of("op")

    async def tap(call, proceed):
        return await proceed(wrong(call))

    registry.use(tap)
    with pytest.raises(CallError):
        await registry.execute("t.op", 1)
    assert message in caplog.text


@pytest.mark.parametrize(
    ("more", "runs"),
    [({}, 2), ({"type": "mutation"}, 1), ({"type": "mutation", "idempotent": True}, 2)],
)
async def test_only_what_may_run_again_runs_twice(more, runs, caplog):
    registry = OperationRegistry()
    ran = []

    async def work(input, context):
        ran.append(1)

    async def tap(call, proceed):
        await proceed(call)
        return await proceed(call)

    registry.register(spec(**more), work)
    registry.use(tap)
    try:
        await registry.execute("t.op")
    except CallError:
        assert 'an interceptor called proceed for "t.op" twice: only queries' in caplog.text
    assert len(ran) == runs


async def test_an_interceptor_answers_an_envelope():
    registry = registry_of("op")

    async def tap(call, proceed):
        return 5

    async def items(call, proceed):
        yield 5

    remove = registry.use(tap, subscribe=items)
    message = 'an interceptor of "t.op" returned int, not a ResponseEnvelope'
    with pytest.raises(CallError) as caught:
        await registry.execute("t.op", 1)
    assert (caught.value.code, caught.value.message) == (ErrorCode.EXECUTION_ERROR, message)
    assert caught.value.details == {"message": message}
    remove()
    assert (await registry.execute("t.op", 1)).data == 1


async def test_an_interceptor_of_streams_closes_what_it_leaves():
    registry = OperationRegistry()
    closed = []

    async def numbers(input, context):
        try:
            for number in range(9):
                yield number
        finally:
            closed.append("handler")

    async def first(call, proceed):
        async for envelope in proceed(call):
            yield envelope
            break

    registry.register(spec("n", type="subscription"), numbers)
    registry.use(subscribe=first)
    assert [one.data async for one in registry.subscribe("t.n")] == [0]
    assert closed == ["handler"]


# --- views ----------------------------------------------------------------------------------------


def view_spec(**more):
    return Selection(**more).shown(spec("op", access_control=AccessControl(required_scopes=("a",))))


def test_what_a_view_shows_of_an_operation():
    assert view_spec().id == "t.op"
    assert view_spec(prefix="x").id == "x.t.op"
    assert view_spec(rename={"t.op": "u.other"}).id == "u.other"
    assert view_spec(rename={"t.none": "u.other"}).id == "t.op"
    assert view_spec(rename=str.upper, prefix="x").id == "x.T.OP"
    guarded = view_spec(access=AccessControl(required_scopes=("b",)), prefix="x")
    assert (guarded.id, guarded.access_control.required_scopes) == ("x.t.op", ("a", "b"))
    with pytest.raises(RegistrationError, match=r'rename: expected "namespace\.name" for "t\.op", got "nodot"'):
        view_spec(rename={"t.op": "nodot"})


@pytest.mark.parametrize(
    ("include", "exclude", "chosen"),
    [("*", (), True), ("t.*", (), True), (("x.*", "t.op"), (), True), ("x.*", (), False), ("*", "t.*", False),
     ("t.*", ("x.*",), True)],
)  # fmt: skip
def test_which_operations_a_view_shows(include, exclude, chosen):
    selection = Selection(include=include, exclude=exclude)
    assert isinstance(selection, Selection)
    assert selection.chooses("t.op") is chosen


def test_two_requirements_are_one_where_that_can_be_said():
    def both(first, second):
        return combined_access(AccessControl(**first), AccessControl(**second), "t.op")

    assert both({"required_scopes": ("a", "b")}, {"required_scopes": ("b", "c")}).required_scopes == (
        "a",
        "b",
        "c",
    )
    assert both({"required_scopes_any": ("a", "b")}, {}).required_scopes_any == ("a", "b")
    assert both({}, {"required_scopes_any": ("a",)}).required_scopes_any == ("a",)
    assert both({"required_scopes_any": ("a", "b")}, {"required_scopes_any": ("b", "a")}).required_scopes_any == (
        "a",
        "b",
    )
    resource = {"resource_type": "r", "resource_action": "get"}
    for pair in ((resource, {}), ({}, resource)):
        found = both(*pair)
        assert (found.resource_type, found.resource_action) == ("r", "get")
    for pair in ((resource, resource), ({"required_scopes_any": ("a",)}, {"required_scopes_any": ("b",)})):
        with pytest.raises(RegistrationError, match='access of "t.op": it has such a requirement already'):
            both(*pair)


async def test_a_view_follows_its_registry_and_keeps_names(caplog):
    registry = registry_of("a", "b")
    view = registry.view(rename=lambda one: one if one != "t.c" else "t.a")
    assert (len(view), list(view), "t.a" in view, "t.c" in view) == (2, ["t.a", "t.b"], True, False)
    specs = view.specs()
    assert view.specs() is specs
    registry.register(spec("c"), echo)
    assert list(view) == ["t.a", "t.b"]
    assert caplog.text.count('left out of a view: "t.c" and "t.a" are both "t.a" in a view') == 1
    registry.register(spec("d"), echo)
    assert list(view) == ["t.a", "t.b", "t.d"]
    assert caplog.text.count("left out of a view") == 1
    registry.unregister("t.a")
    assert list(view) == ["t.a", "t.b", "t.d"], "now it is the other one's"
    assert view.get_handler("t.a") is echo
    assert (view.get_spec("t.none"), view.get_handler("t.none"), await view.describe("t.none")) == (
        None,
        None,
        None,
    )
    assert (await view.describe("t.b")).id == "t.b"
    with pytest.raises(RegistrationError, match="are both"):
        registry_of("a", "b").view(rename=lambda one: "t.x")


async def test_a_view_calls_by_its_names_and_what_it_requires():
    registry = registry_of("a")
    plain, guarded = registry.view(prefix="x"), registry.view(access=AccessControl(required_scopes=("s",)))
    assert (await plain.execute("x.t.a", 1)).data == 1
    with pytest.raises(CallError) as caught:
        await plain.execute("t.a", 1)
    assert caught.value.code == ErrorCode.OPERATION_NOT_FOUND
    with pytest.raises(CallError) as caught:
        await guarded.execute("t.a", 1)
    assert caught.value.code == ErrorCode.ACCESS_DENIED
    assert (await guarded.execute("t.a", 1, OperationContext(identity=ANN))).data == 1
    assert (await guarded.execute("t.a", 1, OperationContext(trusted=True))).data == 1
    nested = guarded.view(prefix="y", include="t.*")
    with pytest.raises(CallError):
        await nested.execute("y.t.a", 1)
    assert [one.data async for one in nested.subscribe("y.t.a", 1, OperationContext(identity=ANN))] == [1]
    assert plain.search("a", 5)[0].id == "x.t.a"
    with pytest.raises(RegistrationError, match="a view is read-only; change the registry that it shows"):
        plain.register(spec("z"), echo)
    async with plain:
        pass
    assert (await plain.execute("x.t.a", 1)).data == 1


async def test_observers_of_a_view_learn_both_names():
    registry = registry_of("a")
    rows = []
    registry.observe(started=lambda call: rows.append(call), finished=lambda call, outcome: rows.append(outcome))
    view = registry.view(prefix="x")
    await view.execute("x.t.a", 1)
    assert (rows[0].operation_id, rows[0].called_as, rows[1].items) == ("t.a", "x.t.a", 1)
    async for _ in view.subscribe("x.t.a", 1):
        pass
    assert (rows[2].operation_id, rows[2].called_as, rows[2].is_stream) == ("t.a", "x.t.a", True)
    with pytest.raises(CallError):
        await view.execute("x.none")
    assert rows[4].operation_id == "x.none"


@operation(namespace="shop")
async def price(thing: str, count: int = 1) -> int:
    """The price of a thing."""
    return len(thing) * count


async def test_an_operation_is_called_by_itself_wherever_it_is_shown():
    registry = OperationRegistry()
    registry.register(price)
    view = registry.view(rename={"shop.price": "s.p"})
    for where in (registry, view):
        assert await where.call(price, "abc", count=2) == 6
        assert (await where.execute(price, {"thing": "ab"})).data == 2
        assert [item async for item in where.stream(price, "abc")] == [3]
    with pytest.raises(TypeError, match="call takes an operation made from a function, got str"):
        await registry.call("shop.price", "abc")


async def test_bound_calls_carry_their_context_and_timeout():
    registry = OperationRegistry()
    found = seen_by(registry)
    bound = registry.bound(context=OperationContext(identity=ANN), timeout=50.0)
    await bound.execute("t.see", 1)
    await bound.execute("t.see", 1, OperationContext(), timeout=5.0)
    async for _ in bound.subscribe("t.see", 1):
        pass
    assert [None if one.identity is None else one.identity.id for one in found] == ["ann", None, "ann"]
    far, near = found[0].deadline, found[1].deadline
    assert 40_000 < far - near < 50_000
    assert (bound.get_spec("t.see").id, [one.id for one in bound.specs()]) == ("t.see", ["t.see"])


def test_a_key_goes_into_the_context():
    context = OperationContext(request_id="r")
    assert with_key(None, None) is None
    assert with_key(context, None) is context
    assert with_key(None, "k").idempotency_key == "k"
    made = with_key(context, "k")
    assert (made.idempotency_key, made.request_id, context.idempotency_key) == ("k", "r", None)


# --- handles --------------------------------------------------------------------------------------


async def test_an_operation_of_a_registry_explains_and_calls_itself():
    registry = OperationRegistry()
    registry.register(price)
    handle = registry["shop.price"]
    assert (handle.id, handle.__name__, repr(handle)) == (
        "shop.price",
        "shop.price",
        "<operation shop.price (mutation)>",
    )
    assert (await handle(thing="abc")).data == 3
    assert (await handle({"thing": "ab", "count": 2})).data == 4
    assert [one.data async for one in handle.subscribe(thing="a")] == [1]
    with pytest.raises(CallError, match=r'"shop\.price" got both an input and keywords; give one of them'):
        await handle({"thing": "a"}, count=2)
    assert list(handle.__signature__.parameters) == ["input", "thing", "count"]
    assert handle.__signature__.parameters["count"].default is None
    assert "Args:\n    thing: " in handle.__doc__
    assert "count: integer, optional" in handle.__doc__
    with pytest.raises(KeyError, match=r"unknown operation .*shop\.prise.*did you mean"):
        registry["shop.prise"]
    assert repr(registry).endswith("(1 operation in 1 namespace)")
    registry.register(spec("a"), echo)
    assert repr(registry).endswith("(2 operations in 2 namespaces)")
    assert (list(registry), registry._ipython_key_completions_()) == (["shop.price", "t.a"], ["shop.price", "t.a"])
    page = registry._repr_html_()
    assert "2 operations: shop (1), t (1)" in page
    assert "more; try search" not in page


@pytest.mark.parametrize(("count", "more"), [(100, False), (101, True), (102, True)])
def test_a_page_shows_a_hundred_operations(count, more):
    page = registry_of(*(f"n{number}" for number in range(count)))._repr_html_()
    assert (f"<p>… and {count - 100} more; try search(…)</p>" in page) is more
    assert page.count("t.n") == 100


# --- sources --------------------------------------------------------------------------------------


class Session:
    """A source's session, by hand."""

    def __init__(self, *names):
        self.operations = [operation_of(name) for name in names]
        self.closed = 0

    def on_change(self, callback):
        self.changed = callback

    async def aclose(self):
        self.closed += 1


def operation_of(name, **more):
    made = operation(namespace="t", name=name)(price.function)
    return attrs.evolve(made, spec=attrs.evolve(made.spec, **more)) if more else made


def loaded_of(catalogue, *names, owner='source "s"'):
    rules = SimpleNamespace(apply=lambda one: one)
    return LoadedSource(Session(*names), owner, catalogue, PIPELINE, rules, Usage())


async def test_a_source_offers_all_of_its_operations_or_none():
    catalogue = Catalogue()
    loaded = loaded_of(catalogue, "a", "b")
    assert [one.id for one in loaded.start(None)] == ["t.a", "t.b"]
    assert loaded.ids == {"t.a", "t.b"}
    with pytest.raises(RegistrationError, match="give the source another namespace"):
        loaded_of(catalogue, "c", "a", owner='source "o"').start(None)
    assert sorted(catalogue.entries) == ["t.a", "t.b"]
    with pytest.raises(SourceError, match=r'source "s" offers operation "t\.d" twice'):
        loaded_of(catalogue, "d", "d").start(None)
    await loaded.aclose()
    assert (catalogue.entries, loaded.session.closed) == ({}, 1)


async def test_a_source_is_followed_until_it_is_closed(caplog):
    catalogue = Catalogue()
    loaded = loaded_of(catalogue, "a", "b")
    loaded.start(None)
    catalogue.add(Entry(spec("mine"), echo, None, None, PIPELINE))
    kept = catalogue.entries["t.a"]
    same = next(one for one in loaded.session.operations if one.id == "t.a")
    changed = []
    catalogue.watch(changed.append)
    loaded.session.changed([same, operation_of("c"), operation_of("mine")])
    assert sorted(catalogue.entries) == ["t.a", "t.c", "t.mine"]
    assert catalogue.entries["t.a"] is kept
    assert sorted(changed) == ["t.b", "t.c"]
    assert 'source "s" offers t.mine, which belongs to the application' in caplog.text
    loaded.session.changed([operation_of("a", title="new"), operation_of("c")])
    assert catalogue.entries["t.a"].spec.title == "new"
    loaded.session.changed([5, operation_of("c")])
    assert "offers an operation that cannot be used" in caplog.text
    assert sorted(catalogue.entries) == ["t.c", "t.mine"]
    await loaded.aclose()
    loaded.session.changed([operation_of("z")])
    assert sorted(catalogue.entries) == ["t.mine"]


@pytest.mark.parametrize("namespace", ["a.b", "a b", "ü"])
def test_a_namespace_is_of_few_characters(namespace):
    with pytest.raises(ValueError, match="namespace: expected one or more of A-Z a-z 0-9 _ -, got"):
        SourceOptions(namespace=namespace)
    assert SourceOptions(namespace="").namespace == ""
    assert (SourceOptions(namespace="a-B_9").trusted, SourceOptions().normalize) == (False, None)
    with pytest.raises(TypeError):
        SourceOptions("a")


async def test_a_source_that_is_not_there_is_named():
    async with OperationRegistry() as registry:
        with pytest.raises(ConfigError, match='unknown source "nothing"'):
            await registry.sources.reload("nothing")


# --- what a registry has and passes on --------------------------------------------------------------------


async def test_an_exception_that_is_named_as_a_declared_error_is_that_error():
    class BROKEN(Exception):  # named as the code is
        pass

    async def fail(input, context):
        raise BROKEN("it is")

    async def fail_later(input, context):
        yield 1
        raise BROKEN("it is")

    async def pass_by(call, proceed):
        return await proceed(call)

    for stop in (None, pass_by):
        registry = OperationRegistry()
        registry.register(spec(error_schemas=[{"code": "BROKEN"}]), fail)
        registry.register(spec("s", type="subscription", error_schemas=[{"code": "BROKEN"}]), fail_later)
        if stop is not None:
            registry.use(stop)
        with pytest.raises(CallError) as caught:
            await registry.execute("t.op")
        assert (caught.value.code, caught.value.undeclared) == ("BROKEN", False)
        stream = registry.subscribe("t.s")
        await anext(stream)
        with pytest.raises(CallError) as caught:
            await anext(stream)
        assert (caught.value.code, caught.value.undeclared) == ("BROKEN", False)


def test_a_registry_that_was_forked_leaves_the_parents_loop_and_threads_behind():
    """The child's own loop counts for it, while the parent's is still open as far as it can see."""
    registry = OperationRegistry()
    registry.register(Operation(spec(), lambda given, context: given))
    first = asyncio.new_event_loop()
    first.run_until_complete(registry.execute("t.op", 1))
    parents = registry._workers._pool
    registry._execution._process = -1
    assert asyncio.run(registry.execute("t.op", 2)).data == 2
    assert registry._workers._pool is not parents
    assert parents._shutdown
    first.run_until_complete(registry.aclose())
    first.close()


async def test_what_a_registry_was_configured_with_it_tells():
    registry = OperationRegistry()
    assert registry.configuration is None
    with pytest.raises(ConfigError, match="only sources of a configuration have a login"):
        await registry.source_login("x")


async def test_bound_calls_and_clients_are_the_registrys():
    registry = registry_of("op")
    bound = registry.bound(timeout=5)
    assert bound.pages("t.op") is registry.pages("t.op")
    assert bound.get_spec("t.op") is registry.get_spec("t.op")
    assert repr(registry.client("t")) == "<client of t>"


def test_without_bounds_of_its_own_a_registry_takes_schemas_as_they_are():
    given = spec()
    assert PIPELINE.within(given) is given


async def test_a_source_without_descriptions_needs_none():
    told = []

    class Bare:
        operations = (Operation(spec("bare"), echo),)

        def on_change(self, callback):
            pass

        async def aclose(self):
            pass

    class Telling(Bare):
        operations = (Operation(spec("telling"), echo),)

        async def describe(self, operation_id):
            told.append(operation_id)

    async def load(config, context):
        return Telling() if config.tells else Bare()

    @attrs.frozen
    class Config:
        tells: bool

    plugins = plugins_of(make_plugin("bare", operad_sources=[Source("bare", load, Config)]))
    async with OperationRegistry(plugins) as registry:
        await registry.load("bare", tells=False)
        await registry.load("bare", tells=True)
        for name in ("bare", "telling", "none"):
            await registry.describe(f"t.{name}")
    assert told == ["t.telling"]


@pytest.mark.parametrize(
    ("access", "scopes", "allowed"),
    [
        (AccessControl(required_scopes=("a",), required_scopes_any=("b", "c")), {"a"}, False),
        (AccessControl(required_scopes=("a",), required_scopes_any=("b", "c")), {"a", "c"}, True),
        (AccessControl(required_scopes=("a",), required_scopes_any=("b", "c")), {"b", "c"}, False),
        (AccessControl(required_scopes_any=("b",)), {"a"}, False),
        (AccessControl(required_scopes=("a", "b")), {"a"}, False),
        (AccessControl(required_scopes=("a", "b")), {"a", "b"}, True),
        (AccessControl(required_scopes=("a",), resource_type="file", resource_action="read"), {"a"}, False),
    ],
)
async def test_all_that_an_operation_requires_is_looked_at(access, scopes, allowed):
    registry = OperationRegistry()
    registry.register(spec(access_control=access), echo)
    call = registry.execute("t.op", 1, OperationContext(identity=Identity(id="ann", scopes=frozenset(scopes))))
    if allowed:
        assert (await call).data == 1
    else:
        with pytest.raises(CallError) as caught:
            await call
        assert caught.value.code == ErrorCode.ACCESS_DENIED


async def test_a_subscription_of_one_value_has_its_timeout():
    registry = OperationRegistry()

    async def slow(input, context):
        await asyncio.sleep(60)

    registry.register(spec(), slow)
    with pytest.raises(CallError) as caught:
        await anext(registry.subscribe("t.op", timeout=0.02))
    assert caught.value.code == ErrorCode.TIMEOUT


@pytest.mark.parametrize(
    ("table", "where"),
    [('only = ["opnapi"]', " @ operad.toml:1: plugins"), ('disable = ["opnapi"]', " @ operad.toml:1: plugins"),
     ('only = ["openapi"]', ""), ("", "")],
)  # fmt: skip
def test_a_misspelt_plugin_is_blamed_on_the_table_if_that_names_it(table, where, tmp_path, monkeypatch):
    """Otherwise an environment variable has it."""

    def refuse(*_):
        raise PluginError('there is no plugin "opnapi" here')

    monkeypatch.setattr(discovery, "load_plugins", refuse)
    (tmp_path / "operad.toml").write_text(f"[plugins]\n{table}\n")
    with pytest.raises(PluginError) as caught:
        OperationRegistry.from_config(tmp_path / "operad.toml")
    assert str(caught.value) == f'there is no plugin "opnapi" here{where}'


def test_a_registry_knows_its_configuration(tmp_path):
    (tmp_path / "operad.toml").write_text("")
    configuration = OperationRegistry.from_config(tmp_path / "operad.toml", plugins_of()).configuration
    assert configuration is not None
    assert configuration.name == "operad.toml"
