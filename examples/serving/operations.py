"""The operations that are served behind the proxy."""

from operad import operation


@operation(namespace="math", type="query")
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b
