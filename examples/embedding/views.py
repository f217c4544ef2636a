# /// script
# requires-python = ">=3.11"
# dependencies = ["operad"]
# ///
"""Views: the registry of an application, as each of its users should see it. Guide: docs/views.md."""

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
    """Three views of one registry."""
    registry = OperationRegistry()
    registry.register(find)
    registry.register(remove)

    # What a partner gets: reading only, under the partner's names. Hand it to a server, a model, a call handler.
    partner = registry.view(include="books.*", exclude="*.remove", rename={"books.find": "library.search"})
    print([spec.id for spec in partner.specs()])
    print((await partner.execute("library.search", {"title": "Emma"})).data)

    # What the staff gets: everything, if they may.
    staff = registry.view(access={"books.remove": {"required_scopes": ["librarian"]}})
    for scopes in ((), ("librarian",)):
        context = OperationContext(identity=Identity("emma", scopes))
        try:
            print((await staff.execute("books.remove", {"title": "Emma"}, context)).data)
        except CallError as error:
            print(error.code)

    # One registry of several: each in a namespace of its own, as it is now and as it becomes.
    tenant = registry.view(prefix="acme")
    print([spec.id for spec in tenant.specs()])


if __name__ == "__main__":
    asyncio.run(main())
