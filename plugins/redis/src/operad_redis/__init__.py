"""The Redis transport of operad, for calls across machines: requests on streams, replies on channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad_redis.config import RedisConfig
    from operad_redis.results import RedisResults
    from operad_redis.transport import RedisTransport

__all__ = ["RedisConfig", "RedisResults", "RedisTransport"]

_MODULES = {"RedisConfig": "config", "RedisResults": "results", "RedisTransport": "transport"}


def __getattr__(name: str) -> Any:
    # Lazy: to find plugins, operad imports this package, and that must import neither ssl nor cattrs.
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"operad_redis.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
