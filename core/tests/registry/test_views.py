"""A view is a part of a registry: some operations, other names, more required; and it follows."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from core.tests.kit import data_of, error_of, ids, op, spec
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
    PendingRequestMap,
    RegistrationError,
    operation,
)
from operad_testing import CallLog, plugins_of

DENIED = "^ACCESS_DENIED"

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
        for call in (view.execute(id, {}, OperationContext(trusted=True)), anext(view.subscribe(id))):
            assert (await error_of(call, id)).code == "OPERATION_NOT_FOUND"


async def test_a_prefix_and_new_names() -> None:
    base = registry()
    view = base.view(include="m.*", prefix="x", rename={"m.add": "calc.sum"})
    assert ids(view) == ["x.calc.sum", "x.m.count", "x.m.guarded"]
    spec: Any = view.get_spec("x.calc.sum")
    assert (spec.namespace, spec.name, spec.description) == ("x", "calc.sum", "Adds two numbers")
    assert (await view.execute("x.calc.sum", {"a": 1})).data == 2
    assert await data_of(view.subscribe("x.m.count", {"to": 2})) == [0, 1]
    assert await view.call(add, 1, 2) == 3  # an Operation is what it is, whatever a view calls it
    upper = base.view(include="m.a*", rename=str.upper)
    assert ids(upper) == ["M.ADD"]
    assert (await upper.execute("M.ADD", {"a": 1})).data == 2
    assert [spec.id for spec in view.search("sum numbers")] == ["x.calc.sum"]


async def test_an_operation_that_a_view_leaves_out_is_not_confused_with_one_of_its_name() -> None:
    for rename in ({"m.guarded": "m.add"}, None):
        with pytest.raises(CallError, match="^OPERATION_NOT_FOUND"):
            await registry().view(exclude="m.add", rename=rename).call(add, 1, 2)


async def test_access_is_added_and_never_removed() -> None:
    view = registry().view(access={"*": {"required_scopes": ["write"]}})
    spec: Any = view.get_spec("m.guarded")
    assert spec.access_control.required_scopes == ("read", "write")
    assert (await view.execute("m.guarded", {}, ANN)).data == "ann"
    assert (await view.execute("m.add", {"a": 1}, ANN)).data == 2
    for id, context in [("m.guarded", BOB), ("m.add", BOB), ("m.add", None)]:
        with pytest.raises(CallError, match=DENIED):
            await view.execute(id, {"a": 1}, context)
    with pytest.raises(CallError, match=DENIED):
        await anext(view.subscribe("m.count", {"to": 1}, BOB))
    assert (await view.execute("m.add", {"a": 1}, OperationContext(trusted=True))).data == 2
    with pytest.raises(CallError):
        await registry().view(access=AccessControl()).execute("m.guarded")


def test_what_cannot_be_added_or_named_is_refused_when_the_view_is_made() -> None:
    base = registry(op("t.x", access_control=AccessControl(required_scopes_any=["a", "b"])))
    assert base.view(access={"t.*": {"required_scopes": ["c"]}}).get_spec("t.x")
    for options, error, words in (
        ({"access": {"required_scopes_any": ["c"]}}, RegistrationError, r"t\.x.*use required_scopes"),
        ({"rename": lambda _: "m.same"}, RegistrationError, 'are both "m.same" in a view'),
        ({"rename": {"m.add": "add"}}, RegistrationError, 'expected "namespace.name"'),
        ({"access": {"required_scope": ["c"]}}, ConfigError, "required_scopes"),
    ):
        with pytest.raises(error, match=words):
            base.view(**options)


def test_a_rename_function_that_fails_does_not_fail_the_registry(caplog: pytest.LogCaptureFixture) -> None:
    base = registry()
    names: dict[str, Any] = {id: id for id in ids(base)}
    view = base.view(rename=names.__getitem__)
    told: list[int] = []
    base.on_change(lambda: told.append(1))
    base.register(op("m.new"))
    names["m.other"] = None
    base.register(op("m.other"))
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
    base.register(op("m.new"))
    assert "m.new" in view
    with caplog.at_level(logging.WARNING):
        base.register(op("m.alias", guarded.handler))
        assert (await view.execute("m.add", {"a": 1})).data == 2
        base.register(op("m.other"))
        assert "m.other" in view
    assert caplog.text.count("left out of a view") == 1
    assert told == [2, 3, 4]
    stop()
    base.unregister("m.other")
    assert len(told) == 3
    assert view.search("new")[0].id == "m.new"


async def test_handlers_see_the_registrys_ids_and_observers_both() -> None:
    calls = CallLog()
    view = registry(plugins=plugins_of(calls)).view(include="admin.*", prefix="x")
    assert (await view.execute("x.admin.nested")).data == 2
    assert await data_of(view.subscribe("x.admin.nested")) == [2]
    await error_of(view.execute("x.absent"))
    seen = [(call.operation_id, call.called_as) for call in calls.started]
    assert seen[:2] == [("admin.nested", "x.admin.nested"), ("m.add", None)]
    assert seen[-1] == ("x.absent", "x.absent")
    assert len(calls.finished) == len(calls.started)


async def test_a_view_of_a_view_adds_to_it() -> None:
    base = registry()
    outer = base.view(include="m.*", access={"required_scopes": ["read"]}, prefix="a")
    inner = outer.view(include="a.m.add", access={"required_scopes": ["write"]}, prefix="b")
    (spec,) = inner.specs()
    assert (spec.id, spec.access_control.required_scopes) == ("b.a.m.add", ("read", "write"))
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
        await error_of(calls.call("m.add", {"a": 1}))
        base.register(op("m.new", add.handler))
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
    base.register(op("m.alias", guarded.handler))
    assert view.get_handler("m.add") is add.handler
    base.unregister("m.add")
    assert view.get_handler("m.add") is guarded.handler
    base.unregister("m.alias")
    assert "m.add" not in view


async def test_an_operation_that_gets_a_handler_later_can_be_called_through_a_view() -> None:
    base = OperationRegistry()
    view = base.view(prefix="x")
    base.register_spec(spec("m.late"))
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
    for _ in range(2):
        await view.execute("x.m.add", {"a": 1})
        await base.execute("m.add", {"a": 1})
        stop()
    stop()
    assert seen == [("m.add", "x.m.add"), ("m.add", None)]


async def test_a_timeout_and_a_download_through_a_view_are_those_of_the_registry() -> None:
    registry = OperationRegistry()

    async def wait(input: Any, context: OperationContext) -> None:
        await asyncio.sleep(60)

    registry.register(spec("m.wait"), wait)
    view = registry.view(prefix="x", access=AccessControl(required_scopes=["read"]))
    async with asyncio.timeout(30):
        error = await error_of(view.execute("x.m.wait", context=BOB, timeout=0.02))
    assert error.code == "TIMEOUT"
    assert (view.pages("x.m.wait"), view.pages("x.m.none")) == (None, None)
    for context in (None, BOB):
        error = await error_of(data_of(view.download("x.m.wait", {}, context)))
        assert (error.code == "ACCESS_DENIED") is (context is None)


def test_a_search_finds_ten_unless_it_is_told_otherwise() -> None:
    made = OperationRegistry()
    for number in range(12):
        made.register_spec(spec(f"n{number}", description="alpha"))
    for one in (made, made.view()):
        assert [len(one.search("alpha", *limit)) for limit in ((), (11,), (1,))] == [10, 11, 1]


def test_an_operation_that_is_left_out_of_a_view_is_warned_of_each_time_that_it_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = {"m.add": "v.one", "m.guarded": "v.two", "m.count": "v.three"}
    registry = OperationRegistry()
    registry.register(add)
    view = registry.view(rename=names.__getitem__)

    def renamed(name: str, operation: Operation[..., Any] = guarded) -> tuple[list[str], int]:
        """Register an operation again under this name; return the ids that the view shows and count the warnings."""
        names[operation.id] = name
        registry.register(operation, replace=True)
        return ids(view), len(caplog.messages)

    assert renamed("v.two") == (["v.one", "v.two"], 0)
    assert renamed("v.one") == (["v.one"], 1), (
        "an operation whose new name is taken is not there under its old one"
    )
    assert renamed("v.one") == (["v.one"], 1), "it is still left out"
    registry.unregister("m.guarded")
    assert renamed("v.one") == (["v.one"], 2)
    assert renamed("v.two") == (["v.one", "v.two"], 2)
    assert renamed("v.one") == (["v.one"], 3)
    assert renamed("v.new", add)[0] == ["v.new", "v.one"]
    free: Any = view.get_spec("v.one")
    assert free.description == guarded.spec.description, "the name that has become free is that of the other one"
