"""The way of a call piece by piece: its context, its errors, what views require, and what a registry passes on."""

import asyncio
import json
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

from core.tests.kit import data_of, error_of, op, raising, registry_of, streaming
from operad import AccessControl, CallError, ErrorCode, Identity, OperationContext, OperationRegistry
from operad.errors import ConfigError, PluginError, RegistrationError
from operad.plugins import discovery
from operad.registry import execution
from operad.sources import Source
from operad_testing import make_plugin


@pytest.mark.parametrize("module", ["context"])  # `tools/mutants.py` finds the test by the name of the module
async def test_a_key_has_at_most_255_characters(module):
    await registry_of(op()).execute("t.op", 1, idempotency_key="x" * 255)
    with pytest.raises(CallError, match="idempotency_key: expected 1 to 255 printable characters"):
        await registry_of(op()).execute("t.op", 1, idempotency_key="x" * 256)


TABLES = json.loads(Path(__file__).with_name("steps.json").read_text("utf-8"))


# --- the context of a call ------------------------------------------------------------------------


@pytest.mark.parametrize("context", [{}, "x", 5])
async def test_what_is_no_context_is_refused(context):
    message = f"context: expected an OperationContext, got {type(context).__name__}"
    error = await error_of(registry_of(op()).execute("t.op", 1, context), message)
    assert (error.code, error.details) == (ErrorCode.VALIDATION_ERROR, {"message": message})


@pytest.mark.parametrize(
    ("key", "taken"),
    [("k", True), ("", False), ("a\nb", False), (5, False)],
    ids=["one character", "empty", "a line break", "a number"],
)
async def test_a_key_is_a_short_printable_text(key, taken):
    refused = pytest.raises(CallError, match="idempotency_key: expected 1 to 255 printable characters")
    with nullcontext() if taken else refused:
        await registry_of(op()).execute("t.op", 1, idempotency_key=key)


@pytest.mark.parametrize(
    ("schema", "given"),
    [(True, {}), ({"type": "object"}, {}), ({"type": ["object", "null"]}, {}), ({"type": "null"}, None),
     ({"type": "object", "required": ["a"]}, "expected the property 'a', got none at $")],
)  # fmt: skip
@pytest.mark.parametrize("way", ["execute", "subscribe"])
async def test_an_input_that_is_left_out_is_empty_unless_null_is_what_is_taken(schema, given, way):
    got = []

    async def take(input, context):
        got.append(input)

    registry = registry_of(
        op("op", take, type="query" if way == "execute" else "subscription", input_schema=schema)
    )
    try:
        await (registry.execute("t.op") if way == "execute" else data_of(registry.subscribe("t.op")))
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
    registry = registry_of(op("op", raising(error)), op("later", streaming(1, error), type="subscription"))
    found = await error_of(registry.execute("t.op"))
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
    assert (await error_of(anext(stream))).code == code


# --- views ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second", "both"), TABLES["requirements_of_a_view_and_of_its_registry"])
def test_two_requirements_are_one_where_that_can_be_said(first, second, both):
    registry = registry_of(op(access_control=AccessControl(**first)))
    if both is not None:
        view = registry.view(access=AccessControl(**second))
        assert view.get_spec("t.op").access_control == AccessControl(**both)
        return
    with pytest.raises(RegistrationError, match='access of "t.op": the operation already requires'):
        registry.view(access=AccessControl(**second))


# --- what a registry has and passes on --------------------------------------------------------------------


@pytest.mark.parametrize("is_intercepted", [False, True])
async def test_an_exception_that_is_named_as_a_declared_error_is_that_error(is_intercepted):
    class BROKEN(Exception):  # named as the code is
        pass

    declared = {"error_schemas": [{"code": "BROKEN"}]}
    registry = registry_of(
        op("op", raising(BROKEN("it is")), **declared),
        op("s", streaming(1, BROKEN("it is")), type="subscription", **declared),
    )
    if is_intercepted:

        async def pass_by(call, proceed):
            return await proceed(call)

        registry.use(pass_by)
    stream = registry.subscribe("t.s")
    await anext(stream)
    for call in (registry.execute("t.op"), anext(stream)):
        error = await error_of(call)
        assert (error.code, error.undeclared) == ("BROKEN", False)


def test_a_registry_that_was_forked_leaves_the_parents_loop_and_threads_behind(monkeypatch):
    """The child's own loop counts for it, while the parent's is still open as far as it can see."""
    registry = registry_of(op=lambda given, context: threading.current_thread())
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
    registry = registry_of(op())
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
        more = {"describe": describe} if context.namespace == "telling" else {}
        operations = (op(f"{context.namespace}.op"),)
        return SimpleNamespace(operations=operations, on_change=lambda callback: None, aclose=aclose, **more)

    source = Source("bare", load, attrs.make_class("Config", []))
    async with registry_of(plugins=[make_plugin("bare", operad_sources=[source])]) as registry:
        for namespace in ("bare", "telling"):
            await registry.load("bare", namespace=namespace)
        for namespace in ("bare", "telling", "none"):
            await registry.describe(f"{namespace}.op")
        assert told == ["telling.op"]
        view = registry.view(include="telling.*", prefix="x")
        for operation_id in ("x.telling.op", "telling.op", "x.bare.op"):
            await view.describe(operation_id)
    assert told == ["telling.op"] * 2


@pytest.mark.parametrize(("access", "scopes", "allowed"), TABLES["what_an_operation_requires"])
async def test_all_that_an_operation_requires_is_looked_at(access, scopes, allowed):
    ann = OperationContext(identity=Identity(id="ann", scopes=frozenset(scopes)))
    with nullcontext() if allowed else pytest.raises(CallError, match="ACCESS_DENIED"):
        await registry_of(op(access_control=AccessControl(**access))).execute("t.op", 1, ann)


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
