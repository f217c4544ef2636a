"""What authors of plugins need, and nothing else."""

from typing import TYPE_CHECKING, Any

from operad.access import may_list
from operad.envelopes import EnvelopeKind
from operad.errors import CallError, ConfigError, ErrorCode
from operad.failures import mask_error
from operad.hookspecs import hookimpl
from operad.operations import DEFAULT_NAMESPACE, OPERATION_SPEC_SCHEMA
from operad.schemas import lazy_schema
from operad.sources import (
    Admission,
    ASGIApplication,
    Login,
    OpenURL,
    Server,
    Source,
    SourceContext,
    SourceSession,
    Tell,
)
from operad.transports import (
    Capabilities,
    Delivery,
    Event,
    Link,
    LinkDownError,
    NoRespondersError,
    OnEvent,
    OnLink,
    PayloadTooLargeError,
    Registration,
    Transport,
    TransportError,
    TransportFactory,
)
from operad.wire import json_safe

if TYPE_CHECKING:
    from operad import protocol
    from operad.calls.reports import Reports, printable
    from operad.calls.settings import CallSettings
    from operad.config.file import Configuration
    from operad.config.options import check_options, client_tls
    from operad.config.reading import load_configuration
    from operad.context import CallClient
    from operad.names import attribute_names, keyword_names, safe_names
    from operad.naming import definition_name, object_members
    from operad.observers import trace_context
    from operad.protocol import ProtocolError, decode, encode, from_json, to_json
    from operad.registry.first_results import ResultStore
    from operad.registry.interceptors import InterceptedCall, Interceptor
    from operad.retries import RateLimits, RetryPolicy, retry_after
    from operad.schemas.bundling import SharedDefinitions
    from operad.service import tell_manager, until_stopped
    from operad.words import did_you_mean

__all__ = [
    "DEFAULT_NAMESPACE",
    "OPERATION_SPEC_SCHEMA",
    "ASGIApplication",
    "Admission",
    "CallClient",
    "CallError",
    "CallSettings",
    "Capabilities",
    "ConfigError",
    "Configuration",
    "Delivery",
    "EnvelopeKind",
    "ErrorCode",
    "Event",
    "InterceptedCall",
    "Interceptor",
    "Link",
    "LinkDownError",
    "Login",
    "NoRespondersError",
    "OnEvent",
    "OnLink",
    "OpenURL",
    "PayloadTooLargeError",
    "ProtocolError",
    "RateLimits",
    "Registration",
    "Reports",
    "ResultStore",
    "RetryPolicy",
    "Server",
    "SharedDefinitions",
    "Source",
    "SourceContext",
    "SourceSession",
    "Tell",
    "Transport",
    "TransportError",
    "TransportFactory",
    "attribute_names",
    "check_options",
    "client_tls",
    "decode",
    "definition_name",
    "did_you_mean",
    "encode",
    "from_json",
    "hookimpl",
    "json_safe",
    "keyword_names",
    "lazy_schema",
    "load_configuration",
    "mask_error",
    "may_list",
    "object_members",
    "printable",
    "protocol",
    "retry_after",
    "safe_names",
    "tell_manager",
    "to_json",
    "trace_context",
    "until_stopped",
]

# What finding plugins does without: the codec imports msgspec, options ssl.
_LATER = {
    "Configuration": "config.file",
    "load_configuration": "config.reading",
    "tell_manager": "service",
    "until_stopped": "service",
    "CallSettings": "calls.settings",
    "Reports": "calls.reports",
    "printable": "calls.reports",
    "CallClient": "context",
    "InterceptedCall": "registry.interceptors",
    "Interceptor": "registry.interceptors",
    "ProtocolError": "protocol",
    "trace_context": "observers",
    "RateLimits": "retries",
    "ResultStore": "registry.first_results",
    "RetryPolicy": "retries",
    "SharedDefinitions": "schemas.bundling",
    "check_options": "config.options",
    "client_tls": "config.options",
    "decode": "protocol",
    "did_you_mean": "words",
    "encode": "protocol",
    "from_json": "protocol",
    "retry_after": "retries",
    "safe_names": "names",
    "attribute_names": "names",
    "keyword_names": "names",
    "definition_name": "naming",
    "object_members": "naming",
    "to_json": "protocol",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "protocol":
        return import_module("operad.protocol")
    if name in _LATER:
        return getattr(import_module(f"operad.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
