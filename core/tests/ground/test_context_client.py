"""Progress and log messages of a handler reach the client of its call."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from core.tests.kit import registry_of
from operad import OperationContext, OperationRegistry


class Client:
    def __init__(self) -> None:
        self.told: list[Any] = []

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.told.append((progress, total, message))

    async def log(self, level: str, data: Any, logger: str | None) -> None:
        self.told.append((level, data, logger))


async def inner(input: Any, context: OperationContext) -> Any:
    await context.progress(1, 2, "inner")
    await context.log("info", "inner")
    return context.client


async def outer(input: Any, context: OperationContext) -> Any:
    await context.progress(1, 2, "half")
    await context.log("info", {"a": 1}, "me")
    return await context.env.t.inner()


def registry() -> OperationRegistry:
    return registry_of(outer=outer, inner=inner)


async def test_a_handler_reaches_its_client_and_so_do_nested_calls_but_for_progress() -> None:
    client = Client()
    answer = (await registry().execute("t.outer", {}, OperationContext(client=client))).data
    assert client.told == [(1, 2, "half"), ("info", {"a": 1}, "me"), ("info", "inner", None)]
    assert answer is client


async def test_without_a_client_progress_is_dropped_and_logs_go_to_the_logger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = OperationContext()
    await context.progress(1)
    with caplog.at_level(logging.INFO, "operad"):
        await context.log("notice", "said", "me")
    assert "me: said" in caplog.text


async def test_a_level_is_one_of_eight() -> None:
    with pytest.raises(ValueError, match="expected one of debug"):
        await OperationContext(client=Client()).log("loud", "x")


async def test_a_change_of_the_operations_is_told_until_it_is_stopped() -> None:
    made, seen = registry(), list[int]()
    stop = made.on_change(lambda: seen.append(len(made)))
    made.unregister("t.inner")
    stop()
    stop()
    made.unregister("t.outer")
    assert seen == [1]
