"""The way of a call piece by piece: its context, its errors, what views require, and what a registry passes on."""

import asyncio
import threading
from contextlib import nullcontext
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
)
from operad.context import LONGEST_KEY
from operad.errors import ConfigError, PluginError, RegistrationError
from operad.plugins import discovery
from operad.registry import execution
from operad.sources import Source
from operad_testing import make_plugin, plugins_of


async def echo(input, context):
    return input


def spec(name="op", **more):
    return OperationSpec(namespace="t", name=name, **{"type": "query", **more})


def registry_of(*names, **more):
    registry = OperationRegistry()
    for name in names:
        registry.register(spec(name, **more), echo)
    return registry


# --- the context of a call ------------------------------------------------------------------------


@pytest.mark.parametrize("context", [{}, "x", 5])
async def test_what_is_no_context_is_refused(context):
    message = f"context: expected an OperationContext, got {type(context).__name__}"
    with pytest.raises(CallError, match=message) as caught:
        await registry_of("op").execute("t.op", 1, context)
    assert (caught.value.code, caught.value.details) == (ErrorCode.VALIDATION_ERROR, {"message": message})


@pytest.mark.parametrize(
    ("key", "taken"),
    [
        ("k", True),
        ("x" * LONGEST_KEY, True),
        ("x" * LONGEST_KEY + "x", False),
        ("", False),
        ("a\nb", False),
        (5, False),
    ],
    ids=["one character", "the longest", "longer", "empty", "a line break", "a number"],
)
async def test_a_key_is_a_short_printable_text(key, taken):
    refused = pytest.raises(CallError, match=f"idempotency_key: expected 1 to {LONGEST_KEY} printable characters")
    with nullcontext() if taken else refused:
        await registry_of("op").execute("t.op", 1, idempotency_key=key)


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
        (ValueError("odd"), "EXECUTION_ERROR", True),
        (asyncio.CancelledError(), "ABORTED", False),
        (CallError("BROKEN", "it is"), "BROKEN", False),
    ],
)
async def test_what_a_handler_raises_is_a_call_error_and_logged_with_its_type_when_nobody_expected_it(
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
    assert (found.code, found.undeclared, found.logged is not None) == (code, logged, logged)
    assert (found is error) is (code == "BROKEN")
    assert len(caplog.records) == logged
    if logged:
        assert (found.message, found.details) == ("ValueError: odd", {"message": "ValueError: odd"})
        assert found.__cause__ is error
        assert caplog.records[0].exc_info is not None
        assert "operation 't.op' raised ValueError: odd" in caplog.text
    stream = registry.subscribe("t.later")
    assert (await anext(stream)).data == 1
    with pytest.raises(CallError) as caught:
        await anext(stream)
    assert caught.value.code == code


# --- views ----------------------------------------------------------------------------------------


RESOURCE = {"resource_type": "r", "resource_action": "get"}


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ({"required_scopes": ("a", "b")}, {"required_scopes": ("b", "c")}, {"required_scopes": ("a", "b", "c")}),
        ({"required_scopes_any": ("a", "b")}, {}, {"required_scopes_any": ("a", "b")}),
        ({}, {"required_scopes_any": ("a",)}, {"required_scopes_any": ("a",)}),
        (
            {"required_scopes_any": ("a", "b")},
            {"required_scopes_any": ("b", "a")},
            {"required_scopes_any": ("a", "b")},
        ),
        (RESOURCE, {}, RESOURCE),
        ({}, RESOURCE, RESOURCE),
        (RESOURCE, RESOURCE, None),
        ({"required_scopes_any": ("a",)}, {"required_scopes_any": ("b",)}, None),
    ],
)
def test_two_requirements_are_one_where_that_can_be_said(first, second, both):
    registry = registry_of("op", access_control=AccessControl(**first))
    if both is not None:
        view = registry.view(access=AccessControl(**second))
        assert view.get_spec("t.op").access_control == AccessControl(**both)
        return
    with pytest.raises(RegistrationError, match='access of "t.op": the operation already requires'):
        registry.view(access=AccessControl(**second))


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

    async def aclose():
        pass

    async def describe(operation_id):
        told.append(operation_id)

    async def load(config, context):
        operation = Operation(OperationSpec(namespace=context.namespace, name="op"), echo)
        more = {"describe": describe} if context.namespace == "telling" else {}
        return SimpleNamespace(operations=(operation,), on_change=lambda callback: None, aclose=aclose, **more)

    plugins = plugins_of(
        make_plugin("bare", operad_sources=[Source("bare", load, attrs.make_class("Config", []))])
    )
    async with OperationRegistry(plugins) as registry:
        for namespace in ("bare", "telling"):
            await registry.load("bare", namespace=namespace)
        for namespace in ("bare", "telling", "none"):
            await registry.describe(f"{namespace}.op")
        assert told == ["telling.op"]
        view = registry.view(include="telling.*", prefix="x")
        for operation_id in ("x.telling.op", "telling.op", "x.bare.op"):
            await view.describe(operation_id)
    assert told == ["telling.op"] * 2


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
    ann = OperationContext(identity=Identity(id="ann", scopes=frozenset(scopes)))
    with nullcontext() if allowed else pytest.raises(CallError, match="ACCESS_DENIED"):
        await registry_of("op", access_control=access).execute("t.op", 1, ann)


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
