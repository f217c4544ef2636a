"""The envelope kind ``http``: the response of an HTTP server, with its status and headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from operad import EnvelopeKind, ResponseEnvelope
from operad.plugin import record


@record
class HTTPResponseMeta:
    """Metadata of an HTTP response."""

    source: ClassVar[str] = "http"

    status_code: int
    headers: dict[str, str]
    """Name in lower case -> value; repeated values are joined with ``, ``. ``set-cookie`` is in `set_cookie`."""
    content_type: str
    url: str | None = None
    """The URL of the response, without credentials."""
    method: str | None = None
    elapsed_ms: float | None = None
    """Time from the call to the complete response in ms; ``None`` for items of a stream."""
    set_cookie: list[str] | None = None
    """The values of the headers ``Set-Cookie``; ``None`` if the response has no such header."""
    event_type: str | None = None
    """The type of a server-sent event; ``None`` for other responses."""
    last_event_id: str | None = None
    """The last event id when a server-sent event was dispatched; ``None`` for other responses."""
    attempts: int | None = None
    """How often the request was sent; ``None`` for once."""
    links: dict[str, dict[str, Any]] | None = None
    """Name -> ``{"operation": id, "input": {...}}`` of links that apply; ``None`` if no link applies."""


HTTP_KIND = EnvelopeKind("http", HTTPResponseMeta)


class JoinedHeaders(NamedTuple):
    """Values keyed by name in lower case, and ``Set-Cookie`` values, which must not be joined (RFC 6265, 3)."""

    joined: dict[str, str]
    cookies: list[str] | None


def http_envelope(
    data: Any,
    *,
    status_code: int = 200,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | JoinedHeaders = (),
    content_type: str | None = None,
    url: str | None = None,
    method: str | None = None,
    elapsed_ms: float | None = None,
    event_type: str | None = None,
    last_event_id: str | None = None,
    attempts: int | None = None,
) -> ResponseEnvelope[Any]:
    """Return an envelope of kind ``http``.

    Args:
        data: the decoded body.
        status_code: the HTTP status.
        headers: names and values of the response's headers; a name may occur several times.
        content_type: the content type; default: that of ``headers``.
        url: the URL of the response, without credentials.
        method: the method of the request.
        elapsed_ms: the duration in milliseconds.
        event_type: the type of a server-sent event.
        last_event_id: the id of a server-sent event.
        attempts: how often the request was sent, if more than once.
    """
    joined, cookies = headers if isinstance(headers, JoinedHeaders) else join_headers(headers)
    if content_type is None:
        content_type = joined.get("content-type", "")
    meta = HTTPResponseMeta(
        status_code,
        joined,
        content_type,
        url,
        method,
        elapsed_ms,
        cookies,
        event_type,
        last_event_id,
        attempts,
    )
    return ResponseEnvelope(data, meta)


def join_headers(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> JoinedHeaders:
    """Return headers as an envelope contains them. Several calls of `http_envelope` can share the result."""
    return join_pairs(headers.items() if isinstance(headers, Mapping) else headers)


def join_pairs(headers: Iterable[tuple[str, str]]) -> JoinedHeaders:
    """Join pairs of names and values as `join_headers` does."""
    joined: dict[str, str] = {}
    cookies: list[str] | None = None
    for raw_name, value in headers:
        name = raw_name.lower()
        if not value.isascii():
            value = _decoded(value)
        if name == "set-cookie":
            if cookies is None:
                cookies = []
            cookies.append(value)
        elif name in joined:
            joined[name] += ", " + value
        else:
            joined[name] = value
    return JoinedHeaders(joined, cookies)


def _decoded(value: str) -> str:
    """Return a header that is not UTF-8 as Latin-1 (RFC 9110, 5.5). aiohttp keeps such bytes as halves of
    surrogate pairs, which JSON cannot contain."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    return value
