"""A view is a part of a registry: some operations, other names, more required; and it follows."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from operad import (
    AccessControl,
    CallError,
    CallHandler,
    ConfigError,
    Identity,
    InProcessTransport,
    Operation,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
    RegistrationError,
    operation,
)
from operad_testing import CallLog, plugins_of

ANN = OperationContext(identity=Identity("ann", ["read", "write"]))
BOB = OperationContext(identity=Identity("bob", ["read"]))


@operation(namespace="m", type="query", description="Adds two numbers")
async def add(a: int, b: int = 1) -> int:
    return a + b


@operation(namespace="m", access_control=AccessControl(required_scopes=["read"]))
async def guarded(context: OperationContext) -> str:
    assert context.identity is not None
    return context.identity.id


@operation(namespace="m")
async def count(to: int) -> AsyncIterator[int]:
    for number in range(to):
        yield number


@operation(namespace="admin")
async def nested(context: OperationContext) -> Any:
    return (await context.env["m.add"]({"a": 1})).data


def registry(*more: Operation[..., Any], plugins: Any = None) -> OperationRegistry:
    made = OperationRegistry(plugins)
    for item in (add, guarded, count, nested, *more):
        made.register(item)
    return made


def ids(view: OperationRegistry) -> list[str]:
    return [spec.id for spec in view.specs()]


async def test_patterns_choose_and_the_rest_is_not_there() -> None:
    base = registry()
    view = base.view(include=["m.*", "admin.*"], exclude=["*.guarded", "admin.*"])
    assert ids(view) == ["m.add", "m.count"]
    assert len(view) == 2
    assert "m.add" in view
    assert "m.guarded" not in view
    assert (await view.execute("m.add", {"a": 1})).data == 2
    assert await view.call(add, a=1) == 2
    assert view.get_spec("m.add") is base.get_spec("m.add")
    assert view.get_handler("m.add") is not None
    assert (view.get_spec("admin.nested"), view.get_handler("admin.nested")) == (None, None)
    assert await view.describe("m.guarded") is None
    specs = view.specs()
    assert view.specs() is specs
    assert await view.describe("m.add") is specs[0]
    for id in ("m.guarded", "admin.nested", "m.absent"):
        with pytest.raises(CallError, match=id) as caught:
            await view.execute(id, {}, OperationContext(trusted=True))
        assert caught.value.code == "OPERATION_NOT_FOUND"
        with pytest.raises(CallError, match=id):
            await anext(view.subscribe(id))


async def test_a_prefix_and_new_names() -> None:
    base = registry()
    view = base.view(include="m.*", prefix="x", rename={"m.add": "calc.sum"})
    assert ids(view) == ["x.calc.sum", "x.m.count", "x.m.guarded"]
    spec = view.get_spec("x.calc.sum")
    assert spec is not None
    assert (spec.namespace, spec.name, spec.description) == ("x", "calc.sum", "Adds two numbers")
    assert (await view.execute("x.calc.sum", {"a": 1})).data == 2
    assert [item.data async for item in view.subscribe("x.m.count", {"to": 2})] == [0, 1]
    assert await view.call(add, 1, 2) == 3  # an Operation is what it is, whatever a view calls it
    upper = base.view(include="m.a*", rename=str.upper)
    assert ids(upper) == ["M.ADD"]
    assert (await upper.execute("M.ADD", {"a": 1})).data == 2
    assert [spec.id for spec in view.search("sum numbers")] == ["x.calc.sum"]


async def test_an_operation_that_a_view_leaves_out_is_not_confused_with_one_of_its_name() -> None:
    view = registry().view(exclude="m.add", rename={"m.guarded": "m.add"})
    with pytest.raises(CallError, match="^OPERATION_NOT_FOUND"):
        await view.call(add, 1, 2)
    with pytest.raises(CallError):
        await registry().view(exclude="m.add").call(add, 1, 2)


async def test_access_is_added_and_never_removed() -> None:
    view = registry().view(access={"*": {"required_scopes": ["write"]}})
    spec = view.get_spec("m.guarded")
    assert spec is not None
    assert spec.access_control.required_scopes == ("read", "write")
    assert (await view.execute("m.guarded", {}, ANN)).data == "ann"
    assert (await view.execute("m.add", {"a": 1}, ANN)).data == 2
    for id, context in [("m.guarded", BOB), ("m.add", BOB), ("m.add", None)]:
        with pytest.raises(CallError, match="^ACCESS_DENIED"):
            await view.execute(id, {"a": 1}, context)
    with pytest.raises(CallError, match="^ACCESS_DENIED"):
        await anext(view.subscribe("m.count", {"to": 1}, BOB))
    assert (await view.execute("m.add", {"a": 1}, OperationContext(trusted=True))).data == 2
    weaker = registry().view(access=AccessControl())
    with pytest.raises(CallError):
        await weaker.execute("m.guarded")


def test_what_cannot_be_added_or_named_is_refused_when_the_view_is_made() -> None:
    one_of = AccessControl(required_scopes_any=["a", "b"])
    base = registry(Operation(OperationSpec(namespace="t", name="x", access_control=one_of), add.handler))
    with pytest.raises(RegistrationError, match=r"t\.x.*use required_scopes"):
        base.view(access={"required_scopes_any": ["c"]})
    assert base.view(access={"t.*": {"required_scopes": ["c"]}}).get_spec("t.x")
    with pytest.raises(RegistrationError, match='are both "m.same" in a view'):
        base.view(rename=lambda _: "m.same")
    with pytest.raises(RegistrationError, match='expected "namespace.name"'):
        base.view(rename={"m.add": "add"})
    with pytest.raises(ConfigError, match="required_scopes"):
        base.view(access={"required_scope": ["c"]})


def test_a_rename_function_that_fails_does_not_fail_the_registry(caplog: pytest.LogCaptureFixture) -> None:
    base = registry()
    names: dict[str, Any] = {id: id for id in ids(base)}
    view = base.view(rename=names.__getitem__)
    told: list[int] = []
    base.on_change(lambda: told.append(1))
    base.register(Operation(OperationSpec(namespace="m", name="new"), add.handler))
    names["m.other"] = None
    base.register(Operation(OperationSpec(namespace="m", name="other"), add.handler))
    assert len(told) == 2
    assert "m.new" not in view
    assert "m.other" not in view
    assert "m.new" in caplog.text
    assert 'expected "namespace.name" for "m.other", got "None"' in caplog.text
    with pytest.raises(RegistrationError, match="rename of .*KeyError"):
        registry().view(rename={}.__getitem__)


async def test_it_follows_the_registry_and_what_clashes_later_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    base = registry()
    told: list[int] = []
    view = base.view(include="m.*", rename={"m.alias": "m.add"})
    stop = view.on_change(lambda: told.append(len(view)))
    base.unregister("m.count")
    assert ids(view) == ["m.add", "m.guarded"]
    base.register(Operation(OperationSpec(namespace="m", name="new"), add.handler))
    assert "m.new" in view
    with caplog.at_level(logging.WARNING):
        base.register(Operation(OperationSpec(namespace="m", name="alias"), guarded.handler))
        assert (await view.execute("m.add", {"a": 1})).data == 2
        base.register(Operation(OperationSpec(namespace="m", name="other"), add.handler))
        assert "m.other" in view
    assert caplog.text.count("left out of a view") == 1
    assert told == [2, 3, 4]
    stop()
    base.unregister("m.other")
    assert len(told) == 3
    assert view.search("new")[0].id == "m.new"


async def test_handlers_see_the_registrys_ids_and_observers_both() -> None:
    calls = CallLog()
    base = registry(plugins=plugins_of(calls))
    view = base.view(include="admin.*", prefix="x")
    assert (await view.execute("x.admin.nested")).data == 2
    assert [item.data async for item in view.subscribe("x.admin.nested")] == [2]
    with pytest.raises(CallError):
        await view.execute("x.absent")
    seen = [(call.operation_id, call.called_as) for call in calls.started]
    assert seen[:2] == [("admin.nested", "x.admin.nested"), ("m.add", None)]
    assert seen[-1] == ("x.absent", "x.absent")
    assert len(calls.finished) == len(calls.started)


async def test_a_view_of_a_view_adds_to_it() -> None:
    base = registry()
    outer = base.view(include="m.*", access={"required_scopes": ["read"]}, prefix="a")
    inner = outer.view(include="a.m.add", access={"required_scopes": ["write"]}, prefix="b")
    assert ids(inner) == ["b.a.m.add"]
    spec = inner.get_spec("b.a.m.add")
    assert spec is not None
    assert spec.access_control.required_scopes == ("read", "write")
    assert (await inner.execute("b.a.m.add", {"a": 1}, ANN)).data == 2
    with pytest.raises(CallError):
        await inner.execute("b.a.m.add", {"a": 1}, BOB)
    base.unregister("m.add")
    assert ids(inner) == []


@pytest.mark.parametrize("name", ["register", "register_spec", "unregister", "load", "use"])
def test_it_is_read_only(name: str) -> None:
    with pytest.raises(RegistrationError, match="a view is read-only"):
        getattr(registry().view(), name)(add)


async def test_leaving_it_closes_nothing_and_what_it_does_not_know_leads_nowhere() -> None:
    base = registry()
    async with base.view() as view:
        assert view.plugins is base.plugins
        assert view.failures == []
    await view.aclose()
    with pytest.raises(AttributeError, match="'RegistryView' object has no attribute 'nonsense'"):
        _ = view.nonsense  # type: ignore[attr-defined]  # the mistake is the subject
    assert (await base.execute("m.add", {"a": 1})).data == 2


async def test_it_is_served_as_a_registry_is() -> None:
    transport = InProcessTransport()
    base = registry()
    view = base.view(include=["m.add", "m.new"], prefix="x")
    async with CallHandler(view, transport), PendingRequestMap(transport) as calls:
        assert (await calls.call("x.m.add", {"a": 1})).data == 2
        with pytest.raises(CallError):
            await calls.call("m.add", {"a": 1})
        base.register(Operation(OperationSpec(namespace="m", name="new"), add.handler))
        async with asyncio.timeout(30):
            while True:
                try:
                    assert (await calls.call("x.m.new", {"a": 2})).data == 3
                    break
                except CallError:
                    await asyncio.sleep(0.001)


async def test_a_name_that_becomes_free_goes_to_the_operation_that_was_left_out() -> None:
    base = registry()
    view = base.view(include="m.*", rename={"m.alias": "m.add"})
    base.register(Operation(OperationSpec(namespace="m", name="alias"), guarded.handler))
    assert view.get_handler("m.add") is add.handler
    base.unregister("m.add")
    assert view.get_handler("m.add") is guarded.handler
    base.unregister("m.alias")
    assert "m.add" not in view


async def test_an_operation_that_gets_a_handler_later_can_be_called_through_a_view() -> None:
    base = OperationRegistry()
    view = base.view(prefix="x")
    base.register_spec(OperationSpec(namespace="m", name="late"))
    with pytest.raises(CallError, match="no handler registered"):
        await view.execute("x.m.late")
    base.register_handler("m.late", nested.handler)
    base.register(add)
    assert view.get_handler("x.m.late") is nested.handler
    assert (await view.execute("x.m.late")).data == 2


def test_a_view_that_is_gone_follows_no_longer() -> None:
    made: list[str] = []
    base = OperationRegistry()

    def name(operation_id: str) -> str:
        made.append(operation_id)
        return operation_id

    view = base.view(rename=name)
    base.register(add)
    assert made == ["m.add"]
    del view
    gc.collect()
    base.register(count)
    assert made == ["m.add"]


async def test_an_observer_added_through_a_view_sees_the_calls_of_the_registry() -> None:
    seen: list[Any] = []
    base = registry()
    view = base.view(prefix="x")
    stop = view.observe(lambda call: seen.append((call.operation_id, call.called_as)))
    await view.execute("x.m.add", {"a": 1})
    await base.execute("m.add", {"a": 1})
    stop()
    stop()
    await view.execute("x.m.add", {"a": 1})
    assert seen == [("m.add", "x.m.add"), ("m.add", None)]


async def test_a_timeout_and_a_download_through_a_view_are_those_of_the_registry() -> None:
    registry = OperationRegistry()

    async def wait(input: Any, context: OperationContext) -> None:
        await asyncio.sleep(60)

    registry.register(OperationSpec(namespace="m", name="wait"), wait)
    view = registry.view(prefix="x", access=AccessControl(required_scopes=["read"]))
    with pytest.raises(CallError) as caught:
        async with asyncio.timeout(30):
            await view.execute("x.m.wait", context=BOB, timeout=0.02)
    assert caught.value.code == "TIMEOUT"
    assert view.pages("x.m.wait") is None
    assert view.pages("x.m.none") is None
    for context in (None, BOB):
        with pytest.raises(CallError) as caught:
            [chunk async for chunk in view.download("x.m.wait", {}, context)]
        assert (caught.value.code == "ACCESS_DENIED") is (context is None)


def test_a_search_finds_ten_unless_it_is_told_otherwise() -> None:
    made = OperationRegistry()
    for number in range(12):
        made.register_spec(OperationSpec(namespace="t", name=f"n{number}", description="alpha"))
    for one in (made, made.view()):
        assert [len(one.search("alpha", *limit)) for limit in ((), (11,), (1,))] == [10, 11, 1]


def test_an_operation_that_is_left_out_of_a_view_is_warned_of_each_time_that_it_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = {"m.add": "v.one", "m.guarded": "v.two", "m.count": "v.three"}
    registry = OperationRegistry()
    registry.register(add)
    view = registry.view(rename=names.__getitem__)

    def shown() -> list[str]:
        return [spec.id for spec in view.specs()]

    registry.register(guarded)
    names["m.guarded"] = "v.one"
    registry.register(guarded, replace=True)
    assert shown() == ["v.one"], "an operation whose new name is taken is not there under its old one"
    assert len(caplog.messages) == 1
    registry.register(guarded, replace=True)
    assert len(caplog.messages) == 1, "it is still left out"
    registry.unregister("m.guarded")
    registry.register(guarded)
    assert len(caplog.messages) == 2
    names["m.guarded"] = "v.two"
    registry.register(guarded, replace=True)
    assert shown() == ["v.one", "v.two"]
    names["m.guarded"] = "v.one"
    registry.register(guarded, replace=True)
    assert len(caplog.messages) == 3
    names["m.add"] = "v.new"
    registry.register(add, replace=True)
    assert shown() == ["v.new", "v.one"]
    free = view.get_spec("v.one")
    assert free is not None
    assert free.description == guarded.spec.description, "the name that has become free is that of the other one"
