"""What authors of plugins need, and nothing else."""

from typing import TYPE_CHECKING, Any

from operad.access import may_list
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
    from operad.context import CallClient
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

# What finding plugins does without: the codec imports msgspec.
_LATER = {"CallClient": "context", "ProtocolError": "protocol", "from_json": "protocol", "to_json": "protocol"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"operad.{_LATER[name]}"), name)
