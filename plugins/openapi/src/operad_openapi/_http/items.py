"""Read the items of streams: server-sent events, JSON lines, JSON text sequences."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from operad import CallError, ErrorCode, ResponseEnvelope
from operad_auth.http import SSEEvent, SSEEventTooLargeError, SSEParser, without_user
from operad_openapi._document.mediatypes import EVENT_STREAM, STREAM_TYPES, essence
from operad_openapi._http.reading import chunks_of
from operad_openapi._http.records import json_records
from operad_openapi._http.responses import decode_body
from operad_openapi._request.request import Request
from operad_openapi.envelopes import http_envelope, join_headers

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_DONE = "[DONE]"


def is_stream(response: ClientResponse, *kinds: str) -> bool:
    """Return True if the media type of a response is in ``kinds``, or without ``kinds``, in `STREAM_TYPES`.

    Returns False for 204, which has no body.
    """
    kind = essence(response.headers.get("Content-Type", ""))
    return response.status != 204 and kind in (kinds or STREAM_TYPES)


def envelopes_of(request: Request, response: ClientResponse) -> Callable[..., ResponseEnvelope[Any]]:
    """Return a function that puts an item into an envelope, with the metadata of the response."""
    return partial(
        http_envelope,
        status_code=response.status,
        headers=join_headers(response.headers.items()),
        url=without_user(request.redirected_to or request.url),
        method=request.method,
        attempts=request.attempts if request.attempts > 1 else None,
    )


async def items_of(
    response: ClientResponse, request: Request, parser: SSEParser, limit: int, *, is_text: bool
) -> AsyncGenerator[ResponseEnvelope[Any], None]:
    """Yield an envelope for each item of a stream, until the response or the event ``[DONE]`` ends it.

    Args:
        response: the response, which is a stream.
        request: the request that it responds to.
        parser: the parser for server-sent events; its ``retry`` is set to -1 if the stream must not be resumed.
        limit: the maximum size of an item in bytes (limit ``event_bytes``).
        is_text: whether the data of events stay text. If False, data are parsed as JSON, if they are JSON.

    Raises:
        CallError: the connection is lost, an item is too large, or an item of a stream of JSON is not JSON.
    """
    made = envelopes_of(request, response)
    kind, where = essence(response.headers.get("Content-Type", "")), str(request)
    if kind != EVENT_STREAM:
        async with aclosing(json_records(response, kind, limit, where)) as records:
            async for record in records:
                yield made(record)
        return
    async with aclosing(chunks_of(response)) as chunks:
        async for chunk in chunks:
            for event in _fed(parser, chunk, where, limit):
                if event.data == _DONE and not is_text:
                    parser.retry = -1  # there is nothing to resume
                    return
                value = _event_value(event, is_text=is_text)
                yield made(value, event_type=event.event, last_event_id=event.id)


def _fed(parser: SSEParser, chunk: bytes, where: str, limit: int) -> list[SSEEvent]:
    try:
        return parser.feed(chunk)
    except SSEEventTooLargeError as error:
        message = f"{where}: an event is larger than {limit} bytes (limit event_bytes)"
        details = {"limit": "event_bytes", "bytes": limit}
        raise CallError(ErrorCode.PAYLOAD_TOO_LARGE, message, details) from error


def _event_value(event: SSEEvent, *, is_text: bool) -> Any:
    if is_text or not event.data:
        return event.data
    # Text stays text if it is not JSON; the schema, if there is one, judges the value.
    try:
        return decode_body(event.data.encode(), "application/json", "")
    except (CallError, UnicodeEncodeError):
        return event.data
