"""The options of the NATS transport."""

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
            f'{attribute.name}: expected tokens of letters, digits, "_" and "-", joined by dots, got {value!r}'
        )


def _positive(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value <= 0:
        raise ConfigError(f"{attribute.name}: expected a number above 0, got {value}")


@attrs.frozen(kw_only=True)
class NATSConfig:
    """The options of a NATS server, or of several servers of one cluster.

    Delivery is at most once, unless ``durable`` is set: if a connection breaks, messages in flight are lost, and
    their calls end with ``UNAVAILABLE`` or ``TIMEOUT``. Events from one link to one address arrive in order.

    Args:
        servers: the URLs ``nats://host:port``, or ``tls+nats://…`` to reject a server without TLS. Separate
            several URLs in one string with commas. A user and password, or a token alone, may precede the host.
        prefix: the start of the subjects of operations and topics. Participants with different prefixes cannot
            reach each other.
        inbox_prefix: the start of the subjects of inboxes. It must be the same for all participants.
        inbox: a name that is added to the inbox, so that permissions of the server can protect it: with
            ``"alice"``, allow only the user alice to subscribe to ``_INBOX.alice.>``.
        user, password, token: the credentials; default: those in the URL.
        credentials: the path of a ``.creds`` file (requires ``operad-nats[nkeys]``).
        nkey_seed: the path of a file with the seed of an nkey (requires ``operad-nats[nkeys]``).
        tls: an `ssl.SSLContext`, or the path of a file with trusted certificates; default: those of the system.
        tls_ca, tls_cert, tls_key: paths of PEM files, instead of ``tls``: trusted certificates, and the
            certificate and key of this client, for servers that verify clients.
        tls_first: start TLS before the server sends its information, for servers with ``handshake_first``.
        name: the name of the connections in the monitoring of the server.
        max_payload: the maximum size of an event in bytes. The limit of the server applies, too.
        connect_timeout: the maximum time of one attempt to connect, in seconds.
        reconnect_wait: seconds before the first attempt to reconnect. The pause doubles up to 2 s, and a random
            part of it is left out.
        ping_interval: seconds between pings. The connection ends if two pings in a row get no response.
        durable: store requests for idempotent mutations in JetStream until they have a response. They survive the
            loss of a worker or of the server. Requires ``nats-server -js``. Set it for callers and workers;
            participants without it can still call and serve.
        ack_wait: seconds without a sign of life of a worker after which a stored request goes to another worker.
        max_age: the maximum time for which a request is stored, in seconds, and the time for which an operation
            without workers still accepts requests. An existing stream keeps its own limit, which you can change
            on the server.
        replicas: the number of servers of a cluster that keep the stream, used when the stream is made.

    Raises:
        ConfigError: a URL, a prefix or a number is not valid, or both ``tls`` and files are given.
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
            wrong = [number for number, server in enumerate(self.servers, 1) if not _is_server(server)]
            raise ConfigError(
                "servers: expected URLs such as nats://host:4222 or tls+nats://host:4222, got "
                + (f"another text as URL number {wrong[0]}" if wrong else "an empty list")
            )
        if len({urlsplit(server).scheme for server in self.servers}) > 1:
            raise ConfigError("servers: expected the same scheme in all URLs, got both nats and tls+nats")

        if self.tls is not None and (self.tls_ca or self.tls_cert or self.tls_key):
            raise ConfigError("tls: expected either tls, or tls_ca, tls_cert and tls_key; got both")

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None if no option sets one. Raises `ConfigError` if a file cannot be used."""
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
