"""What a spoke and a hub can be told."""

from __future__ import annotations

import ssl as ssl_module
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import attrs

from operad.plugin import Capabilities, ConfigError, client_tls
from operad_auth import JWTOptions, TokenRecord

MAX_PAYLOAD = 4 * 2**20
"""The default limit of an event, in bytes."""

SUBPROTOCOL = "operad.v1"
MAX_PAYLOAD_HEADER = "Operad-Max-Payload"
"""In the hub's answer to the handshake: the largest event that it takes, in bytes."""
HEADROOM = 64 * 2**10
"""What a hub may add to an event, in bytes: the identity that it stamps, and an address."""


def _positive(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value <= 0:
        raise ConfigError(f"{attribute.name}: expected more than 0, got {value}")


@attrs.frozen(kw_only=True)
class Limits:
    """What a peer of a hub may have at once.

    Calls and connections are counted by identity; where nobody is authenticated, by address.
    """

    calls: int = attrs.field(default=20_000, validator=_positive)
    """Requests under way, over all its connections."""
    calls_per_handler: int = attrs.field(default=5_000, validator=_positive)
    """Those of them that one connection serves: who comes after them waits for no more. Where nobody is
    authenticated, each connection has so many of its own."""
    links: int = attrs.field(default=1_000, validator=_positive)
    """Connections."""
    topics: int = attrs.field(default=100_000, validator=_positive)
    """Addresses that one connection serves."""
    unfinished: int = attrs.field(default=256 * 2**20, validator=_positive)
    """Bytes of messages whose end has not come, over all its connections."""
    handshake: float = attrs.field(default=5.0, validator=_positive)
    """Seconds that a connection may take until it is a spoke's."""
    handshakes: int = attrs.field(default=256, validator=_positive)
    """Connections that are not a spoke's yet, of everybody together."""
    handshakes_per_address: int = attrs.field(default=64, validator=_positive)
    """The same, of one address."""
    grace: float = 30.0
    """Seconds that a name is kept for an authenticated identity whose connection broke; 0: not at all."""


@attrs.frozen(kw_only=True)
class HubConfig:
    """The table ``[hub]``: a hub as ``operad hub`` runs it. Relative paths start from the configuration's folder.

    Args:
        listen: ``HOST:PORT`` where spokes connect.
        cert, key: a certificate with its chain, and its key, PEM: serves ``wss://``.
        client_ca: certificates, PEM, of which a spoke has to show one's.
        tokens: bearer tokens, each with ``token, id, scopes, resources``: ``[[hub.tokens]]``.
        tokens_file: a TOML or JSON file with more of them.
        jwt: JSON Web Tokens that count: ``[hub.jwt]``.
        authenticate: ``module:name`` or ``file.py:name`` of an authenticator.
        allowed_origins: web pages that may connect.
        names: patterns of the operation ids that an identity may serve, such as ``worker = ["shop.*"]``; ``"*"``
            stands for everybody. Who is not named serves nothing. Without the table all may serve.
        limits: what a peer may have at once: ``[hub.limits]``.
        max_payload: the largest event, in bytes.
        max_buffer: bytes that may wait for one connection.
        ping: seconds within which a silent connection is pinged.
        drain: seconds that what is under way gets when the hub ends.
    """

    listen: str = "127.0.0.1:8765"
    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    tokens: list[TokenRecord] = attrs.field(factory=list, repr=False)
    tokens_file: str | None = None
    jwt: JWTOptions | None = None
    authenticate: str | None = None
    allowed_origins: list[str] = attrs.field(factory=list)
    names: dict[str, list[str]] | None = None
    limits: Limits = attrs.field(factory=Limits)
    max_payload: int = attrs.field(default=MAX_PAYLOAD, validator=_positive)
    max_buffer: int = attrs.field(default=16 * 2**20, validator=_positive)
    ping: float = attrs.field(default=20.0, validator=_positive)
    drain: float = attrs.field(default=10.0, validator=attrs.validators.ge(0))


@attrs.frozen(eq=False)
class WebSocketConfig:
    """A hub, as a spoke reaches it.

    Args:
        url: ``ws://host:port`` or ``wss://host:port``; several, with commas between them, are hubs of which the
            first that answers is taken, at each connection anew.
        token: sent as ``Authorization: Bearer <token>``.
        headers: sent with the connection request.
        ssl: for ``wss``, instead of the system's trust.
        tls_ca, tls_cert, tls_key: for ``wss``, paths of PEM files, instead of ``ssl``: certificates to trust, and
            this spoke's own certificate and key, for hubs that verify clients.
        max_payload: the largest event, in bytes; not more than the hub's.
        ping: seconds within which a silent hub is pinged; one that stays silent soon counts as lost.
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
        """What the spoke trusts and shows; ``None``: the system's trust. Raises `ConfigError`."""
        return self.ssl if self.ssl is not None else client_tls(self.tls_ca, self.tls_cert, self.tls_key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(shown, self.urls))!r})"


def shown(url: str) -> str:
    """A URL as it may be shown: no user, password, query or fragment, where secrets stand."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def capabilities(max_payload: int) -> Capabilities:
    """What a hub can do."""
    return Capabilities(
        max_payload=max_payload,
        balances=True,
        detects_no_responders=True,
        detects_peer_loss=True,
        authenticates_peer=True,
    )
