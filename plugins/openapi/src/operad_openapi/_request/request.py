"""A request, ready to be sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs

from operad_auth.http.urls import shown_url


@attrs.define(eq=False)
class HTTPRequest:
    """A request as it is about to be sent, credentials included; ``on_request`` may read and change it."""

    method: str
    url: str = attrs.field(repr=False)
    """With its query, encoded."""
    headers: Any = attrs.field(repr=False)
    """A mutable mapping of names, in any case, to values (a ``CIMultiDict``)."""
    body: bytes | None = attrs.field(default=None, repr=False)
    """``None`` without a body, or if it is streamed. A changed one is not sent."""


@attrs.define(eq=False, repr=False)
class Request:
    """A request, without its credentials."""

    method: str
    url: str
    """Encoded; sent as it is."""
    headers: Any
    """A ``CIMultiDict``."""
    cookies: list[str]
    body: EncodedBody | None = None
    authorize: Callable[[], Awaitable[Credentials]] | None = None
    """Makes the credentials, for each attempt again."""
    is_stream: bool = False
    """Whether the response may be endless: `idle_timeout` limits silence, nothing limits the whole."""
    idle_timeout: float | None = None
    """Seconds between two reads of a stream."""
    deadline: float | None = None
    """Of the event loop's clock, in s; set when a request is sent again."""
    expires: float | None = None
    """The deadline of the call, in epoch ms."""
    may_redirect: bool = True
    """Whether redirects are followed."""
    is_redirected: bool = False
    """Whether the URL is that of a redirect: it may hold what a credential adds already."""
    report: Callable[..., None] | None = None
    """Reports to observers of the call, if there are any: `operad.OperationContext.report`."""
    prepare: Callable[[HTTPRequest], Awaitable[None]] | None = None
    """The hook ``on_request``: it runs before each attempt, unless the request goes to another origin."""
    attempts: int = 1
    """How often it was sent."""
    redirected_to: str | None = None
    """The URL that a redirect led to, without its query, which may hold secrets."""

    def __str__(self) -> str:
        """Return method and URL for a message, without the query."""
        return f"{self.method} {shown_url(self.url)}"


@attrs.frozen(eq=False, repr=False)
class EncodedBody:
    """An encoded body, ready to be sent."""

    content_type: str
    data: bytes | None = None
    stream: Callable[[], AsyncIterator[bytes]] | None = None
    """Makes the chunks, where ``data`` is ``None``."""
    length: int | None = None
    """Of a stream, in bytes, if it is known."""
    replayable: bool = True
    """Whether it can be sent again."""


@attrs.define
class Credentials:
    """What authentication adds to a request."""

    headers: dict[str, str] = attrs.field(factory=dict, repr=False)
    query: list[str] = attrs.field(factory=list, repr=False)
    """``name=value``, encoded."""
    cookies: list[str] = attrs.field(factory=list, repr=False)
    refresh: Callable[[], object] | None = None
    """Drops a fetched token that the server rejected. Returns False if no other one can be tried."""
    middlewares: tuple[Any, ...] = ()
    """A middleware of aiohttp that needs the response to decide what to send (HTTP Digest)."""


Applier = Callable[[Credentials], Awaitable[None]]
