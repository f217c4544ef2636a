# Written by tools/references.py from the table in __init__.py.

from operad.access import AccessControl as AccessControl
from operad.access import Identity as Identity
from operad.access import check_access as check_access
from operad.context import OperationContext as OperationContext
from operad.context import OperationEnv as OperationEnv
from operad.context import build_env as build_env
from operad.envelopes import EnvelopeKind as EnvelopeKind
from operad.envelopes import LocalResponseMeta as LocalResponseMeta
from operad.envelopes import OpaqueMeta as OpaqueMeta
from operad.envelopes import ResponseEnvelope as ResponseEnvelope
from operad.envelopes import is_response_envelope as is_response_envelope
from operad.envelopes import local_envelope as local_envelope
from operad.envelopes import unwrap as unwrap
from operad.errors import CallError as CallError
from operad.errors import ConfigError as ConfigError
from operad.errors import ErrorCode as ErrorCode
from operad.errors import OperadError as OperadError
from operad.errors import PluginError as PluginError
from operad.errors import RegistrationError as RegistrationError
from operad.errors import SourceError as SourceError
from operad.failures import map_error as map_error
from operad.functions.conversions import Conversions as Conversions
from operad.functions.decorator import operation as operation
from operad.hookspecs import hookimpl as hookimpl
from operad.operations import ErrorDefinition as ErrorDefinition
from operad.operations import Operation as Operation
from operad.operations import OperationSpec as OperationSpec
from operad.operations import OperationType as OperationType
from operad.plugins.discovery import load_plugins as load_plugins
from operad.plugins.manager import Plugins as Plugins
from operad.plugins.record import PluginRecord as PluginRecord
from operad.registry.registry import OperationRegistry as OperationRegistry
from operad.subscriptions import Subscription as Subscription
from operad.subscriptions import subscribe as subscribe
from operad_calls import CallEventMap as CallEventMap
from operad_calls import CallHandler as CallHandler
from operad_calls import InProcessTransport as InProcessTransport
from operad_calls import PendingRequestMap as PendingRequestMap
from operad_calls import from_remote as from_remote
from operad_rules import FirstResults as FirstResults
from operad_rules import MemoryResults as MemoryResults
from operad_schema import Schema as Schema
from operad_schema import SchemaError as SchemaError
from operad_schema import from_schema as from_schema

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
    "FirstResults",
    "Identity",
    "InProcessTransport",
    "LocalResponseMeta",
    "MemoryResults",
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
