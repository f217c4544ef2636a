"""operad: one registry of typed operations, whatever they come from.

Local functions, REST APIs, MCP servers and functions in other processes become operations of one registry:
called the same way, answering the same envelope, guarded by the same access control.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# What finding plugins needs comes with operad, so that `load_plugins` pays for the plugins alone.
import operad.plugins.manager  # noqa: F401  # for what it brings along, not for its name

if TYPE_CHECKING:
    from operad.access import AccessControl, Identity, check_access
    from operad.calls import CallEventMap, CallHandler, PendingRequestMap, from_remote
    from operad.calls.inprocess import InProcessTransport
    from operad.context import OperationContext, OperationEnv, build_env
    from operad.envelopes import (
        EnvelopeKind,
        LocalResponseMeta,
        OpaqueMeta,
        ResponseEnvelope,
        is_response_envelope,
        local_envelope,
        unwrap,
    )
    from operad.errors import (
        CallError,
        ConfigError,
        ErrorCode,
        OperadError,
        PluginError,
        RegistrationError,
        SourceError,
    )
    from operad.failures import map_error
    from operad.functions.conversions import Conversions
    from operad.functions.decorator import operation
    from operad.hookspecs import hookimpl
    from operad.operations import ErrorDefinition, Operation, OperationSpec, OperationType
    from operad.plugins.discovery import load_plugins
    from operad.plugins.manager import Plugins
    from operad.plugins.record import PluginRecord
    from operad.registry.registry import OperationRegistry
    from operad.schemas.records import SchemaError
    from operad.schemas.schema import Schema, from_schema
    from operad.subscriptions import Subscription, subscribe

__all__ = [
    "AccessControl",
    "CallError",
    "CallEventMap",
    "CallHandler",
    "ConfigError",
    "Conversions",
    "EnvelopeKind",
    "ErrorCode",
    "ErrorDefinition",
    "Identity",
    "InProcessTransport",
    "LocalResponseMeta",
    "OpaqueMeta",
    "OperadError",
    "Operation",
    "OperationContext",
    "OperationEnv",
    "OperationRegistry",
    "OperationSpec",
    "OperationType",
    "PendingRequestMap",
    "PluginError",
    "PluginRecord",
    "Plugins",
    "RegistrationError",
    "ResponseEnvelope",
    "Schema",
    "SchemaError",
    "SourceError",
    "Subscription",
    "build_env",
    "check_access",
    "from_remote",
    "from_schema",
    "hookimpl",
    "is_response_envelope",
    "load_plugins",
    "local_envelope",
    "map_error",
    "operation",
    "subscribe",
    "unwrap",
]

# Each name is imported when it is first used: what finds plugins needs neither the registry nor the call protocol.
# The same list as above, which is the type checkers'; a test compares them.
_HOMES = {
    "InProcessTransport": "operad.calls.inprocess",
    "AccessControl": "operad.access",
    "Identity": "operad.access",
    "check_access": "operad.access",
    "CallEventMap": "operad.calls",
    "CallHandler": "operad.calls",
    "PendingRequestMap": "operad.calls",
    "from_remote": "operad.calls",
    "OperationContext": "operad.context",
    "OperationEnv": "operad.context",
    "build_env": "operad.context",
    "EnvelopeKind": "operad.envelopes",
    "LocalResponseMeta": "operad.envelopes",
    "OpaqueMeta": "operad.envelopes",
    "ResponseEnvelope": "operad.envelopes",
    "is_response_envelope": "operad.envelopes",
    "local_envelope": "operad.envelopes",
    "unwrap": "operad.envelopes",
    "CallError": "operad.errors",
    "ConfigError": "operad.errors",
    "ErrorCode": "operad.errors",
    "OperadError": "operad.errors",
    "PluginError": "operad.errors",
    "RegistrationError": "operad.errors",
    "SourceError": "operad.errors",
    "map_error": "operad.failures",
    "hookimpl": "operad.hookspecs",
    "ErrorDefinition": "operad.operations",
    "Operation": "operad.operations",
    "OperationSpec": "operad.operations",
    "OperationType": "operad.operations",
    "Conversions": "operad.functions.conversions",
    "operation": "operad.functions.decorator",
    "PluginRecord": "operad.plugins.record",
    "Plugins": "operad.plugins.manager",
    "load_plugins": "operad.plugins.discovery",
    "OperationRegistry": "operad.registry.registry",
    "Schema": "operad.schemas.schema",
    "SchemaError": "operad.schemas.records",
    "from_schema": "operad.schemas.schema",
    "Subscription": "operad.subscriptions",
    "subscribe": "operad.subscriptions",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
