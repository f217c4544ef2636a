# /// script
# requires-python = ">=3.11"
# dependencies = ["operad"]
# ///
"""Cells of a notebook for VS Code, Jupyter and Spyder, without ``await``. Guide: docs/notebooks.md."""

# %% A registry, shown as a table
import asyncio

from operad import CallError, operation
from operad.sync import OperationRegistry


@operation(namespace="math", type="query")
async def add(a: int, b: int = 1) -> int:
    """Add two integers."""
    await asyncio.sleep(0)
    return a + b


registry = OperationRegistry()  # or OperationRegistry.from_config("operad.toml").open()
registry.register(add)
registry  # noqa: B018  # a cell shows its last value: a table of the operations

# %% Operations with completion, documentation and calls
plus = registry["math.add"]
print(plus.__doc__)
print(plus(a=1).data, plus({"a": 1, "b": 5}).data)

# %% A wrong input raises an error that explains it
try:
    plus(a="one")
except CallError as error:
    print(error)

# %% Search the operations
print([spec.id for spec in registry.search("sum of numbers")] or list(registry))
