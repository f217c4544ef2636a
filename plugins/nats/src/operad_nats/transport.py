"""`NATSTransport`: how to reach a NATS server or cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs

from operad.errors import ConfigError
from operad.plugin import Capabilities, Link

if TYPE_CHECKING:
    import ssl

    from operad.transports import OnEvent, OnLink

_PREFIX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
DEFAULT_MAX_PAYLOAD = 1024 * 1024
"""What a NATS server takes unless it is configured otherwise, in bytes."""


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
class NATSTransport:
    """A NATS server, or several of one cluster.

    Delivery is at most once, unless ``durable`` is set: what is on its way when a connection breaks is lost, and
    the call ends as ``UNAVAILABLE`` or ``TIMEOUT``. Events from one link to one address arrive in order.

    Args:
        servers: URLs ``nats://host:port``, or ``tls+nats://…``, which refuses a server without TLS; a string with
            commas names several. User and password, or a token alone, may be in front of the host.
        prefix: of the subjects of operations and topics; participants with another prefix are on another bus.
        inbox_prefix: of the subjects of inboxes; the same for all participants.
        inbox: put in front of this link's own inbox, so that a server's permissions can keep others from
            listening: with ``"alice"``, allow alice to subscribe to ``_INBOX.alice.>`` only.
        user, password, token: instead of those in a URL.
        credentials: path of a ``.creds`` file (needs ``operad-nats[nkeys]``).
        nkey_seed: path of a file with an nkey's seed (needs ``operad-nats[nkeys]``).
        tls: an `ssl.SSLContext` or the path of a file with the certificates to trust; default: the system's.
        tls_first: start TLS before the server has introduced itself, for servers with ``handshake_first``.
        name: of the connections, as the server's monitoring shows it.
        max_payload: the largest event in bytes; what the server allows counts, too.
        connect_timeout: seconds for one attempt to connect.
        reconnect_wait: seconds between attempts to reconnect, up to half of it more at random.
        ping_interval: seconds between pings; the third that stays unanswered ends the connection.
        durable: store requests for mutations that their handlers declare idempotent in JetStream, until they have
            been answered: they outlive the worker that had them, and the server. Needs ``nats-server -js``. Of
            use where callers and workers both have it; the others call and serve as before.
        ack_wait: seconds without a sign of life of a worker, until a stored request goes to another one.
        max_age: seconds that a request is stored at most, and for which an operation counts as served whose
            workers have all gone. The stream is made with it once, and its limits are yours to change.
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

    @property
    def requires_tls(self) -> bool:
        """Whether a server without TLS is refused."""
        return self.servers[0].startswith("tls+nats:")

    @property
    def capabilities(self) -> Capabilities:
        """What it can do: queue groups balance, a request that nobody serves is refused by the server."""
        return Capabilities(
            max_payload=self.max_payload,
            balances=True,
            redelivers=self.durable,
            detects_no_responders=True,
            stores=self.durable,
        )

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        """Connect. Raises `LinkDownError` if no server answers, or if it refuses the credentials.

        Raises `TransportError` if requests are to be stored and the server has no JetStream.
        """
        from operad_nats.link import NATSLink  # nats-py costs 60 ms to import

        link = NATSLink(self, on_event, on_link)
        await link.connect()
        return link


def _is_server(server: str) -> bool:
    parts = urlsplit(server)
    try:
        return parts.scheme in ("nats", "tls+nats") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def create(url: str, **options: Any) -> NATSTransport:
    """The transport of a URL; ``options`` are the arguments of `NATSTransport`. Raises `ConfigError`."""
    _check_options(options)
    return NATSTransport(servers=url, **options)


def _check_options(options: Mapping[str, Any]) -> None:
    known = [field.name for field in attrs.fields(NATSTransport) if field.name != "servers"]
    for option in options:
        if option not in known:
            near = get_close_matches(option, known, 1)
            hint = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(known)}"
            raise ConfigError(f'nats transport: unknown option "{option}"{hint}')
