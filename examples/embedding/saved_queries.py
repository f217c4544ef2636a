# /// script
# requires-python = ">=3.11"
# dependencies = ["operad"]
# ///
"""A plugin inside an application, without a distribution: a catalogue of saved queries that is too large to list.

A query becomes an operation when it is first called. The operation that lists their names exists from the start.
An interceptor logs each call, and the plugin tracks the offered operations. Reference: docs/hooks.md.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

from operad import (
    CallError,
    Operation,
    OperationRegistry,
    OperationSpec,
    ResponseEnvelope,
    load_plugins,
    operation,
)
from operad.plugin import InterceptedCall, Interceptor, hookimpl

Proceed = Callable[[InterceptedCall], Awaitable[ResponseEnvelope[Any]]]


class SavedQueries:
    """The queries of a table ``saved``, as operations ``report.NAME``. Their parameters are written ``:name``."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self.offered: set[str] = set()
        self.lines: list[str] = []

    @hookimpl
    def operad_register_operations(self, registry: OperationRegistry) -> None:
        """Register the operation that exists from the start."""
        registry.register(operation(namespace="report", type="query")(self.names))

    async def names(self, after: str = "", limit: int = 100) -> list[str]:
        """Return a page of the names of saved queries."""
        found = self.database.execute(
            "SELECT name FROM saved WHERE name > ? ORDER BY name LIMIT ?", (after, limit)
        )
        return [name for (name,) in found]

    @hookimpl
    def operad_resolve_operation(self, operation_id: str) -> Operation[..., Any] | None:
        """Return the operation of a saved query that is called for the first time; None for any other id."""
        namespace, _, name = operation_id.partition(".")
        found = self.database.execute("SELECT statement, about FROM saved WHERE name = ?", (name,)).fetchone()
        if namespace != "report" or found is None:
            return None
        statement, about = found
        parameters = re.findall(r":(\w+)", statement)
        schema = {"type": "object", "properties": {name: {} for name in parameters}, "required": parameters}

        async def run(input: dict[str, Any], context: Any) -> list[list[Any]]:
            return [list(row) for row in self.database.execute(statement, input)]

        spec = OperationSpec(namespace=namespace, name=name, type="query", description=about, input_schema=schema)
        return Operation(spec, run)

    @hookimpl
    def operad_interceptors(self) -> list[Interceptor]:
        """Return the interceptor for all reports."""
        return [Interceptor(self.written_down, match="report.*")]

    async def written_down(self, call: InterceptedCall, proceed: Proceed) -> ResponseEnvelope[Any]:
        """Log the operation and the number of rows of each call."""
        envelope = await proceed(call)
        self.lines.append(f"{call.spec.id} {len(envelope.data)}")
        return envelope

    @hookimpl
    def operad_operation_added(self, spec: OperationSpec) -> None:
        """Note that a source or plugin has added an operation."""
        self.offered.add(spec.id)

    @hookimpl
    def operad_operation_removed(self, spec: OperationSpec) -> None:
        """Note that an operation was removed."""
        self.offered.discard(spec.id)


def a_shop() -> sqlite3.Connection:
    """Return a database with orders and two saved queries."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE orders (city, amount)")
    database.executemany("INSERT INTO orders VALUES (?, ?)", [("Bonn", 5), ("Rome", 7), ("Bonn", 8)])
    database.execute("CREATE TABLE saved (name PRIMARY KEY, statement, about)")
    queries = [
        ("by_city", "SELECT amount FROM orders WHERE city = :city", "The orders of a city."),
        ("largest", "SELECT city, max(amount) FROM orders", "The largest order."),
    ]
    database.executemany("INSERT INTO saved VALUES (?, ?, ?)", queries)
    return database


async def main() -> None:
    """List the names, then call the queries."""
    mine = SavedQueries(a_shop())
    plugins = load_plugins(only=[])
    plugins.register(mine)
    async with OperationRegistry(plugins) as registry:
        print(sorted(mine.offered))
        print((await registry.execute("report.names")).data)
        print((await registry.execute("report.by_city", {"city": "Bonn"})).data)
        try:
            await registry.execute("report.by_moon")
        except CallError as error:
            print(error.code)
        print(sorted(mine.offered), mine.lines)
        registry.unregister("report.by_city")
        print(sorted(mine.offered))
    mine.database.close()


if __name__ == "__main__":
    asyncio.run(main())
