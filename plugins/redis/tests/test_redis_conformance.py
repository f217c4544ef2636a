"""The conformance kit of transports over a real Redis server, which is asked to cut connections."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import redis.asyncio

from operad.transports import Transport
from operad_redis import RedisTransport
from operad_redis._keys import Keys
from operad_testing import TransportConformance

pytestmark = pytest.mark.redis


class TestRedis(TransportConformance):
    url: str

    @pytest.fixture(autouse=True)
    def _use(self, redis_url: str) -> None:
        self.url = redis_url

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[Transport]:
        bus = "kit" + secrets.token_hex(4)
        yield RedisTransport(url=self.url, bus=bus, reconnect_wait=0.05, connect_timeout=20.0)
        async with redis.asyncio.Redis.from_url(self.url) as raw:
            left = await raw.keys(Keys(bus).prefix.replace("{", "[{]") + "*")
        assert left == [], "keys that nobody needs any more"

    async def sever(self, transport: Transport) -> None:
        async with redis.asyncio.Redis.from_url(self.url) as raw:
            await raw.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
