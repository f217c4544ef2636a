"""Iterate over the pages of a listing."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

from operad import CallError, ErrorCode, OperationRegistry, ResponseEnvelope
from operad_auth.http.urls import shown_url

Call = Callable[[dict[str, Any]], Awaitable[ResponseEnvelope[Any]]]
_LINK = re.compile(r"<([^<>]*)>((?:\s*;\s*[^;,=\s]+\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^;,\s]*))*)")
_REL = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^;,\s]*))", re.IGNORECASE)


def paginate(
    call: Call,
    input: Mapping[str, Any] | None = None,
    *,
    next_input: Callable[[ResponseEnvelope[Any]], Mapping[str, Any] | None] | None = None,
    max_pages: int = 1_000,
) -> AsyncGenerator[ResponseEnvelope[Any], None]:
    """Return an async generator of the envelopes of all pages.

    If ``next_input`` is missing and ``call`` is ``functools.partial(registry.execute, id)``, the result is that of
    `OperationRegistry.paginate`, which knows the pagination of the operation. For any other ``call``, the header
    ``Link: <…>; rel="next"`` (RFC 8288) leads to the next page: the query parameters of its URL become input of
    the same operation, and whole numbers become integers. The URL itself is not called: it may have any host.

    Args:
        call: calls the operation.
        input: the input of the first page.
        next_input: returns the changes of the input for the next page, given the envelope of a page; ``None`` or
            no changes after the last page.
        max_pages: the maximum number of pages to request.

    Raises:
        CallError: a call fails, or the link to the next page is not a URL.
    """
    if next_input is None and isinstance(call, partial) and len(call.args) == 1:
        registry = getattr(call.func, "__self__", None)
        if isinstance(registry, OperationRegistry) and call.func == registry.execute:
            return registry.paginate(call.args[0], input, max_pages=max_pages, **call.keywords)
    return _pages(call, input, next_input or _link_input, max_pages)


async def _pages(
    call: Call,
    input: Mapping[str, Any] | None,
    find: Callable[[ResponseEnvelope[Any]], Mapping[str, Any] | None],
    max_pages: int,
) -> AsyncGenerator[ResponseEnvelope[Any], None]:
    current = dict(input or {})
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
    """Return the URL of ``rel="next"`` in the header ``link``, made absolute with ``base``.

    Returns ``None`` if the header has no such link. Raises `ValueError` if its URL is not valid.
    """
    for match in _LINK.finditer(headers.get("link", "")):
        relation = _REL.search(match[2])
        if relation and "next" in (relation[1] or relation[2] or "").lower().split():
            return urljoin(base, str(match[1]))
    return None


def _link_input(envelope: ResponseEnvelope[Any]) -> dict[str, Any] | None:
    try:
        url = next_link(envelope.meta.headers, envelope.meta.url or "")
        query = None if url is None else urlsplit(url).query
    except ValueError as error:
        message = f"expected a URL as the link to the next page, got an invalid one: {error}"
        if envelope.meta.url is not None:
            message = f"{shown_url(envelope.meta.url)}: {message}"
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message}) from error
    if query is None:
        return None
    return {name: _number(value) for name, value in parse_qsl(query, keep_blank_values=True)}


def _number(text: str) -> str | int:
    """Return a whole number as an integer: inputs are validated by type, and page numbers are integers."""
    return int(text) if re.fullmatch(r"0|[1-9][0-9]{0,17}", text) else text
