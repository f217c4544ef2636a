"""The operations that the workers of this example serve."""

from __future__ import annotations

import os

from operad import operation


@operation(namespace="orders", type="query")
async def total(prices: list[float]) -> float:
    """Add up the prices of an order."""
    return sum(prices)


@operation(namespace="orders", type="query")
async def worker() -> int:
    """Return the process id of the worker. Repeat the call to reach other workers."""
    return os.getpid()
