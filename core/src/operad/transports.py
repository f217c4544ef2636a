"""Transports: the interface that every transport implements, and its errors.

A `Transport` says how to reach a bus, hub or broker; `Transport.open` makes a `Link`, one participant's
connection. A transport only moves events, in order and unchanged. Correlation, credit, deadlines, cancellation
and identity live in `operad_calls`, once for all transports.

Addresses are strings: ``op:<operation id>`` reaches one member of a group that registered it, ``all:<topic>``
reaches everybody who did, ``inbox:<id>`` reaches one link. Where requests are stored, who serves an operation may
also register ``queue:<operation id>``; callers send to ``op:…`` all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, runtime_checkable

import attrs

from operad.access import Identity
from operad.errors import OperadError
from operad.records import record

Event = dict[str, Any]
"""A message of the call protocol: ``{"type": str, "id": str, "payload": dict}``. ``payload.output`` may be a
`ResponseEnvelope`, which `operad_calls.protocol.encode` turns into its wire form."""


class TransportError(OperadError):
    """An event could not be sent."""


class NoRespondersError(TransportError):
    """Nobody registered the address."""


class LinkDownError(TransportError):
    """The link is closed or its connection is lost; the event was not sent."""


class PayloadTooLargeError(TransportError):
    """The event exceeds what the transport carries; the message gives both sizes in bytes."""


@record(kw_only=True)
class Capabilities:
    """What a transport can do; the call protocol adapts, the conformance kit tests what is declared."""

    max_payload: int | None = None
    """The largest encoded event in bytes; ``None``: no bound."""
    balances: bool = False
    """Requests to an address are spread over the members of the group that registered it."""
    redelivers: bool = False
    """An event may arrive twice (marked `Delivery.redelivered` where the transport can tell)."""
    detects_no_responders: bool = False
    """Where nobody registered the address of a request, `Link.send` raises `NoRespondersError`; or, where a broker
    tells only afterwards, the link makes a ``call.error`` ``NO_RESPONDERS`` for the request by itself."""
    detects_peer_loss: bool = False
    """A lost peer is reported to those who wait for it: by an event ``link.lost {peer}`` that the transport makes
    itself, or by ``call.error`` and ``call.aborted`` for each request. It routes what follows a request."""
    authenticates_peer: bool = False
    """`Delivery.identity` is what the transport authenticated."""
    same_process: bool = False
    """Both ends are one process, hence one trust domain."""
    stores: bool = False
    """Requests for operations that somebody registered as ``queue:<operation id>`` are stored until their work has
    ended, also while nobody is there. The caller's link tells by an event ``link.stored {requestId}``, which it
    makes itself; such a request is not lost with the connection."""


@record
class Delivery:
    """How an event arrived."""

    peer: str | None = None
    """Who sent it, as far as the transport knows; stable for the peer's link, opaque."""
    identity: Identity | None = None
    """The identity of the peer that the transport authenticated."""
    redelivered: bool = False
    """Whether the event may have been delivered before."""
    to: str | None = None
    """The address to which it came (``op:…``, ``queue:…``, ``all:…``, ``inbox:…``); ``None``: the transport does
    not tell, and looks itself that a request comes to the address of its operation, and through ``all:`` only as
    ``operad.discover``."""
    done: Callable[[], None] | None = None
    """Call it when the work that a request asked for has ended; set by transports that acknowledge."""
    held: float | None = None
    """For how many milliseconds the transport itself held the event, by one clock; ``None``: it cannot tell. A
    request of which a transport that redelivers can tell counts by its duration, and needs no common clock."""


LinkState = Literal["up", "down"]
OnEvent = Callable[[Event, Delivery], None]
"""Called with each event, in order, in the event loop; it never blocks and never raises."""
OnLink = Callable[[LinkState, int], None]
"""Called when the link goes up or down, with an epoch that grows by one at each connection."""


@runtime_checkable
class Registration(Protocol):
    """An address that a link serves."""

    async def unregister(self) -> None:
        """Serve it no longer; idempotent."""


@runtime_checkable
class Link(Protocol):
    """One participant's connection."""

    @property
    def inbox(self) -> str:
        """Its private, unguessable reply address, ``inbox:…``."""

    async def register(self, topic: str, group: str | None = None) -> Registration:
        """Receive what is sent to ``topic`` (``op:…`` or ``all:…``); one member of ``group`` gets each event."""

    async def send(self, to: str, event: Event) -> str | None:
        """Send an event, which is the link's from then on: it may change it. Awaits the write buffer.

        Answers where to send what follows a request (an abort, credit), if the transport knows: in process the
        inbox of the member that took it; on a hub, which finds it by the request's id, ``to`` itself. On a
        broker ``None``: there the member tells its inbox (``replyTo``).

        Raises `TransportError`, or `CallError` ``SERIALIZATION_ERROR`` from the codec.
        """

    async def drain(self, timeout: float) -> None:
        """Serve no address any more and flush what was sent, within ``timeout`` seconds."""

    async def close(self) -> None:
        """Close the connection; idempotent."""

    # A link whose transport knows who registered what may have ``async served_by(instance, topics)``: it returns
    # those of ``topics`` that a serving instance registered, and the source ``remote`` checks listings against it.


@runtime_checkable
class Transport(Protocol):
    """How to reach a bus, hub or broker: cheap, immutable, opened as often as needed."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        """Connect. Raises `LinkDownError` if nobody answers."""


def _schemes(value: Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


@record
class TransportFactory:
    """A transport plugin's contribution: makes transports of URLs.

    Args:
        schemes: the URL schemes that it answers to, such as ``("ws", "wss")``.
        create: ``create(url, **options)`` returns a `Transport`, or an object of the plugin's own that its hooks
            `operad_call_map` and `operad_call_server` recognise. It connects nothing. Raises `ConfigError`.
        config_type: an attrs class, or a function that answers one, whose fields are the options, for the
            reference of the configuration and for editors; ``None``: they are not told.
        given: the field of it that the URL fills, which is no option.
    """

    schemes: tuple[str, ...] = attrs.field(converter=_schemes)
    create: Callable[..., Any]
    _config: Any = attrs.field(default=None, alias="config_type")
    given: str = "url"

    @property
    def config_type(self) -> type[Any] | None:
        """The attrs class of the options, if they are told."""
        config: type[Any] | None = (
            self._config if self._config is None or isinstance(self._config, type) else self._config()
        )
        return config
