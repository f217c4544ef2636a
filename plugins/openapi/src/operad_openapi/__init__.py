"""REST APIs described by OpenAPI documents as operad operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad_auth.http import RetryPolicy
    from operad_openapi.api import from_openapi, from_openapi_file, from_openapi_url
    from operad_openapi.config import HTTPAuth, HTTPLimits, HTTPServiceConfig, Pagination
    from operad_openapi.envelopes import HTTPResponseMeta, http_envelope
    from operad_openapi.fs import LocalFS, OpenAPIFS
    from operad_openapi.operations import OpenAPIOperations
    from operad_openapi.pagination import paginate
    from operad_openapi.sse import SSEEvent, SSEEventTooLargeError, SSEParser

# Loaded when asked for, so that the plugin can be found without paying for what it does not use yet.
_MODULES = {
    "HTTPAuth": "config",
    "HTTPLimits": "config",
    "HTTPResponseMeta": "envelopes",
    "HTTPServiceConfig": "config",
    "LocalFS": "fs",
    "OpenAPIFS": "fs",
    "OpenAPIOperations": "operations",
    "Pagination": "config",
    "RetryPolicy": "config",
    "SSEEvent": "sse",
    "SSEEventTooLargeError": "sse",
    "SSEParser": "sse",
    "from_openapi": "api",
    "from_openapi_file": "api",
    "from_openapi_url": "api",
    "http_envelope": "envelopes",
    "paginate": "pagination",
}

__all__ = [
    "HTTPAuth",
    "HTTPLimits",
    "HTTPResponseMeta",
    "HTTPServiceConfig",
    "LocalFS",
    "OpenAPIFS",
    "OpenAPIOperations",
    "Pagination",
    "RetryPolicy",
    "SSEEvent",
    "SSEEventTooLargeError",
    "SSEParser",
    "from_openapi",
    "from_openapi_file",
    "from_openapi_url",
    "http_envelope",
    "paginate",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"operad_openapi.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
