"""A registry mounted in a FastAPI application: `uvicorn in_fastapi:app`, then http://127.0.0.1:8000/gate/."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import FastAPI

from operad import OperationRegistry, load_plugins, operation
from operad_serve import to_openapi


@operation(namespace="math", type="query")
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@operation(namespace="math", type="subscription")
async def count(n: int = 3) -> AsyncIterator[int]:
    """Count."""
    for number in range(n):
        yield number


registry = OperationRegistry(load_plugins(only=["openapi"]))
registry.register(add)
registry.register(count)

app = FastAPI()
app.mount("/gate", to_openapi(registry, title="Gate"))


@app.get("/hello")
async def hello() -> str:
    """Return a greeting, on a route of the application itself."""
    return "hello"
