"""The options of a NATS server and of its use by this transport."""

from __future__ import annotations

import re
import ssl
from typing import Any
from urllib.parse import urlsplit

import attrs

from operad.plugin import ConfigError, client_tls

_PREFIX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
DEFAULT_MAX_PAYLOAD = 1024 * 1024
"""The largest payload that a NATS server accepts by default, in bytes."""


def _servers(value: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value.split(",")) if isinstance(value, str) else tuple(value)


def _subject_prefix(_: Any, attribute: attrs.Attribute[str], value: str) -> None:
    if not _PREFIX.fullmatch(value):
        raise ConfigError(
            f'{attribute.name}: expected letters, digits, "_", "-", in tokens joined by dots, got {value!r}'
        )


def _positive(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value <= 0:
        raise ConfigError(f"{attribute.name}: expected more than 0, got {value}")


@attrs.frozen(kw_only=True)
class NATSConfig:
    """A NATS server, or several of one cluster.

    Delivery is at most once, unless ``durable`` is set: messages in flight when a connection breaks are lost, and
    their calls end with ``UNAVAILABLE`` or ``TIMEOUT``. Events from one link to one address arrive in order.

    Args:
        servers: URLs ``nats://host:port``, or ``tls+nats://…``, which rejects a server without TLS; a string may
            name several, with commas. User and password, or a token alone, may precede the host.
        prefix: start of the subjects of operations and topics; participants with another one are on another bus.
        inbox_prefix: start of the subjects of inboxes; the same for all participants.
        inbox: put in front of this link's own inbox, so that a server's permissions can keep others from
            listening: with ``"alice"``, allow alice to subscribe to ``_INBOX.alice.>`` only.
        user, password, token: instead of those in a URL.
        credentials: path of a ``.creds`` file (needs ``operad-nats[nkeys]``).
        nkey_seed: path of a file with an nkey's seed (needs ``operad-nats[nkeys]``).
        tls: an `ssl.SSLContext` or the path of a file with the certificates to trust; default: the system's.
        tls_ca, tls_cert, tls_key: paths of PEM files, instead of ``tls``: certificates to trust, and this client's
            own certificate and key, for servers that verify clients.
        tls_first: start TLS before the server has introduced itself, for servers with ``handshake_first``.
        name: name of the connections in the server's monitoring.
        max_payload: the largest event in bytes; the server's own limit applies, too.
        connect_timeout: seconds for one attempt to connect.
        reconnect_wait: seconds before the first attempt to reconnect; doubled up to 2 s, minus a random part.
        ping_interval: seconds between pings; the connection ends after three without a response.
        durable: store requests for mutations that their handlers declare idempotent in JetStream until they have a
            response: they survive the loss of their worker, and of the server. Needs ``nats-server -js``. Set it
            for callers and workers; those without it call and serve as before.
        ack_wait: seconds without a sign of life of a worker until its stored request goes to another one.
        max_age: seconds that a request is stored at most, and that an operation counts as served after its last
            worker has gone. Used when the stream is made; you can change the stream's limits later.
        replicas: how many servers of a cluster keep the stream, likewise.
    """

    servers: tuple[str, ...] = attrs.field(converter=_servers, repr=False)
    prefix: str = attrs.field(default="operad", validator=_subject_prefix)
    inbox_prefix: str = attrs.field(default="_INBOX", validator=_subject_prefix)
    inbox: str | None = attrs.field(default=None, validator=attrs.validators.optional(_subject_prefix))
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    token: str | None = attrs.field(default=None, repr=False)
    credentials: str | None = None
    nkey_seed: str | None = attrs.field(default=None, repr=False)
    tls: ssl.SSLContext | str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_first: bool = False
    name: str = "operad"
    max_payload: int = DEFAULT_MAX_PAYLOAD
    connect_timeout: float = 5.0
    reconnect_wait: float = 0.5
    ping_interval: float = 10.0
    durable: bool = False
    ack_wait: float = attrs.field(default=10.0, validator=_positive)
    max_age: float = attrs.field(default=3_600.0, validator=_positive)
    replicas: int = attrs.field(default=1, validator=_positive)

    def __attrs_post_init__(self) -> None:
        if not all(_is_server(server) for server in self.servers) or not self.servers:
            raise ConfigError(
                "servers: expected URLs like nats://host:4222 or tls+nats://host:4222, all of one scheme"
            )
        if len({urlsplit(server).scheme for server in self.servers}) > 1:
            raise ConfigError("servers: expected one scheme for all, got both nats and tls+nats")

        if self.tls is not None and (self.tls_ca or self.tls_cert or self.tls_key):
            raise ConfigError("tls: expected either tls, or tls_ca, tls_cert and tls_key; got both")

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None for the system's certificates. Raises `ConfigError`."""
        if isinstance(self.tls, ssl.SSLContext):
            return self.tls
        return client_tls(self.tls or self.tls_ca, self.tls_cert, self.tls_key)

    @property
    def requires_tls(self) -> bool:
        """Whether a server without TLS is rejected."""
        return self.servers[0].startswith("tls+nats:")


def _is_server(server: str) -> bool:
    parts = urlsplit(server)
    try:
        return parts.scheme in ("nats", "tls+nats") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number
        return False
