"""What the tests of programs share: a registry that runs them, and their results and errors."""

from __future__ import annotations

from typing import Any

import pytest

from operad import CallError, OperationContext, OperationRegistry, load_plugins


async def registry_of(*operations: Any, **options: Any) -> OperationRegistry:
    """Return a registry with operations and the source ``code``."""
    registry = OperationRegistry(load_plugins())
    for each in operations:
        registry.register(each)
    await registry.load("code", **options)
    return registry


async def run(registry: OperationRegistry, code: str, context: OperationContext | None = None) -> Any:
    return (await registry.execute("code.run", {"code": code}, context)).data


async def failure(registry: OperationRegistry, code: str, context: OperationContext | None = None) -> CallError:
    with pytest.raises(CallError) as caught:
        await run(registry, code, context)
    return caught.value
