"""The local operations of the demo: plain functions with type hints."""

from typing import Annotated, Any

from operad import OperationContext, operation


@operation(type="query")
async def greet(name: Annotated[str, "The person to greet."]) -> str:
    """Greet a person."""
    return f"Hello, {name}!"


@operation(type="query")
async def offer(
    max_price: Annotated[float, "In euros."],
    timezone: Annotated[str, "The customer's time zone, such as Asia/Tokyo."],
    context: OperationContext,
) -> dict[str, Any]:
    """Return the most expensive book that a customer can afford, and the customer's local time.

    The operation asks the bookshop's API and the MCP server through the same registry.
    """
    books = await context.env.shop.listBooks({"maxPrice": max_price})
    now = await context.env.time.get_current_time({"timezone": timezone})
    return {"book": max(books.data, key=lambda book: book["price"]), "customer_time": now.data}
