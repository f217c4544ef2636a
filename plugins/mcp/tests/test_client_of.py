"""`client_of` asks the client that waits for a call, from its handler and from nested ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from operad import CallError, ErrorCode, OperationContext, OperationRegistry, OperationSpec
from operad_mcp import client_of


class Client:
    capabilities: Mapping[str, Any] = {"elicitation": {}}

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    async def log(self, level: str, data: Any, logger: str | None) -> None: ...

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None, key: str | None
    ) -> Mapping[str, Any]:
        return {"action": "accept", "content": {"asked": message, "form": schema, "url": url, "key": key}}

    async def sample(self, request: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
        return {"role": "assistant", "content": request}

    async def roots(self, key: str | None) -> Sequence[Mapping[str, Any]]:
        return [{"uri": "file:///a"}]


class Listener:
    """The client of another protocol: it can be told and not asked."""

    progress = Client.progress
    log = Client.log


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
    answer = (await registry.execute("a.outer", {}, OperationContext(client=Client()))).data
    content = {"asked": "name?", "form": {"type": "object"}, "url": None, "key": "k"}
    assert answer == [
        {"action": "accept", "content": content},
        {"role": "assistant", "content": {"messages": [{"role": "user"}], "maxTokens": 3, "systemPrompt": "p"}},
        [{"uri": "file:///a"}],
        {"elicitation": {}},
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
    client = client_of(OperationContext(client=Client()))
    for wrong in ({}, {"schema": {}, "url": "https://x"}):
        with pytest.raises(ValueError, match=r"expected either schema \(a form\) or url, got (neither|both)"):
            await client.elicit("x", **wrong)  # type: ignore[arg-type]  # the mistake is the subject
    assert (await client.elicit("x", url="https://x"))["content"]["url"] == "https://x"
