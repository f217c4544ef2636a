"""First results in Redis: several processes that serve one thing run a repeated request once."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from operad import CallError, FirstResults, OperationRegistry, OperationSpec
from operad_redis import RedisResults
from operad_redis.testing import RedisServer

pytestmark = pytest.mark.redis


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex}:"


async def test_two_workers_run_a_repeated_request_once(redis_url: str, prefix: str) -> None:
    runs: list[str] = []
    started, gate = asyncio.Event(), asyncio.Event()

    def worker(name: str, store: RedisResults) -> OperationRegistry:
        async def order(input: Any, context: Any) -> Any:
            runs.append(name)
            started.set()
            await gate.wait()
            return {"by": name}

        registry = OperationRegistry()
        registry.register(OperationSpec(namespace="shop", name="order"), order)
        registry.use(FirstResults(store))
        return registry

    async with RedisResults(redis_url, prefix=prefix) as one, RedisResults(redis_url, prefix=prefix) as two:
        first, second = worker("one", one), worker("two", two)
        running = asyncio.create_task(first.execute("shop.order", {}, idempotency_key="k"))
        await started.wait()
        waiting = asyncio.create_task(second.execute("shop.order", {}, idempotency_key="k"))
        await asyncio.sleep(0.02)
        gate.set()
        assert [(await running).data, (await waiting).data] == [{"by": "one"}, {"by": "one"}]
        assert (await second.execute("shop.order", {}, idempotency_key="k")).data == {"by": "one"}
        with pytest.raises(CallError, match="another input"):
            await second.execute("shop.order", {"more": 1}, idempotency_key="k")
    assert runs == ["one"]


async def test_a_name_is_claimed_once_replaced_freed_and_expires(redis_url: str, prefix: str) -> None:
    async with RedisResults(redis_url, prefix=prefix) as store:
        claims = await asyncio.gather(*(store.claim("a", str(number).encode(), 60) for number in range(20)))
        assert claims.count(None) == 1
        (winner,) = {claim for claim in claims if claim is not None}
        assert winner == str(claims.index(None)).encode()
        await store.put("a", b"result", 60)
        assert await store.claim("a", b"x", 60) == b"result"
        await store.drop("a")
        assert await store.claim("a", b"short", 0.01) is None
        await asyncio.sleep(0.03)
        assert await store.claim("a", b"again", 60) is None
        await store.drop("a")


async def test_a_server_that_is_away_lets_nothing_run() -> None:
    runs: list[int] = []

    async def run(input: Any, context: Any) -> None:
        runs.append(1)

    store = RedisResults("redis://:s3cret@127.0.0.1:9", socket_connect_timeout=1)
    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="t", name="run"), run)
    registry.use(FirstResults(store))
    with pytest.raises(CallError, match="the store of first results cannot be asked") as caught:
        await registry.execute("t.run", {}, idempotency_key="k")
    assert caught.value.code == "UNAVAILABLE"
    assert "s3cret" not in f"{caught.value} {store!r}"
    assert runs == []
    await store.aclose()


async def test_a_server_that_stands_still_lets_nothing_run(redis_server: RedisServer) -> None:
    async with RedisResults(redis_server.url, timeout=0.2) as store:
        assert await store.claim("a", b"x", 60) is None
        redis_server.freeze()
        try:
            with pytest.raises(TimeoutError):
                await store.claim("b", b"x", 60)
        finally:
            redis_server.thaw()
        assert await store.claim("a", b"y", 60) == b"x"
