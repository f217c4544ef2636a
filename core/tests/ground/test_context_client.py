"""What a handler can tell and ask its client while the call runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from operad import CallError, ErrorCode, OperationContext, OperationRegistry, OperationSpec


class Client:
    capabilities: Mapping[str, Any] = {"elicitation": {}}

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.told.append((progress, total, message))

    async def log(self, level: str, data: Any, logger: str | None) -> None:
        self.told.append((level, data, logger))

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None, key: str | None
    ) -> Mapping[str, Any]:
        return {"action": "accept", "content": {"asked": message}}

    async def sample(self, request: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
        return {"role": "assistant", "content": request}

    async def roots(self, key: str | None) -> Sequence[Mapping[str, Any]]:
        return [{"uri": "file:///a"}]


async def inner(input: Any, context: OperationContext) -> Any:
    await context.progress(1, 2, "inner")
    return await context.elicit("name?", {"type": "object"})


async def outer(input: Any, context: OperationContext) -> Any:
    await context.progress(1, 2, "half")
    await context.log("info", {"a": 1}, "me")
    asked = await context.env.a.inner()
    sampled = await context.sample([{"role": "user"}], max_tokens=3, systemPrompt="p")
    return [asked.data, sampled, await context.roots(), dict(context.client_capabilities)]


def registry() -> OperationRegistry:
    made = OperationRegistry()
    made.register(OperationSpec(namespace="a", name="outer"), outer)
    made.register(OperationSpec(namespace="a", name="inner"), inner)
    return made


async def test_a_handler_reaches_its_client_and_so_do_nested_calls_but_for_progress() -> None:
    client = Client()
    answer = (await registry().execute("a.outer", {}, OperationContext(client=client))).data
    assert client.told == [(1, 2, "half"), ("info", {"a": 1}, "me")]
    assert answer == [
        {"action": "accept", "content": {"asked": "name?"}},
        {"role": "assistant", "content": {"messages": [{"role": "user"}], "maxTokens": 3, "systemPrompt": "p"}},
        [{"uri": "file:///a"}],
        {"elicitation": {}},
    ]


async def test_without_a_client_reports_go_nowhere_logs_to_the_log_and_questions_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = OperationContext()
    await context.progress(1)
    with caplog.at_level(logging.INFO, "operad"):
        await context.log("notice", "said", "me")
    assert "me: said" in caplog.text
    assert dict(context.client_capabilities) == {}
    for asking in (context.elicit("x", {}), context.sample([], max_tokens=1), context.roots()):
        with pytest.raises(CallError, match="nobody can be asked") as raised:
            await asking
        assert raised.value.code == ErrorCode.EXECUTION_ERROR


async def test_a_question_is_a_form_or_a_url_and_a_level_one_of_eight() -> None:
    context = OperationContext(client=Client())
    for wrong in ({}, {"schema": {}, "url": "https://x"}):
        with pytest.raises(ValueError, match="not both"):
            await context.elicit("x", **wrong)
    with pytest.raises(ValueError, match="expected one of debug"):
        await context.log("loud", "x")


async def test_a_change_of_the_operations_is_told_until_it_is_stopped() -> None:
    made, seen = registry(), list[int]()
    stop = made.on_change(lambda: seen.append(len(made)))
    made.unregister("a.inner")
    stop()
    stop()
    made.unregister("a.outer")
    assert seen == [1]
