"""The NATS transport of operad, for calls across machines, balanced by queue groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad_nats.config import NATSConfig
    from operad_nats.results import NATSResults
    from operad_nats.transport import NATSTransport

__all__ = ["NATSConfig", "NATSResults", "NATSTransport"]

_MODULES = {"NATSConfig": "config", "NATSResults": "results", "NATSTransport": "transport"}


def __getattr__(name: str) -> Any:
    # Lazy: to find plugins, operad imports this package, and that must import neither ssl nor cattrs.
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"operad_nats.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
