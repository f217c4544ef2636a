"""`client_of` asks the client that waits for a call, from its handler and from nested ones."""

from __future__ import annotations

from typing import Any

import pytest

from operad import CallError, ErrorCode, OperationContext, OperationRegistry, OperationSpec
from operad_mcp import client_of
from plugins.mcp.tests.peers import Caller


class Listener:
    """The client of another protocol: it can be told and not asked."""

    progress = Caller.progress
    log = Caller.log


async def inner(input: Any, context: OperationContext) -> Any:
    return await client_of(context).elicit("name?", {"type": "object"}, key="k")


async def outer(input: Any, context: OperationContext) -> Any:
    client = client_of(context)
    sampled = await client.sample([{"role": "user"}], max_tokens=3, systemPrompt="p")
    asked = (await context.env.a.inner()).data
    return [asked, sampled, await client.roots(), dict(client.capabilities)]


async def test_a_handler_and_its_nested_calls_ask_one_client() -> None:
    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="a", name="outer"), outer)
    registry.register(OperationSpec(namespace="a", name="inner"), inner)
    caller = Caller()
    asked, sampled, roots, capabilities = (
        await registry.execute("a.outer", {}, OperationContext(client=caller))
    ).data
    assert (asked, sampled["model"]) == ({"action": "accept", "content": {"name": "Ada"}}, "abacus")
    assert (roots, capabilities) == ([{"uri": "file:///a"}], {"elicitation": {}, "sampling": {}})
    assert caller.asked == [
        ({"messages": [{"role": "user"}], "maxTokens": 3, "systemPrompt": "p"}, None),
        ("name?", {"type": "object"}, None, "k"),
    ]


@pytest.mark.parametrize("context", [OperationContext(), OperationContext(client=Listener())])
async def test_without_a_client_that_can_be_asked_questions_fail(context: OperationContext) -> None:
    client = client_of(context)
    assert dict(client.capabilities) == {}
    for asking in (client.elicit("x", {}), client.sample([], max_tokens=1), client.roots()):
        with pytest.raises(CallError, match="no client can be asked") as raised:
            await asking
        assert raised.value.code == ErrorCode.EXECUTION_ERROR
        assert "requiredCapability" in raised.value.details


async def test_a_question_is_a_form_or_a_url() -> None:
    caller = Caller()
    client = client_of(OperationContext(client=caller))
    for wrong in ({}, {"schema": {}, "url": "https://x"}):
        with pytest.raises(ValueError, match=r"expected either schema \(a form\) or url, got (neither|both)"):
            await client.elicit("x", **wrong)  # type: ignore[arg-type]  # the mistake is the subject
    await client.elicit("x", url="https://x")
    assert caller.asked == [("x", None, "https://x", None)]
