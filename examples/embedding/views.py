# /// script
# requires-python = ">=3.11"
# dependencies = ["operad"]
# ///
"""Views: a registry with different operations, names and access for its users. Guide: docs/views.md."""

from __future__ import annotations

import asyncio

from operad import CallError, Identity, OperationContext, OperationRegistry, operation


@operation(namespace="books", type="query")
async def find(title: str) -> list[str]:
    """Find books."""
    return [title]


@operation(namespace="books")
async def remove(title: str) -> str:
    """Remove a book."""
    return f"{title} is gone"


async def main() -> None:
    """Show three views of one registry."""
    registry = OperationRegistry()
    registry.register(find)
    registry.register(remove)

    # A partner may only read, with its own names. Pass this view to a server, a model or a call handler.
    partner = registry.view(include="books.*", exclude="*.remove", rename={"books.find": "library.search"})
    print([spec.id for spec in partner.specs()])
    print((await partner.execute("library.search", {"title": "Emma"})).data)

    # The staff gets all operations; removing books requires a scope.
    staff = registry.view(access={"books.remove": {"required_scopes": ["librarian"]}})
    for scopes in ((), ("librarian",)):
        context = OperationContext(identity=Identity("emma", scopes))
        try:
            print((await staff.execute("books.remove", {"title": "Emma"}, context)).data)
        except CallError as error:
            print(error.code)

    # One of several tenants: all operations, with a prefix. The view follows changes of the registry.
    tenant = registry.view(prefix="acme")
    print([spec.id for spec in tenant.specs()])


if __name__ == "__main__":
    asyncio.run(main())
