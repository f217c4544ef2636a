"""The options of spokes and hubs."""

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
"""The default limit of an event, in bytes."""

SUBPROTOCOL = "operad.v1"
MAX_PAYLOAD_HEADER = "Operad-Max-Payload"
"""The header of the hub's handshake response with the largest event that it carries, in bytes."""
HEADROOM = 64 * 2**10
"""Bytes that a hub may add to an event: the caller's identity and address."""


def _positive(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value <= 0:
        raise ConfigError(f"{attribute.name}: expected more than 0, got {value}")


@attrs.frozen(kw_only=True)
class Limits:
    """Limits for the peers of a hub.

    Calls and connections are counted by identity, or by address without authentication.
    """

    calls: int = attrs.field(default=20_000, validator=_positive)
    """Requests in progress, over all connections of a peer."""
    calls_per_handler: int = attrs.field(default=5_000, validator=_positive)
    """Of those, the requests that one connection handles, so that other callers need not wait for more. Without
    authentication, each connection of a caller is counted by itself."""
    links: int = attrs.field(default=1_000, validator=_positive)
    """Connections of a peer."""
    topics: int = attrs.field(default=100_000, validator=_positive)
    """Addresses that one connection serves."""
    unfinished: int = attrs.field(default=256 * 2**20, validator=_positive)
    """Bytes of unfinished messages, over all connections of a peer."""
    handshake: float = attrs.field(default=5.0, validator=_positive)
    """Seconds until a new connection must have finished its handshake and authentication."""
    handshakes: int = attrs.field(default=256, validator=_positive)
    """Connections that have not finished it yet, in all."""
    handshakes_per_address: int = attrs.field(default=64, validator=_positive)
    """The same, for one address."""
    grace: float = 30.0
    """Seconds that a name stays reserved for an authenticated identity whose connection broke; 0: not at all."""


@attrs.frozen(kw_only=True)
class HubConfig:
    """The table ``[hub]``: a hub as ``operad hub`` runs it. Relative paths start from the configuration's folder.

    Args:
        listen: ``HOST:PORT`` where spokes connect.
        cert, key: a certificate with its chain, and its key, PEM: serves ``wss://``.
        client_ca: certificates, PEM: a spoke must show a certificate issued by one of them.
        tokens: bearer tokens, each with ``token, id, scopes, resources``: ``[[hub.tokens]]``.
        tokens_file: a TOML or JSON file with more of them.
        jwt: which JSON Web Tokens are valid: ``[hub.jwt]``.
        introspection: the authorization server that is asked whether a token is valid: ``[hub.introspection]``.
        authenticate: ``module:name`` or ``file.py:name`` of an authenticator.
        anonymous: whether clients without credentials may connect although there is an authenticator. They may
            call, and serve only what ``names`` allows every identity.
        allowed_origins: web pages that may connect.
        names: patterns of the operation ids that an identity may serve, such as ``worker = ["shop.*"]``; ``"*"``
            means every identity. Other identities serve nothing. Without the table all may serve.
        limits: limits for each peer: ``[hub.limits]``.
        max_payload: the largest event, in bytes.
        max_buffer: unwritten bytes that one connection may have.
        ping: seconds within which a silent connection is pinged.
        drain: seconds that running calls may take to finish on shutdown.
        check_frames: whether each frame is checked by its published schema; needs ``operad-websocket[check]``.
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
    """A hub, as a spoke reaches it.

    Args:
        url: ``ws://host:port`` or ``wss://host:port``; several hubs, separated by commas: each time
            it connects, the spoke takes the first one that responds.
        token: sent as ``Authorization: Bearer <token>``.
        headers: sent with the connection request.
        ssl: the TLS context for ``wss``, instead of the system's trust.
        tls_ca, tls_cert, tls_key: for ``wss``, paths of PEM files, instead of ``ssl``: certificates to trust, and
            this spoke's own certificate and key, for hubs that verify clients.
        max_payload: the largest event, in bytes; not more than the hub's.
        ping: seconds within which a silent hub is pinged; one that stays silent is lost soon after.
        connect_timeout: seconds that one attempt to connect may take.
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
                    f"url: expected ws://host:port or wss://host:port, got {parts.scheme or 'no'}://…"
                )

    @property
    def urls(self) -> tuple[str, ...]:
        """The hubs, in the order in which they are tried."""
        return tuple(url.strip() for url in self.url.split(",") if url.strip()) or ("",)

    def ssl_context(self) -> ssl_module.SSLContext | None:
        """Return the TLS context, or None for the system's trust. Raises `ConfigError`."""
        return self.ssl if self.ssl is not None else client_tls(self.tls_ca, self.tls_cert, self.tls_key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(shown_url, self.urls))!r})"


def capabilities(max_payload: int) -> Capabilities:
    """Return the capabilities of a hub."""
    return Capabilities(
        max_payload=max_payload,
        balances=True,
        detects_no_responders=True,
        detects_peer_loss=True,
        authenticates_peer=True,
    )
