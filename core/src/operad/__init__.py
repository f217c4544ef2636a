"""operad: one registry of typed operations, whatever they come from.

Local functions, REST APIs, MCP servers and functions in other processes become operations of one registry:
called the same way, answering the same envelope, guarded by the same access control.
"""

from operad._inprocess import InProcessTransport
from operad.access import AccessControl, Identity, check_access
from operad.calls import CallEventMap, CallHandler, PendingRequestMap, from_remote
from operad.context import OperationContext, OperationEnv, build_env
from operad.envelopes import (
    EnvelopeKind,
    LocalResponseMeta,
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
    map_error,
)
from operad.hookspecs import hookimpl
from operad.operations import ErrorDefinition, Operation, OperationSpec, OperationType, operation
from operad.plugins import PluginRecord, Plugins, load_plugins
from operad.registry import OperationRegistry
from operad.schemas import Schema, SchemaError, from_schema
from operad.subscriptions import Subscription, subscribe

__all__ = [
    "AccessControl",
    "CallError",
    "CallEventMap",
    "CallHandler",
    "ConfigError",
    "EnvelopeKind",
    "ErrorCode",
    "ErrorDefinition",
    "Identity",
    "InProcessTransport",
    "LocalResponseMeta",
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
