"""What authors of plugins need, and nothing else."""

from operad.access import may_list
from operad.context import CallClient
from operad.envelopes import EnvelopeKind
from operad.errors import mask_error
from operad.hookspecs import hookimpl
from operad.schemas import lazy_schema
from operad.sources import ASGIApplication, Server, Source, SourceContext, SourceSession
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
    "ASGIApplication",
    "CallClient",
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
    "mask_error",
    "may_list",
]
