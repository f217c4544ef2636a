# /// script
# requires-python = ">=3.11"
# dependencies = ["operad"]
# ///
"""A notebook (VS Code, Jupyter and Spyder run its cells): nothing is awaited. Guide: docs/notebooks.md."""

# %% A registry that can be looked at
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
registry  # noqa: B018  # a cell shows what it ends with: a table of the operations

# %% Operations complete, explain and call themselves
plus = registry["math.add"]
print(plus.__doc__)
print(plus(a=1).data, plus({"a": 1, "b": 5}).data)

# %% A wrong input says what is wrong
try:
    plus(a="one")
except CallError as error:
    print(error)

# %% What is here?
print([spec.id for spec in registry.search("sum of numbers")] or list(registry))
