"""Pages of a listing, one after the other."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

from operad import ResponseEnvelope

Call = Callable[[dict[str, Any]], Awaitable[ResponseEnvelope[Any]]]
_LINK = re.compile(r"<([^<>]*)>((?:\s*;\s*[^;,=\s]+\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^;,\s]*))*)")
_REL = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^;,\s]*))", re.IGNORECASE)


async def paginate(
    call: Call,
    input: Mapping[str, Any] | None = None,
    *,
    next_input: Callable[[ResponseEnvelope[Any]], Mapping[str, Any] | None] | None = None,
    max_pages: int = 1_000,
) -> AsyncIterator[ResponseEnvelope[Any]]:
    """The envelopes of all pages.

    Without ``next_input`` the next page is what ``Link: <…>; rel="next"`` says (RFC 8288): the query parameters of
    its URL become input of the same operation. The URL itself is never called: it could be of any host.

    Args:
        call: calls the operation, such as ``context.env.github["repos/list"]``, or
            ``functools.partial(registry.execute, "github.repos/list")``.
        input: of the first page.
        next_input: envelope of a page -> what to change in the input for the next one; ``None`` at the end.
        max_pages: the most pages that are asked for.

    Raises:
        CallError: as the operation does.
    """
    current = dict(input or {})
    find = _link_input if next_input is None else next_input
    for _ in range(max_pages):
        envelope = await call(dict(current))
        yield envelope
        changes = find(envelope)
        if not changes:
            return
        following = {**current, **changes}
        if following == current:
            return  # a server whose next page is this page would never end
        current = following


def next_link(headers: Mapping[str, str], base: str = "") -> str | None:
    """The URL of ``rel="next"`` in the ``link`` header, or ``None``."""
    for match in _LINK.finditer(headers.get("link", "")):
        relation = _REL.search(match[2])
        if relation and "next" in (relation[1] or relation[2] or "").lower().split():
            return urljoin(base, str(match[1]))
    return None


def _link_input(envelope: ResponseEnvelope[Any]) -> dict[str, Any] | None:
    url = next_link(envelope.meta.headers, envelope.meta.url or "")
    if url is None:
        return None
    return {name: _number(value) for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True)}


def _number(text: str) -> str | int:
    """Numbers of a query as numbers: inputs are validated by type, and page numbers are integers."""
    return int(text) if re.fullmatch(r"0|[1-9][0-9]{0,17}", text) else text
