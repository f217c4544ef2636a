"""The context of a call and the way to call further operations from it."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from core.tests.kit import data_of, error_of, op, registry_of
from operad import CallError, Identity, OperationContext, OperationRegistry, build_env


async def about(input: Any, context: OperationContext) -> Any:
    return {
        "parent": context.parent_request_id,
        "identity": context.identity,
        "trusted": context.trusted,
        "metadata": dict(context.metadata),
        "deadline": context.deadline,
    }


@pytest.fixture
def registry() -> OperationRegistry:
    secret = op("a.secret", about, access_control={"required_scopes": ["secret"]})
    echoes = map(op, ("pet-store.get.by/id", "a.echo", "a_b.echo", "namespace.x"))
    return registry_of(*echoes, op("a.about", about), secret)


def env_of(registry: OperationRegistry, **fields: Any) -> Any:
    return build_env(registry, OperationContext("parent", registry=registry, **fields))


async def test_operations_by_attribute_and_by_item(registry: OperationRegistry) -> None:
    env = env_of(registry)
    assert (await env.a.echo({"x": 1})).data == {"x": 1}
    assert (await env["a.echo"]({"x": 1})).data == {"x": 1}
    assert (await env.a["echo"]({"x": 1})).data == {"x": 1}
    assert (await env["pet-store.get.by/id"]({})).data == {}
    assert (await env.namespace("pet-store")["get.by/id"]({})).data == {}
    assert (await env["namespace.x"]({})).data == {}


async def test_the_input_as_keywords_or_not_at_all(registry: OperationRegistry) -> None:
    env = env_of(registry)
    assert (await env.a.echo(x=1, y=2)).data == {"x": 1, "y": 2}
    assert (await env.a.echo()).data == {}
    with pytest.raises(CallError, match="both an input and keywords"):
        await env.a.echo({"x": 1}, y=2)


async def test_an_operation_may_be_subscribed_to(registry: OperationRegistry) -> None:
    assert await data_of(env_of(registry).a.echo.subscribe({"x": 1}, timeout=5)) == [{"x": 1}]


async def test_every_namespace_and_name_is_listed(registry: OperationRegistry) -> None:
    env = env_of(registry)
    assert dir(env) == ["a", "a_b", "namespace", "pet-store"]
    assert dir(env.a) == ["about", "echo", "secret"]
    assert "pet-store.get.by/id" in list(env)


async def test_an_unknown_operation_is_not_found_when_called(registry: OperationRegistry) -> None:
    with pytest.raises(CallError, match="^OPERATION_NOT_FOUND"):
        await env_of(registry).no.such()


def test_an_env_can_be_copied_and_inspected(registry: OperationRegistry) -> None:
    env = env_of(registry)
    assert copy.copy(env).a is not None
    with pytest.raises(AttributeError):
        _ = env.__wrapped__
    with pytest.raises(AttributeError):
        _ = env.a.__wrapped__


async def test_nested_calls_keep_identity_and_metadata_and_name_their_parent(registry: OperationRegistry) -> None:
    async def outer(input: Any, context: OperationContext) -> Any:
        return context.request_id, (await context.env.a.about()).data

    registry.register(op("outer", outer))
    ann = OperationContext(identity=Identity("ann"), metadata={"tenant": 7})
    mine, nested = (await registry.execute("t.outer", {}, ann, timeout=30)).data
    assert (nested["parent"], nested["identity"], nested["metadata"]) == (mine, Identity("ann"), {"tenant": 7})
    assert nested["deadline"] is not None


async def test_env_is_trusted_and_env_as_caller_is_checked(registry: OperationRegistry) -> None:
    async def deputy(input: Any, context: OperationContext) -> Any:
        env = context.env_as_caller if input["as_caller"] else context.env
        return (await env["a.secret"]()).data

    registry.register(op("deputy", deputy))
    ann = OperationContext(identity=Identity("ann"))
    eve = OperationContext(identity=Identity("eve", ["secret"]))
    assert (await registry.execute("t.deputy", {"as_caller": False}, ann)).data["trusted"] is True
    for context in (ann, OperationContext(), OperationContext(trusted=True)):
        with pytest.raises(CallError, match="^ACCESS_DENIED"):
            await registry.execute("t.deputy", {"as_caller": True}, context)
    assert (await registry.execute("t.deputy", {"as_caller": True}, eve)).data["trusted"] is False


async def test_what_a_trusted_handler_hands_on_as_caller_is_checked_again(registry: OperationRegistry) -> None:
    """A trusted nested call does not make the caller's choice of an id trusted."""

    async def gateway(input: Any, context: OperationContext) -> Any:
        return (await context.env_as_caller[input["id"]]()).data

    async def outer(input: Any, context: OperationContext) -> Any:
        return (await context.env.t.gateway(id="a.secret")).data

    for each in (op("gateway", gateway), op("outer", outer)):
        registry.register(each)
    with pytest.raises(CallError, match="^ACCESS_DENIED"):
        await registry.execute("t.outer", {}, OperationContext(identity=Identity("ann")))


async def test_a_handler_s_own_context_makes_a_nested_call(registry: OperationRegistry) -> None:
    async def outer(input: Any, context: OperationContext) -> Any:
        return context.request_id, (await registry.execute("a.about", {}, context)).data

    registry.register(op("outer", outer))
    request_id, nested = (await registry.execute("t.outer", {}, OperationContext(identity=Identity("ann")))).data
    assert (nested["parent"], nested["identity"], nested["trusted"]) == (request_id, Identity("ann"), False)


def test_remaining_seconds_are_never_negative() -> None:
    assert OperationContext().remaining() is None
    assert OperationContext(deadline=(time.time() - 5) * 1000).remaining() == 0
    remaining = OperationContext(deadline=(time.time() + 50) * 1000).remaining()
    assert remaining is not None
    assert 40 < remaining <= 50


def test_a_context_of_no_call_has_no_env() -> None:
    context = OperationContext()
    with pytest.raises(RuntimeError, match="belongs to no registry"):
        _ = context.env
    with pytest.raises(RuntimeError, match="plain def"):
        context.call_sync("a.echo")
    assert not context.cancelled


def test_metadata_of_one_call_cannot_be_changed_into_that_of_all() -> None:
    with pytest.raises(TypeError):
        OperationContext().metadata["x"] = 1  # type: ignore[index]  # the mistake under test


async def test_a_handler_cannot_write_into_the_metadata_of_its_caller_and_of_its_other_calls() -> None:
    seen: list[dict[str, Any]] = []

    async def inner(input: Any, context: OperationContext) -> None:
        seen.append(dict(context.metadata))
        context.metadata["tenant"] = "mine"  # type: ignore[index]  # the attempt under test

    async def outer(input: Any, context: OperationContext) -> None:
        for _ in range(2):
            await error_of(context.env["t.inner"]())
        context.metadata["tenant"] = "mine"  # type: ignore[index]  # the attempt under test

    registry, given = registry_of(inner=inner, outer=outer), {"tenant": "theirs"}
    for _ in range(2):
        with pytest.raises(CallError, match="does not support item assignment"):
            await registry.execute("t.outer", context=OperationContext(metadata=given))
    assert seen == [given] * 4
    assert given == {"tenant": "theirs"}
