"""What authors of plugins need, and nothing else."""

from operad.envelopes import EnvelopeKind
from operad.hookspecs import hookimpl
from operad.schemas import lazy_schema
from operad.sources import Server, Source, SourceContext, SourceSession
from operad.transports import (
    Capabilities,
    Delivery,
    Event,
    Link,
    LinkDownError,
    NoRespondersError,
    PayloadTooLargeError,
    Registration,
    Transport,
    TransportError,
    TransportFactory,
)

__all__ = [
    "Capabilities",
    "Delivery",
    "EnvelopeKind",
    "Event",
    "Link",
    "LinkDownError",
    "NoRespondersError",
    "PayloadTooLargeError",
    "Registration",
    "Server",
    "Source",
    "SourceContext",
    "SourceSession",
    "Transport",
    "TransportError",
    "TransportFactory",
    "hookimpl",
    "lazy_schema",
]
