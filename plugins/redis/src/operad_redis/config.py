"""The options of a Redis server and of its use by this transport."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import attrs

from operad.plugin import ConfigError

_BUS = re.compile(r"[A-Za-z0-9_.-]{1,100}")
DEFAULT_MAX_PAYLOAD = 4 * 1024 * 1024
"""In bytes. A Redis server would accept 512 MiB, and keep all of it in memory for each event."""


@attrs.frozen(kw_only=True)
class RedisConfig:
    """A Redis server, version 6.2 or newer, alone or as a member of a cluster.

    A request stays on a stream until its work has ended. If its worker is lost, another worker gets it, marked as
    redelivered unless no worker had read it. Replies go over channels, at most once. Events from one link to one
    address arrive in order.

    Args:
        url: ``redis://[user:password@]host:port/db`` or ``rediss://…``, with the query options of redis-py
            (``ssl_ca_certs``, ``ssl_cert_reqs``, …).
        bus: participants on different buses never meet. A bus is one slot of a cluster; spread load over several.
        tls_ca, tls_cert, tls_key: with ``rediss``, paths of PEM files: certificates to trust instead of the
            system's, and this client's own certificate and key, for servers that verify clients.
        max_payload: the largest event in bytes.
        lease: seconds without a sign of life after which a link counts as dead although its connection is open.
        connect_timeout: seconds for one attempt to connect.
        reconnect_wait: seconds before the first attempt to reconnect; doubled up to 2 s, minus a random part.
        options: keyword arguments of `redis.asyncio.connection.Connection`, such as a ``credential_provider``.
    """

    url: str = attrs.field(repr=False)
    bus: str = "operad"
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
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
        if (self.tls_ca or self.tls_cert or self.tls_key) and parts.scheme != "rediss":
            raise ConfigError(
                "tls_ca, tls_cert and tls_key: expected a URL rediss://…, which uses TLS; got redis://…"
            )

    @property
    def connection_options(self) -> dict[str, Any]:
        """Keyword arguments of a connection of redis-py, besides those in the URL."""
        files = {"ssl_ca_certs": self.tls_ca, "ssl_certfile": self.tls_cert, "ssl_keyfile": self.tls_key}
        return {**{name: path for name, path in files.items() if path is not None}, **self.options}
