"""All pages of a listing, one call each, or what stands on them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from operad.envelopes import ResponseEnvelope
from operad.operations import Pages

Execute = Callable[[dict[str, Any]], Awaitable[ResponseEnvelope[Any]]]


async def pages_of(
    execute: Execute, pages: Pages | None, input: Mapping[str, Any] | None, max_pages: int
) -> AsyncGenerator[ResponseEnvelope[Any], None]:
    """The envelopes of all pages; of one, where nobody knows how to go on. Raises `CallError`."""
    current: dict[str, Any] | None = dict(input or {})
    seen = 0
    while current is not None and seen < max_pages:
        envelope = await execute(dict(current))
        seen += 1
        yield envelope
        following = None if pages is None else pages.following(current, envelope)
        # A server whose next page is this page would never end.
        current = None if following is None or following == current else dict(following)


async def items_of(
    execute: Execute, pages: Pages | None, input: Mapping[str, Any] | None, max_pages: int
) -> AsyncGenerator[Any, None]:
    """What stands on all pages. Raises `CallError`."""
    async with aclosing(pages_of(execute, pages, input, max_pages)) as stream:
        async for envelope in stream:
            found = pages.items(envelope) if pages is not None else envelope.data
            for item in found if isinstance(found, list) else [found]:
                yield item
