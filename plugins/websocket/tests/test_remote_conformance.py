"""The source `remote` of the core against the conformance kit, over a real hub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from operad import CallError, CallHandler, Identity, OperationRegistry, operation
from operad_testing import Example, SourceCapabilities, SourceConformance
from operad_websocket import Hub, WebSocketTransport, bearer_tokens
from plugins.websocket.tests.kit import TABLES, add, count, registry_of

TOKENS = {"t0ken-of-the-worker": Identity("worker"), "t0ken-of-the-gateway": Identity("gateway")}


@operation(namespace="math")
async def fail() -> None:
    raise CallError("SOLD_OUT", "there are none left")


@operation(namespace="math")
async def sleep() -> None:
    await asyncio.sleep(60)


class TestRemote(SourceConformance):
    source = "remote"
    capabilities = SourceCapabilities(subscriptions=True, changes=True)
    example = Example("math.add", {"a": 1, "b": 2}, data=3)
    invalid = Example("math.add", {"a": "one", "b": 2})
    stream = Example("math.count", {"to": 3}, data=[0, 1, 2])
    failing = Example("math.fail", error="SOLD_OUT")
    slow = Example("math.sleep")
    broken = tuple(TABLES["broken"])
    secrets = ("t0ken-of-the-gateway",)
    served: OperationRegistry

    @asynccontextmanager
    async def environment(self) -> AsyncIterator[Mapping[str, Any]]:
        self.served = registry_of(add, fail, sleep, count)
        async with Hub(bearer_tokens(TOKENS), port=0) as hub:
            async with CallHandler(self.served, WebSocketTransport(hub.url, token="t0ken-of-the-worker")):
                yield {"url": hub.url, "options": {"token": "t0ken-of-the-gateway"}, "wait": 20}
            assert hub.pending == 0

    async def change(self, registry: OperationRegistry) -> None:
        self.served.unregister("math.fail")
