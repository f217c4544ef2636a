"""Connections to the server of a URL, or to the node of a cluster that holds the keys of a bus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import MovedError

from operad_redis._connection import Pipeline, disconnect, pack
from operad_redis._scripts import SCRIPTS


async def connect(pool: ConnectionPool, timeout: float) -> AbstractConnection:
    """Return a new open connection. Raises one of `operad_redis._connection.LOST` if that fails."""
    connection = pool.connection_class(**pool.connection_kwargs)
    try:
        connecting = connection.connect()  # type: ignore[no-untyped-call]  # redis-py left it without types
        async with asyncio.timeout(timeout):
            await connecting
    except BaseException:
        await disconnect(connection)
        raise
    return connection


async def connect_commands(
    pool: ConnectionPool, timeout: float, key: str, on_lost: Callable[[BaseException], None]
) -> Pipeline:
    """Return a pipeline to the node that holds a key, with the scripts loaded.

    Later connections of the pool go to the same node. Raises one of `_connection.LOST` if connecting fails.
    """
    for _ in range(3):
        pipeline = Pipeline(await connect(pool, timeout), on_lost)
        try:
            await pipeline.ask(pack("ZCARD", key))
            loads = [pipeline.ask(pack("SCRIPT", "LOAD", script.source)) for script in SCRIPTS.values()]
            await asyncio.gather(*loads)
        except MovedError as moved:
            await pipeline.close()
            pool.connection_kwargs.update(host=moved.host, port=moved.port)
        except BaseException:
            await pipeline.close()
            raise
        else:
            return pipeline
    raise ConnectionError(
        "the cluster moved the keys of this bus three times in a row; retry when the cluster is stable"
    )
