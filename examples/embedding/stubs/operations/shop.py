"""Operations of a shop; an API or an MCP server in operad.toml has types in the same way."""

from typing import Literal, TypedDict

from operad import operation


class Book(TypedDict):
    """A book of the shop."""

    title: str
    pages: int


@operation(namespace="shop", name="books/find", type="query")
async def find(order: Literal["title", "pages"] = "title", limit: int = 10) -> list[Book]:
    """Find books."""
    books = [Book(title="Emma", pages=474), Book(title="Persuasion", pages=249)]
    return sorted(books, key=lambda book: book[order])[:limit]
