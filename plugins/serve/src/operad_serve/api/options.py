"""What can be chosen about serving; a module of its own, so that finding the plugin imports no server."""

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
    """Where `serve` listens; without ``authenticate`` this has to be a loopback address."""
    port: int = 8000
    """0: a free one."""
    authenticate: Callable[[Any], Awaitable[Identity | None] | Identity | None] | None = attrs.field(
        default=None, repr=False
    )
    """``Credentials`` -> who calls; see `operad.auth`. ``None``: everybody is nobody."""
    explorer: bool = True
    """Whether ``/`` shows the explorer."""
    admin_scope: str = "operad:admin"
    """What callers need to see plugins and sources, and to reload those, in the explorer. Where nobody is
    authenticated, whoever comes to a loopback address by one of its names, and through no proxy, may."""
    title: str | None = None
    """The title of the document and of the explorer."""
    version: str = "1.0.0"
    """The version of the API in the document."""
    description: str = ""
    """The description of the API in the document, in Markdown."""
    timeout: float | None = attrs.field(default=30.0, validator=_positive_or_none)
    """Seconds for a call that says nothing of its own in ``Operad-Timeout``; streams have no such end."""
    max_timeout: float = attrs.field(default=3_600.0, validator=_positive)
    """The most seconds that ``Operad-Timeout`` may ask for."""
    max_body: int = attrs.field(default=4 * 1024 * 1024, validator=_positive)
    """The largest request body, in bytes."""
    body_timeout: float = attrs.field(default=30.0, validator=_positive)
    """Seconds in which a request body has to come."""
    write_timeout: float = attrs.field(default=60.0, validator=_positive)
    """Seconds that a client may take for one item of a stream, or one part of a large answer."""
    heartbeat: float = attrs.field(default=15.0, validator=_positive)
    """Seconds of silence after which a stream sends a comment, so that whatever is between keeps it open."""
    max_streams: int = attrs.field(default=10_000, validator=_positive)
    """How many streams may be open at once."""
    allowed_hosts: Sequence[str] = ()
    """Names, with or without a port, that ``Host`` may have; ``*`` for any. On a loopback address its own names
    are allowed, and others only if they are listed here."""
    allowed_origins: Sequence[str] = ()
    """Origins, such as ``https://app.example.com``, whose pages may call (CORS); ``*`` for any."""
    mask_errors: bool = True
    """Whether messages of exceptions that no operation declares are replaced by a reference into the log."""
    check_formats: bool = True
    """Whether inputs are checked for the formats that the document says, such as ``date-time`` and ``int32``.
    Without it none of these is in the document."""
