"""The WebSocket transport of operad, for calls across processes through a hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad_websocket.config import HubConfig, Limits, WebSocketConfig
    from operad_websocket.hub import Authenticator, Hub, bearer_tokens
    from operad_websocket.transport import WebSocketTransport

__all__ = ["Authenticator", "Hub", "HubConfig", "Limits", "WebSocketConfig", "WebSocketTransport", "bearer_tokens"]

_MODULES = {
    "Authenticator": "hub",
    "Hub": "hub",
    "HubConfig": "config",
    "Limits": "config",
    "WebSocketConfig": "config",
    "WebSocketTransport": "transport",
    "bearer_tokens": "hub",
}


def __getattr__(name: str) -> Any:
    # Lazy: the plugin module is in this package, and finding plugins must not import aiohttp.
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"operad_websocket.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
