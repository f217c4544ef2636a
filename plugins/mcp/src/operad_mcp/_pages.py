"""Listings, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from operad_mcp._connection import Connection


async def all_pages(connection: Connection, method: str, key: str) -> list[Any]:
    """All items of a paged listing, within ``max_pages`` and ``max_listing_bytes``.

    A cursor that comes again ends the listing, and so do the two limits: what came before them is taken.

    Args:
        connection: to the server.
        method: as the protocol names it.
        key: where a page has its items.

    Raises:
        CallError: a page cannot be had.
    """
    config, logger = connection.config, connection.logger
    items: list[Any] = []
    seen: set[str] = set()
    size = 0
    params: dict[str, Any] = {}
    for _ in range(config.max_pages):
        raw, _live = await connection.request(method, params, safe=True, timeout=config.timeout)
        page = raw if isinstance(raw, dict) else {}
        found, following = page.get(key), page.get("nextCursor")
        if seen or isinstance(following, str):  # a listing of one page is within max_message_bytes
            size += _size(page)
        if size > config.max_listing_bytes:
            message = "the listing %s is larger than max_listing_bytes = %d; its first %d items are taken"
            logger.warning(message, method, config.max_listing_bytes, len(items))
            return items
        items.extend(found if isinstance(found, list) else ())
        if not isinstance(following, str):
            return items
        if following in seen:
            logger.warning("the listing %s goes in circles; %d items", method, len(items))
            return items
        seen.add(following)
        params = {"cursor": following}
    message = "the listing %s has more than max_pages = %d pages; the first %d items are taken"
    logger.warning(message, method, config.max_pages, len(items))
    return items


def _size(page: Any) -> int:
    """Bytes of a page's JSON."""
    try:
        return len(msgspec.json.encode(page))
    except (ValueError, RecursionError, OverflowError):  # a number or a depth that strict JSON has not
        return len(str(page))
