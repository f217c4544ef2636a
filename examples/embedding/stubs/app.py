# /// script
# requires-python = ">=3.11"
# dependencies = ["operad", "operad-cli", "operad-scanner"]
# ///
"""An application whose operations are all typed. Guide: docs/stubs.md.

operad stubs shop_types
python app.py
mypy --strict app.py
"""

from __future__ import annotations

import asyncio

from shop_types import Registry


async def main() -> None:
    """List the books: mypy and pyright know the fields of a book."""
    async with Registry.from_config("operad.toml") as registry:
        shop = registry.client("shop")
        for book in await shop.books_find(order="pages"):
            print(book["title"], book["pages"])


if __name__ == "__main__":
    asyncio.run(main())
