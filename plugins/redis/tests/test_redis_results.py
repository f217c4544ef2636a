"""First results in Redis: several processes that serve one thing run a repeated request once."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress

import pytest

from operad_redis import RedisResults
from operad_testing import ResultStoreConformance

pytestmark = pytest.mark.redis


class TestRedisResults(ResultStoreConformance):
    @pytest.fixture(autouse=True)
    def shared(self, redis_url: str) -> None:
        self.url = redis_url

    def store(self, name: str) -> RedisResults:
        return RedisResults(self.url, prefix=f"{name}:")

    def away(self) -> RedisResults:
        return RedisResults(f"redis://:{self.secret}@127.0.0.1:9", socket_connect_timeout=1)


async def test_a_server_that_stands_still_lets_nothing_run(redis_server):
    async with RedisResults(redis_server.url) as patient, RedisResults(redis_server.url, timeout=0.2) as store:
        assert await patient.claim("a", b"x", 60) is None
        redis_server.freeze()
        try:
            with pytest.raises(TimeoutError):
                await store.claim("b", b"x", 60)
        finally:
            redis_server.thaw()
        found = None
        async with asyncio.timeout(30):
            while found is None:
                with suppress(TimeoutError):  # the server, or this process, has not had its turn yet
                    found = await store.claim("a", b"y", 60)
        assert found == b"x"


async def test_more_calls_at_once_than_connections_wait_for_one(redis_url):
    name = secrets.token_hex(8)
    async with RedisResults(redis_url, prefix=name) as store:
        claims = await asyncio.gather(*(store.claim(f"{number}", b"x", 60) for number in range(150)))
        assert claims == [None] * 150
        await asyncio.gather(*(store.drop(f"{number}") for number in range(150)))
