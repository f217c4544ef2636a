"""`RedisTransport`: how to reach a Redis server."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs

from operad.errors import ConfigError
from operad.plugin import Capabilities, Link

if TYPE_CHECKING:
    from operad.transports import OnEvent, OnLink

_BUS = re.compile(r"[A-Za-z0-9_.-]{1,100}")
DEFAULT_MAX_PAYLOAD = 4 * 1024 * 1024
"""Bytes; a Redis server would take 512 MiB, and hold all of it in memory for each event."""


@attrs.frozen(kw_only=True)
class RedisTransport:
    """A Redis server, version 6.2 or newer, alone or as a member of a cluster.

    A request waits on a stream until its work has ended. When the worker that took it is gone, another worker
    gets it marked as redelivered; one that no worker had read yet is simply served by another. Replies go over
    channels, at most once. Events from one link to one address arrive in order.

    Args:
        url: ``redis://[user:password@]host:port/db`` or ``rediss://…``, with the query options of redis-py
            (``ssl_ca_certs``, ``ssl_cert_reqs``, …).
        bus: participants with another bus never meet. A bus is one slot of a cluster: spread load over several.
        max_payload: the largest event in bytes.
        lease: seconds without a sign of life until a link whose connection is still open counts as dead.
        connect_timeout: seconds for one attempt to connect.
        reconnect_wait: seconds before the first attempt to reconnect; doubled up to 2 s, minus a random part.
        options: keyword arguments of `redis.asyncio.connection.Connection`, such as a ``credential_provider``.
    """

    url: str = attrs.field(repr=False)
    bus: str = "operad"
    max_payload: int = DEFAULT_MAX_PAYLOAD
    lease: float = 10.0
    connect_timeout: float = 5.0
    reconnect_wait: float = 0.1
    options: dict[str, Any] = attrs.field(factory=dict, repr=False)

    def __attrs_post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("redis", "rediss") or not parts.hostname:
            raise ConfigError(f"url: expected redis://host:port/db or rediss://…, got {parts.scheme or 'no'}://…")
        if not _BUS.fullmatch(self.bus):
            raise ConfigError(f'bus: expected up to 100 letters, digits, "_", ".", "-", got {self.bus[:200]!r}')
        if self.lease <= 0:
            raise ConfigError(f"lease: expected seconds, more than 0, got {self.lease}")

    @property
    def capabilities(self) -> Capabilities:
        """What it can do: the member with the fewest unfinished requests gets the next one."""
        return Capabilities(
            max_payload=self.max_payload, balances=True, redelivers=True, detects_no_responders=True
        )

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        """Connect. Raises `LinkDownError` if no server answers, or if it refuses the credentials."""
        from operad_redis.link import RedisLink  # redis-py costs 150 ms to import

        link = RedisLink(self, on_event, on_link)
        await link.connect()
        return link


def create(url: str, **options: Any) -> RedisTransport:
    """The transport of a URL; ``options`` are the arguments of `RedisTransport`. Raises `ConfigError`."""
    known = [field.name for field in attrs.fields(RedisTransport) if field.name != "url"]
    for option in options:
        if option not in known:
            near = get_close_matches(option, known, 1)
            hint = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(known)}"
            raise ConfigError(f'redis transport: unknown option "{option}"{hint}')
    return RedisTransport(url=url, **options)
