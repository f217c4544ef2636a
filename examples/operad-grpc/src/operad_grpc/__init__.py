"""gRPC services as operad operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad_grpc.config import GRPCConfig, TLSConfig
    from operad_grpc.envelopes import GRPCResponseMeta, grpc_envelope
    from operad_grpc.source import GRPCSession, from_grpc

# Imported on first use: operad imports this package to find the plugin, and importing grpc takes long.
_MODULES = {
    "GRPCConfig": "config",
    "GRPCResponseMeta": "envelopes",
    "GRPCSession": "source",
    "TLSConfig": "config",
    "from_grpc": "source",
    "grpc_envelope": "envelopes",
}

__all__ = ["GRPCConfig", "GRPCResponseMeta", "GRPCSession", "TLSConfig", "from_grpc", "grpc_envelope"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
