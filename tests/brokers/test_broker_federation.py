"""What workers serve on a broker becomes operations of another process; the examples of the READMEs run."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

from operad import CallHandler, OperationRegistry, OperationSpec, from_remote

Broker = Any  # see conftest.py, which tests cannot import
PLUGINS = Path(__file__).parents[2] / "plugins"


async def test_operations_of_workers_on_a_broker_can_be_used_as_ones_own(broker: Broker) -> None:
    async def double(input: Any, context: Any) -> int:
        return 2 * int(input["n"])

    far, near = OperationRegistry(), OperationRegistry()
    far.register(
        OperationSpec(namespace="far", name="double", type="query", input_schema={"type": "object"}), double
    )
    async with (
        CallHandler(far, broker.transport()),
        CallHandler(far, broker.transport()),
        await from_remote(broker.transport(), "remote") as session,
    ):
        for operation in session.operations:
            near.register(operation)
        assert [spec.id for spec in near.specs()] == ["remote.far.double"]
        async with asyncio.timeout(60):
            assert (await near.execute("remote.far.double", {"n": 21})).data == 42
    await broker.nothing_left()


async def test_the_example_of_the_readme_runs(broker: Broker) -> None:
    text = (PLUGINS / broker.kind / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), names)
    await names["main"](broker.server.url)


async def test_the_worker_and_the_caller_of_the_guide_connect(broker: Broker) -> None:
    text = (PLUGINS.parent / "docs" / "scale.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(from operad import CallHandler.*?)```", text, re.S)
    code = code.replace("nats://127.0.0.1:4222", broker.server.url)
    names: dict[str, Any] = {"registry": OperationRegistry()}
    await eval(compile(code, "docs/scale.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    assert names["calls"] is not None
    await broker.nothing_left()
