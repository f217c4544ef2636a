"""The way of a call piece by piece: its context, interceptors, views, sources, handles, and who is told what."""

import asyncio
import threading
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
from operad.envelopes import EnvelopeKinds
from operad.errors import ConfigError, PluginError, RegistrationError
from operad.loading.source import LoadedSource
from operad.plugins import discovery
from operad.registry import execution
from operad.registry.catalogue import Catalogue
from operad.registry.entry import Entry
from operad.registry.interceptors import InterceptedCall, Interceptor, Interceptors, contributed
from operad.registry.pipeline import ResultPipeline
from operad.registry.views import combined_access
from operad.sources import Source
from operad.usage import Usage
from operad_testing import make_plugin, plugins_of

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
    assert (found.logged is not None, "operation 't.op' raised" in caplog.text) == (logged, logged)
    stream = registry.subscribe("t.later")
    assert (await anext(stream)).data == 1
    with pytest.raises(CallError) as caught:
        await anext(stream)
    assert caught.value.code == found.code


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


# --- views ----------------------------------------------------------------------------------------


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
        with pytest.raises(RegistrationError, match='access of "t.op": the operation already requires'):
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


@operation(namespace="shop")
async def price(thing: str, count: int = 1) -> int:
    """The price of a thing."""
    return len(thing) * count


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


def test_a_registry_that_was_forked_leaves_the_parents_loop_and_threads_behind(monkeypatch):
    """The child's own loop counts for it, while the parent's is still open as far as it can see."""
    registry = OperationRegistry()
    registry.register(Operation(spec(), lambda given, context: threading.current_thread()))
    first = asyncio.new_event_loop()
    parents = first.run_until_complete(registry.execute("t.op", 1)).data
    monkeypatch.setattr(execution.os, "getpid", lambda: -1)
    assert asyncio.run(registry.execute("t.op", 2)).data is not parents
    parents.join(30)
    assert not parents.is_alive()
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
