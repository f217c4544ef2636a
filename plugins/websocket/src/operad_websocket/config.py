"""The options of hubs and of spokes, which connect to hubs."""

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
"""The header in the handshake response of a hub that has the maximum size of an event, in bytes."""
HEADROOM = 64 * 2**10
"""The number of bytes that a hub may add to an event, for the identity and address of the caller."""


def _positive(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value <= 0:
        raise ConfigError(f"{attribute.name}: expected a number above 0, got {value}")


@attrs.frozen(kw_only=True)
class Limits:
    """The limits for each peer of a hub.

    The peer is an identity or, without authentication, a network address.

    Raises:
        ConfigError: a limit is not above 0.
    """

    calls: int = attrs.field(default=20_000, validator=_positive)
    """The maximum number of requests in progress, over all connections of a peer."""
    calls_per_handler: int = attrs.field(default=5_000, validator=_positive)
    """The maximum number of requests of one caller that one connection handles, so that other callers need not
    wait. Without authentication, each connection is a caller."""
    links: int = attrs.field(default=1_000, validator=_positive)
    """The maximum number of connections of a peer."""
    topics: int = attrs.field(default=100_000, validator=_positive)
    """The maximum number of addresses that one connection serves."""
    unfinished: int = attrs.field(default=256 * 2**20, validator=_positive)
    """The maximum number of bytes of unfinished messages, over all connections of a peer."""
    handshake: float = attrs.field(default=5.0, validator=_positive)
    """Seconds within which a new connection must finish its handshake and authentication."""
    handshakes: int = attrs.field(default=256, validator=_positive)
    """The maximum number of connections that have not finished their handshake."""
    handshakes_per_address: int = attrs.field(default=64, validator=_positive)
    """The maximum number of connections of one address that have not finished their handshake."""
    grace: float = 30.0
    """Seconds for which names of an authenticated identity stay reserved if its connection breaks; 0 for none."""


@attrs.frozen(kw_only=True)
class HubConfig:
    """The table ``[hub]`` for ``operad hub``. Relative paths start from the folder of the configuration.

    Args:
        listen: the address ``HOST:PORT`` for spokes.
        cert, key: the PEM files of a certificate with its chain, and of its key, to serve ``wss://``.
        client_ca: the PEM file of certificates. A spoke must have a certificate that one of them issued.
        tokens: the tables ``[[hub.tokens]]`` with bearer tokens.
        tokens_file: a TOML or JSON file with more tokens.
        jwt: the table ``[hub.jwt]`` for JSON Web Tokens.
        introspection: the table ``[hub.introspection]`` for tokens that an authorization server checks.
        authenticate: the name of an authenticator, ``module:name`` or ``file.py:name``.
        anonymous: whether clients without credentials may connect although there is an authenticator. They may
            call, but serve only operations that ``names`` allows for every identity.
        allowed_origins: the origins of web pages that may connect.
        names: patterns of the operation ids that an identity may serve, such as ``worker = ["shop.*"]``; ``"*"``
            means every identity. Other identities serve nothing. Without this table every identity may serve.
        limits: the table ``[hub.limits]`` with limits for each peer.
        max_payload: the maximum size of an event, in bytes.
        max_buffer: the maximum number of unwritten bytes of one connection.
        ping: seconds after which a silent connection is pinged.
        drain: the maximum time in which running calls may finish on shutdown, in seconds.
        check_frames: whether to check each frame against its published schema. Requires
            ``operad-websocket[check]``.

    Raises:
        ConfigError: an option is not valid.
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
    drain: float = attrs.field(default=10.0, validator=attrs.validators.ge(0))
    check_frames: bool = False


@attrs.frozen(eq=False)
class WebSocketConfig:
    """The options of a spoke for its connection to a hub.

    Args:
        url: the URL ``ws://host:port`` or ``wss://host:port``, or several URLs with commas between them. The spoke
            connects to the first hub that accepts the connection.
        token: the bearer token for ``Authorization: Bearer TOKEN``.
        headers: further headers of the connection request.
        ssl: the TLS context for ``wss``; default: one that trusts the certificates of the system.
        tls_ca, tls_cert, tls_key: for ``wss``, paths of PEM files, instead of ``ssl``: trusted certificates, and
            the certificate and key of this spoke, for hubs that verify clients.
        max_payload: the maximum size of an event, in bytes. The limit of the hub applies, too.
        ping: seconds after which a silent hub is pinged. If it stays silent, the connection ends.
        connect_timeout: the maximum time of one attempt to connect, in seconds.

    Raises:
        ConfigError: an option is not valid.
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
        """Return the TLS context; None for the system's certificates. Raises `ConfigError` for a bad file."""
        return self.ssl if self.ssl is not None else client_tls(self.tls_ca, self.tls_cert, self.tls_key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(shown_url, self.urls))!r})"


def capabilities(max_payload: int) -> Capabilities:
    """Return the capabilities of a transport over a hub."""
    return Capabilities(
        max_payload=max_payload,
        balances=True,
        detects_no_responders=True,
        detects_peer_loss=True,
        authenticates_peer=True,
    )
