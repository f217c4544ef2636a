"""What the tests of hubs and spokes share: operations, calls and their errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, OperationRegistry, PendingRequestMap, operation
from operad_websocket import Hub, WebSocketTransport
from plugins.calls.tests.links import until as until

TABLES: dict[str, Any] = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))


@operation(namespace="math", type="query")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@operation(namespace="math", access_control={"required_scopes": ["admin"]})
async def reset() -> str:
    return "done"


@operation(namespace="math")
async def count(to: int) -> AsyncIterator[int]:
    for number in range(to):
        yield number


def registry_of(*operations: Any) -> OperationRegistry:
    registry = OperationRegistry()
    for item in operations:
        registry.register(item)
    return registry


def calling(hub: Hub, **options: Any) -> PendingRequestMap:
    return PendingRequestMap(WebSocketTransport(hub.url, **options))


async def error_of(awaitable: Awaitable[Any]) -> CallError:
    with pytest.raises(CallError) as caught:
        await awaitable
    return caught.value


async def code_of(awaitable: Awaitable[Any]) -> str:
    return str((await error_of(awaitable)).code)
