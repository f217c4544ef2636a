"""The options of the Redis transport."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import attrs

from operad.plugin import ConfigError

_BUS = re.compile(r"[A-Za-z0-9_.-]{1,100}")
DEFAULT_MAX_PAYLOAD = 4 * 1024 * 1024
"""The default of ``max_payload``, in bytes. A Redis server would accept and keep in memory up to 512 MiB."""


@attrs.frozen(kw_only=True)
class RedisConfig:
    """The options of a Redis server, version 6.2 or newer, alone or in a cluster.

    A request stays on a stream until it is finished. If its worker is lost, another worker gets the request,
    marked as redelivered if the lost worker had read it. Replies are sent over channels, at most once. Events from
    one link to one address arrive in order.

    Args:
        url: the URL ``redis://[user:password@]host:port/db`` or ``rediss://…``, with query options of redis-py
            such as ``ssl_ca_certs``.
        bus: the name of the bus. Participants on different buses cannot reach each other. A bus is in one slot of
            a cluster, so use several buses to spread load.
        tls_ca, tls_cert, tls_key: for ``rediss``, paths of PEM files: trusted certificates instead of those of the
            system, and the certificate and key of this client, for servers that verify clients.
        max_payload: the maximum size of an event in bytes.
        lease: seconds without a sign of life after which a link is treated as dead, even if its connection is
            open.
        connect_timeout: the maximum time of one attempt to connect, in seconds.
        reconnect_wait: seconds before the first attempt to reconnect. The pause doubles up to 2 s, and a random
            part of it is left out.
        options: keyword arguments of `redis.asyncio.connection.Connection`, such as ``credential_provider``. Query
            options of the URL take precedence.

    Raises:
        ConfigError: ``url``, ``bus`` or ``lease`` is invalid, or files are given without ``rediss``.
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
            raise ConfigError(
                "url: expected redis://host:port/db or rediss://host:port/db, "
                f'got the scheme "{parts.scheme}" and the host "{parts.hostname or ""}"'
            )
        try:
            parts.port  # noqa: B018  # the property raises
        except ValueError:  # its message has a part of a password with "/"
            raise ConfigError("url: expected a number as port; percent-encode the password") from None
        if not _BUS.fullmatch(self.bus):
            raise ConfigError(f'bus: expected 1 to 100 letters, digits, "_", "." and "-", got {self.bus[:200]!r}')
        if self.lease <= 0:
            raise ConfigError(f"lease: expected more than 0 seconds, got {self.lease}")
        if (self.tls_ca or self.tls_cert or self.tls_key) and parts.scheme != "rediss":
            raise ConfigError(
                "tls_ca, tls_cert and tls_key: expected a URL rediss://…, which uses TLS; got redis://…"
            )

    @property
    def connection_options(self) -> dict[str, Any]:
        """The keyword arguments of connections of redis-py: TLS files and ``options``, not those of the URL."""
        files = {"ssl_ca_certs": self.tls_ca, "ssl_certfile": self.tls_cert, "ssl_keyfile": self.tls_key}
        return {**{name: path for name, path in files.items() if path is not None}, **self.options}
