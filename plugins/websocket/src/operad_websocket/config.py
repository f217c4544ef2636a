"""The options of hubs, and of the spokes that connect to them."""

from __future__ import annotations

import ssl as ssl_module
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import attrs

from operad.plugin import Capabilities, ConfigError, client_tls
from operad_auth import IntrospectionOptions, JWTOptions, TokenRecord
from operad_auth.http.urls import shown_url

MAX_PAYLOAD = 4 * 2**20
"""The default maximum size of an event, in bytes."""

SUBPROTOCOL = "operad.v1"
MAX_PAYLOAD_HEADER = "Operad-Max-Payload"
"""The response header with which a hub states the maximum size of an event, in bytes, in the handshake."""
HEADROOM = 64 * 2**10
"""The number of bytes that a hub may add to an event, for the identity and address of the caller."""


def _positive(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value <= 0:
        raise ConfigError(f"{attribute.name}: expected a number above 0, got {value}")


def _not_negative(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value < 0:
        raise ConfigError(f"{attribute.name}: expected a number of at least 0, got {value}")


@attrs.frozen(kw_only=True)
class Limits:
    """The limits of a hub for its clients.

    A client is an identity or, if it is anonymous, a network address. It may have several connections.

    Raises:
        ConfigError: a limit other than ``grace`` is not above 0.
    """

    calls: int = attrs.field(default=20_000, validator=_positive)
    """The maximum number of requests in progress, over all connections of a client."""
    calls_per_handler: int = attrs.field(default=5_000, validator=_positive)
    """The maximum number of requests in progress of one caller at one connection, so that other callers need not
    wait. A caller is an identity or, if it is anonymous, a connection."""
    links: int = attrs.field(default=1_000, validator=_positive)
    """The maximum number of connections of a client."""
    topics: int = attrs.field(default=100_000, validator=_positive)
    """The maximum number of addresses that one connection serves, one frame lists or one identity reserves."""
    unfinished: int = attrs.field(default=256 * 2**20, validator=_positive)
    """The maximum number of received bytes of unfinished messages, over all connections of a client. A message is
    counted when more than 64 KiB of it have arrived."""
    handshake: float = attrs.field(default=5.0, validator=_positive)
    """Seconds within which a new connection must finish its handshake and authentication."""
    handshakes: int = attrs.field(default=256, validator=_positive)
    """The maximum number of connections that have not finished their handshake. Above it the oldest is closed."""
    handshakes_per_address: int = attrs.field(default=64, validator=_positive)
    """The same maximum for the connections of one network address."""
    grace: float = 30.0
    """Seconds for which names of an authenticated identity stay reserved after its connection breaks. If 0, they
    are not reserved."""


@attrs.frozen(kw_only=True)
class HubConfig:
    """The table ``[hub]`` for ``operad hub``. Relative paths start from the folder of the configuration.

    Args:
        listen: the address ``HOST:PORT`` to listen on. Without an authenticator, it must be a loopback address.
        cert, key: the PEM files of a certificate with its chain, and of its key, to serve ``wss://``. The key must
            have no password; by default it is in ``cert``.
        client_ca: a PEM file of certificates. A spoke must have a certificate that one of them issued.
        tokens: the tables ``[[hub.tokens]]`` with bearer tokens.
        tokens_file: a TOML or JSON file with more tokens.
        jwt: the table ``[hub.jwt]`` for JSON Web Tokens.
        introspection: the table ``[hub.introspection]`` for tokens that an authorization server checks.
        authenticate: the name of an authenticator, ``module:name`` or ``file.py:name``.
        anonymous: whether clients without credentials may connect although there is an authenticator. They may
            call, but serve only operations that ``names`` allows for ``"*"``.
        allowed_origins: the origins of web pages that may connect; by default no web page may connect.
        names: patterns of the operation ids that an identity may serve, such as ``worker = ["shop.*"]``; ``"*"``
            means every client. Without a pattern, a client serves only what discovery requires (``operad.*``).
            Without this table, every identity may serve, and anonymous clients if there is no authenticator.
        limits: the table ``[hub.limits]``.
        max_payload: the maximum size of an event, in bytes.
        max_buffer: the number of unwritten bytes above which a connection is closed.
        ping: seconds after which a silent connection is pinged. It is closed after twice this time.
        drain: the maximum time in which running calls may finish on shutdown, in seconds.
        check_frames: whether to refuse frames that do not match their published schema. Requires
            ``operad-websocket[check]``.

    Raises:
        ConfigError: ``max_payload``, ``max_buffer`` or ``ping`` is not above 0, or ``drain`` is below 0.
    """

    listen: str = "127.0.0.1:8765"
    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    tokens: list[TokenRecord] = attrs.field(factory=list, repr=False)
    tokens_file: str | None = None
    jwt: JWTOptions | None = None
    introspection: IntrospectionOptions | None = None
    authenticate: str | None = None
    anonymous: bool = False
    allowed_origins: list[str] = attrs.field(factory=list)
    names: dict[str, list[str]] | None = None
    limits: Limits = attrs.field(factory=Limits)
    max_payload: int = attrs.field(default=MAX_PAYLOAD, validator=_positive)
    max_buffer: int = attrs.field(default=16 * 2**20, validator=_positive)
    ping: float = attrs.field(default=20.0, validator=_positive)
    drain: float = attrs.field(default=10.0, validator=_not_negative)
    check_frames: bool = False


@attrs.frozen(eq=False)
class WebSocketConfig:
    """The options of a spoke for its connection to a hub.

    Args:
        url: the URL ``ws://host:port`` or ``wss://host:port``, or several URLs with commas between them. The spoke
            connects to the first hub that accepts the connection.
        token: the bearer token for ``Authorization: Bearer TOKEN``.
        headers: further headers of the handshake request.
        ssl: the TLS context for ``wss``; default: one that trusts the certificates of the system.
        tls_ca, tls_cert, tls_key: for ``wss``, paths of PEM files, instead of ``ssl``: trusted certificates, and
            the certificate and key of this spoke, for hubs that verify clients.
        max_payload: the maximum size of an event, in bytes. The limit of the hub applies, too.
        ping: seconds after which a silent hub is pinged. The connection ends after twice this time.
        connect_timeout: the maximum time of one attempt to connect, in seconds.

    Raises:
        ConfigError: a URL is invalid, a number is not above 0, or both ``ssl`` and files are given.
    """

    url: str
    token: str | None = attrs.field(default=None, repr=False, kw_only=True)
    headers: Mapping[str, str] | None = attrs.field(default=None, repr=False, kw_only=True)
    ssl: ssl_module.SSLContext | None = attrs.field(default=None, kw_only=True)
    tls_ca: str | None = attrs.field(default=None, kw_only=True)
    tls_cert: str | None = attrs.field(default=None, kw_only=True)
    tls_key: str | None = attrs.field(default=None, kw_only=True)
    max_payload: int = attrs.field(default=MAX_PAYLOAD, validator=_positive, kw_only=True)
    ping: float = attrs.field(default=20.0, validator=_positive, kw_only=True)
    connect_timeout: float = attrs.field(default=10.0, validator=_positive, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.ssl is not None and (self.tls_ca or self.tls_cert or self.tls_key):
            raise ConfigError("ssl: expected either ssl, or tls_ca, tls_cert and tls_key; got both")
        for url in self.urls:
            parts = urlsplit(url)
            if parts.scheme not in ("ws", "wss") or not parts.hostname:
                raise ConfigError(
                    f'url: expected ws://host:port or wss://host:port, got the scheme "{parts.scheme}" '
                    f'and the host "{parts.hostname or ""}"'
                )

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the hubs, in the order in which the spoke tries them."""
        return tuple(url.strip() for url in self.url.split(",") if url.strip()) or ("",)

    def ssl_context(self) -> ssl_module.SSLContext | None:
        """Return the TLS context; None if no option sets one. Raises `ConfigError` if a file cannot be used."""
        return self.ssl if self.ssl is not None else client_tls(self.tls_ca, self.tls_cert, self.tls_key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(shown_url, self.urls))!r})"


def capabilities(max_payload: int) -> Capabilities:
    """Return the capabilities of a transport over a hub, for events of at most ``max_payload`` bytes."""
    return Capabilities(
        max_payload=max_payload,
        balances=True,
        detects_no_responders=True,
        detects_peer_loss=True,
        authenticates_peer=True,
    )
