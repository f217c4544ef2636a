"""The HTTP API of a registry with its explorer, and the command `operad serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad_serve.door.front_door import FrontDoor
    from operad_serve.door.options import ServeOptions
    from operad_serve.door.plan import Plan
    from operad_serve.openapi import OpenAPIApplication, OpenAPIServerConfig, to_openapi

# Imported on first use: finding the plugin must not cost what a server costs.
_MODULES = {
    "FrontDoor": "door.front_door",
    "OpenAPIApplication": "openapi",
    "OpenAPIServerConfig": "openapi",
    "Plan": "door.plan",
    "ServeOptions": "door.options",
    "to_openapi": "openapi",
}

__all__ = [
    "FrontDoor",
    "OpenAPIApplication",
    "OpenAPIServerConfig",
    "Plan",
    "ServeOptions",
    "to_openapi",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"operad_serve.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
