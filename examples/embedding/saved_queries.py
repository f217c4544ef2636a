# /// script
# requires-python = ">=3.11"
# dependencies = ["operad"]
# ///
"""A plugin of an application's own, without a distribution: a catalogue of saved queries that is too long to list.

A query becomes an operation when it is first called; one that lists their names is there from the start; each
answer is written down; and the plugin knows what is offered. Reference: docs/hooks.md.
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
        """What is ready when the registry is made."""
        registry.register(operation(namespace="report", type="query")(self.names))

    async def names(self, after: str = "", limit: int = 100) -> list[str]:
        """The names of saved queries, a page of them."""
        found = self.database.execute(
            "SELECT name FROM saved WHERE name > ? ORDER BY name LIMIT ?", (after, limit)
        )
        return [name for (name,) in found]

    @hookimpl
    def operad_resolve_operation(self, operation_id: str) -> Operation[..., Any] | None:
        """What is called and not there yet."""
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
        """What stands around the calls of all of them."""
        return [Interceptor(self.written_down, match="report.*")]

    async def written_down(self, call: InterceptedCall, proceed: Proceed) -> ResponseEnvelope[Any]:
        """Write down who asked what, and how many rows that was."""
        envelope = await proceed(call)
        self.lines.append(f"{call.spec.id} {len(envelope.data)}")
        return envelope

    @hookimpl
    def operad_operation_added(self, spec: OperationSpec) -> None:
        """An operation is there now, from whomever."""
        self.offered.add(spec.id)

    @hookimpl
    def operad_operation_removed(self, spec: OperationSpec) -> None:
        """And one no longer."""
        self.offered.discard(spec.id)


def a_shop() -> sqlite3.Connection:
    """A database with orders, and two queries that somebody saved."""
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
    """Ask for the names, then for what they mean."""
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
