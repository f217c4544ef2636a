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
    """The URL with its query, encoded."""
    headers: Any = attrs.field(repr=False)
    """A mutable mapping of names, in any case, to values (a ``CIMultiDict``)."""
    body: bytes | None = attrs.field(default=None, repr=False)
    """The encoded body; ``None`` if it is missing or streamed. Changes of the body are not sent."""


@attrs.define(eq=False, repr=False)
class Request:
    """A request, without its credentials."""

    method: str
    url: str
    """The URL, encoded; it is sent unchanged."""
    headers: Any
    """The headers without the credentials, as a ``CIMultiDict``."""
    cookies: list[str]
    body: EncodedBody | None = None
    authorize: Callable[[], Awaitable[Credentials]] | None = None
    """A function that returns the credentials, called before each attempt; ``None`` to send no credentials."""
    is_stream: bool = False
    """Whether the response may be endless, so that only `idle_timeout` limits reading it."""
    idle_timeout: float | None = None
    """The maximum time between two reads in seconds; ``None`` for no limit."""
    deadline: float | None = None
    """The time at which attempts end, in seconds of the event loop's clock; set when a request is sent again."""
    expires: float | None = None
    """The deadline of the call, in epoch ms; ``None`` if the call has no deadline."""
    may_redirect: bool = True
    """Whether redirects are followed."""
    is_redirected: bool = False
    """Whether the URL is that of a redirect, which may contain the credentials already."""
    report: Callable[..., None] | None = None
    """`operad.OperationContext.report`, or ``None`` if no observer of the call is active."""
    prepare: Callable[[HTTPRequest], Awaitable[None]] | None = None
    """The hook ``on_request``, which runs before each attempt unless the request goes to another origin."""
    attempts: int = 1
    """How often the request was sent."""
    redirected_to: str | None = None
    """The URL that a redirect led to, without its query, which may contain secrets."""

    def __str__(self) -> str:
        """Return method and URL for a message, without the query."""
        return f"{self.method} {shown_url(self.url)}"


@attrs.frozen(eq=False, repr=False)
class EncodedBody:
    """An encoded body, ready to be sent."""

    content_type: str
    data: bytes | None = None
    stream: Callable[[], AsyncIterator[bytes]] | None = None
    """A function that returns the chunks of the body, if ``data`` is ``None``."""
    length: int | None = None
    """The length of a stream in bytes, if it is known."""
    replayable: bool = True
    """Whether the body can be sent again."""


@attrs.define
class Credentials:
    """The headers, query parameters and cookies that authentication adds to a request."""

    headers: dict[str, str] = attrs.field(factory=dict, repr=False)
    query: list[str] = attrs.field(factory=list, repr=False)
    """Parameters as ``name=value``, encoded."""
    cookies: list[str] = attrs.field(factory=list, repr=False)
    refresh: Callable[[], object] | None = None
    """A function that drops a token that the server rejected. It returns False if no other token can be tried."""
    middlewares: tuple[Any, ...] = ()
    """A middleware of aiohttp that needs the response to decide what to send (HTTP Digest)."""


Applier = Callable[[Credentials], Awaitable[None]]
