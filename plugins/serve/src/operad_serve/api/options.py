"""The options of the HTTP API, in a separate module so that reading them imports no server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs

from operad import Identity
from operad.plugin import record

_positive: Any = attrs.validators.gt(0)
_positive_or_none: Any = attrs.validators.optional(_positive)


@record(kw_only=True)
class OpenAPIServerConfig:
    """The options of `to_openapi`, and of the server ``openapi``: ``[serve.openapi]``."""

    host: str = "127.0.0.1"
    """The address to listen on. Without ``authenticate`` it must be a loopback address."""
    port: int = 8000
    """The port to listen on; 0 for a free one."""
    authenticate: Callable[[Any], Awaitable[Identity | None] | Identity | None] | None = attrs.field(
        default=None, repr=False
    )
    """A function that returns the caller of `operad_auth.Credentials`, or None if it is unknown. Without the
    function, every caller is anonymous."""
    anonymous: bool = False
    """Whether to accept requests without credentials although there is an authenticator. Such requests may only
    call operations without access requirements."""
    explorer: bool = True
    """Whether ``/`` shows the explorer."""
    admin_scope: str = "operad:admin"
    """The scope that the explorer requires for showing plugins and sources and for reloading sources. Without an
    authenticator, requests to a loopback address, under one of its names and through no proxy, may do so."""
    title: str | None = None
    """The title of the document and of the explorer; None for ``operad``."""
    version: str = "1.0.0"
    """The version of the API in the document."""
    description: str = ""
    """The description of the API in the document, in Markdown."""
    timeout: float | None = attrs.field(default=30.0, validator=_positive_or_none)
    """Seconds that a call without ``Operad-Timeout`` may take; None for no limit. It does not apply to streams."""
    max_timeout: float = attrs.field(default=3_600.0, validator=_positive)
    """The largest ``Operad-Timeout``, in seconds."""
    max_body: int = attrs.field(default=4 * 1024 * 1024, validator=_positive)
    """The largest request body, in bytes."""
    result_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=_positive)
    """The largest result, and the largest item of a stream, in bytes."""
    body_timeout: float = attrs.field(default=30.0, validator=_positive)
    """Seconds for receiving a request body."""
    write_timeout: float = attrs.field(default=60.0, validator=_positive)
    """Seconds that a client may take to read one item of a stream, or one part of a large response."""
    heartbeat: float = attrs.field(default=15.0, validator=_positive)
    """Seconds without an item after which a stream sends a comment, so that proxies keep it open."""
    max_streams: int = attrs.field(default=10_000, validator=_positive)
    """How many streams may be open at the same time."""
    allowed_hosts: Sequence[str] = ()
    """Allowed values of ``Host``: names, with or without a port; ``*`` for any. A loopback address also allows the
    names of this machine. Any other address allows every value if the list is empty."""
    allowed_origins: Sequence[str] = ()
    """Origins, such as ``https://app.example.com``, whose pages may send requests (CORS); ``*`` for any."""
    mask_errors: bool = True
    """Whether to replace the messages of undeclared exceptions by a reference to the log."""
    expose_upstream: bool = False
    """Whether callers see the addresses and the headers of upstream servers, in errors and in metadata."""
    check_formats: bool = True
    """Whether to check inputs for the formats in the document, such as ``date-time`` and ``int32``. If False,
    these formats are left out of the document."""
