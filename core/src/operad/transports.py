"""Transports: the interface that every transport implements, and its errors.

A `Transport` describes how to reach a bus, hub or broker; `Transport.open` makes a `Link`, one participant's
connection. A transport only moves events, in order and unchanged. Correlation, credit, deadlines, cancellation and
identity are implemented in `operad_calls`, once for all transports.

Addresses are strings: ``op:<operation id>`` reaches one member of a group that registered it, ``all:<topic>``
reaches every link that registered it, ``inbox:<id>`` reaches one link. If requests are stored, a server may also
register ``queue:<operation id>``; callers still send to ``op:…``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, runtime_checkable

import attrs

from operad.access import Identity
from operad.errors import OperadError
from operad.records import record

Event = dict[str, Any]
"""A message of the call protocol: ``{"type": str, "id": str, "payload": dict}``.

``payload.output`` may be a `ResponseEnvelope`, which `operad_calls.protocol.encode` converts to its wire form.
"""


class TransportError(OperadError):
    """Raised when a transport cannot connect, register an address or send an event."""


class NoRespondersError(TransportError):
    """Raised when no link has registered the address of an event."""


class LinkDownError(TransportError):
    """Raised when a link cannot connect, is closed, or has lost its connection. The event was not sent."""


class PayloadTooLargeError(TransportError):
    """Raised for an event above `Capabilities.max_payload`, or the server's limit; the message names both."""


@record(kw_only=True)
class Capabilities:
    """The capabilities of a transport.

    The call protocol adapts to them, and the conformance kit tests each declared capability.
    """

    max_payload: int | None = None
    """The size of the largest encoded event in bytes; ``None`` means no limit."""
    balances: bool = False
    """Whether requests to an address are spread over the members of the group that registered it."""
    redelivers: bool = False
    """Whether an event may arrive twice (marked `Delivery.redelivered` if the transport can detect it)."""
    detects_no_responders: bool = False
    """Whether `Link.send` raises `NoRespondersError` if no link has registered the address of a request.

    If a broker reports it only afterwards, the link itself makes a ``call.error`` ``NO_RESPONDERS`` for the
    request.
    """
    detects_peer_loss: bool = False
    """Whether a lost peer is reported to the links that wait for it: by an event ``link.lost {peer}`` that the
    transport makes itself, or by ``call.error`` and ``call.aborted`` for each request. Such a transport also
    routes the events that follow a request, such as an abort.
    """
    authenticates_peer: bool = False
    """Whether the transport has authenticated the identity in `Delivery.identity`."""
    same_process: bool = False
    """Whether both ends are in one process, hence in one trust domain."""
    stores: bool = False
    """Whether requests for operations registered as ``queue:<operation id>`` are stored until their work has
    ended, even while no server is connected. The caller's link reports this by an event ``link.stored
    {requestId}``, which it makes itself; such a request survives the loss of the connection.
    """


@record
class Delivery:
    """The circumstances of an event's arrival, such as its sender and address."""

    peer: str | None = None
    """The sender: an opaque string, stable for the peer's link; ``None`` if the transport does not know it."""
    identity: Identity | None = None
    """The identity of the sender; ``None`` if the transport did not authenticate it."""
    redelivered: bool = False
    """Whether the event may have been delivered before."""
    to: str | None = None
    """The address to which the event was sent (``op:…``, ``queue:…``, ``all:…``, ``inbox:…``).

    If ``None``, the transport does not report it, and checks itself that a request arrives at the address of its
    operation, and that only ``operad.discover`` arrives through ``all:``.
    """
    done: Callable[[], None] | None = None
    """A function to call when the work of a request has ended; ``None`` if there is nothing to acknowledge."""
    held: float | None = None
    """Milliseconds for which the transport held the event, by its own clock; ``None`` if this is not known.

    If ``None``, the deadline of a redelivered request depends on a common clock of caller and server.
    """


LinkState = Literal["up", "down"]
OnEvent = Callable[[Event, Delivery], None]
"""Called with each event, in order, in the event loop; it never blocks and never raises."""
OnLink = Callable[[LinkState, int], None]
"""Called when the link goes up or down, with a number that grows by one at each connection."""


@runtime_checkable
class Registration(Protocol):
    """An address that a link serves."""

    async def unregister(self) -> None:
        """Stop serving the address; idempotent."""


@runtime_checkable
class Link(Protocol):
    """One participant's connection to a bus, hub or broker."""

    @property
    def inbox(self) -> str:
        """The link's private, unguessable reply address, ``inbox:…``."""

    async def register(self, topic: str, group: str | None = None) -> Registration:
        """Receive events sent to ``topic``. Each reaches one member of ``group``; without a group, all links.

        Raises `TransportError` if ``topic`` is not an address, the server rejects it, or the link is down.
        """

    async def send(self, to: str, event: Event) -> str | None:
        """Send an event, and wait until the write buffer has room. The caller must not use the event afterwards.

        Returns:
            The address for events that follow a request (an abort, credit), if the transport knows it. In process
                it is the inbox of the member that took the request. On a hub it is ``to``, because the hub finds
                the member by the request's id. On a broker it is ``None``, because the member sends the address of
                its inbox (``replyTo``).

        Raises:
            TransportError: the event could not be sent.
            CallError: ``SERIALIZATION_ERROR`` if the event has no JSON form.
        """

    async def drain(self, timeout: float) -> None:
        """Stop serving, and flush sent events within ``timeout`` s; may raise `TransportError` if that fails."""

    async def close(self) -> None:
        """Close the connection; idempotent."""

    # A link whose transport knows all registrations may have ``async served_by(instance, topics)``: it returns
    # those of ``topics`` that a serving instance registered, and the source ``remote`` checks listings against it.


@runtime_checkable
class Transport(Protocol):
    """A description of how to reach a bus, hub or broker: cheap, immutable, and can be opened several times."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of all links of this transport."""

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        """Connect and return a link. Raises `LinkDownError` if no server can be reached."""


def _schemes(value: Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


@record
class TransportFactory:
    """A kind of transport that a plugin contributes; it makes transports from URLs.

    Args:
        schemes: the URL schemes that it supports, such as ``("ws", "wss")``.
        create: ``create(url, **options)`` returns a `Transport`, or an object of the plugin's own that its hooks
            `operad_call_map` and `operad_call_server` recognise. It connects nothing. It raises `ConfigError` for
            an invalid URL or option.
        config_type: an attrs class, or a function that returns one; its fields are the options, for the
            configuration reference and for editors. If ``None``, the options are not published.
        given: the name of the field that is filled from the URL and is not an option.
    """

    schemes: tuple[str, ...] = attrs.field(converter=_schemes)
    create: Callable[..., Any]
    _config: Any = attrs.field(default=None, alias="config_type")
    given: str = "url"

    @property
    def config_type(self) -> type[Any] | None:
        """The attrs class of the options; ``None`` if they are not published."""
        config: type[Any] | None = (
            self._config if self._config is None or isinstance(self._config, type) else self._config()
        )
        return config
