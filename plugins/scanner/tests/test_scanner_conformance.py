"""The scanner against the conformance kit."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from operad_testing import Example, PluginConformance, SourceCapabilities, SourceConformance

OPERATIONS = dedent(
    '''
    import asyncio
    from collections.abc import AsyncIterator

    from operad import CallError, OperationSpec, operation


    @operation(type="query")
    async def add(a: int, b: int) -> int:
        """The sum of two integers."""
        return a + b


    @operation
    async def fail() -> None:
        raise CallError("EXECUTION_ERROR", "as it should")


    @operation
    async def sleep() -> None:
        await asyncio.sleep(60)


    @operation
    async def count(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number
    '''
)


class TestScanner(SourceConformance):
    source = "scanner"
    capabilities = SourceCapabilities(subscriptions=True)
    example = Example("add", {"a": 1, "b": 2}, data=3)
    invalid = Example("add", {"a": "one", "b": 2})
    stream = Example("count", {"to": 3}, data=[0, 1, 2])
    failing = Example("fail", error="EXECUTION_ERROR")
    slow = Example("sleep")
    broken = ({"path": "/no/such/folder"}, {"path": 3})

    @asynccontextmanager
    async def environment(self) -> AsyncIterator[Mapping[str, Any]]:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "operations.py").write_text(OPERATIONS)
            yield {"path": folder}


class TestPlugin(PluginConformance):
    distribution = "operad-scanner"
    contributes = {"sources": ["scanner"]}
