"""What authors of plugins need, and nothing else."""

from typing import TYPE_CHECKING, Any

from operad.access import may_list
from operad.context import CallClient
from operad.envelopes import EnvelopeKind
from operad.errors import json_safe, mask_error
from operad.hookspecs import hookimpl
from operad.schemas import lazy_schema
from operad.sources import Admission, ASGIApplication, Server, Source, SourceContext, SourceSession
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

if TYPE_CHECKING:
    from operad.protocol import ProtocolError, from_json, to_json

__all__ = [
    "ASGIApplication",
    "Admission",
    "CallClient",
    "Capabilities",
    "Delivery",
    "EnvelopeKind",
    "Event",
    "Link",
    "LinkDownError",
    "NoRespondersError",
    "PayloadTooLargeError",
    "ProtocolError",
    "Registration",
    "Server",
    "Source",
    "SourceContext",
    "SourceSession",
    "Transport",
    "TransportError",
    "TransportFactory",
    "from_json",
    "hookimpl",
    "json_safe",
    "lazy_schema",
    "mask_error",
    "may_list",
    "to_json",
]

_CODEC = ("ProtocolError", "from_json", "to_json")


def __getattr__(name: str) -> Any:
    # The codec costs an import of msgspec, which finding plugins does without.
    if name not in _CODEC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from operad import protocol

    return getattr(protocol, name)
