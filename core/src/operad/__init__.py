"""operad: one registry of typed operations, wherever they come from.

Local functions, REST APIs, MCP servers and functions in other processes become operations of one registry. All are
called in the same way, return the same envelope and are guarded by the same access control.
"""

from logging import NullHandler as _NullHandler
from logging import getLogger as _getLogger

from operad.lazy import lazily

# The one table of public names, by module. Each is imported when it is first used: what finds plugins needs no
# registry and no call protocol. Type checkers read __init__.pyi, which tools/references.py writes from this.
_HOMES = {
    "operad.access": "AccessControl Identity check_access",
    "operad.context": "OperationContext OperationEnv build_env",
    "operad.envelopes": (
        "EnvelopeKind LocalResponseMeta OpaqueMeta ResponseEnvelope is_response_envelope local_envelope unwrap"
    ),
    "operad.errors": "CallError ConfigError ErrorCode OperadError PluginError RegistrationError SourceError",
    "operad.failures": "map_error",
    "operad.functions.conversions": "Conversions",
    "operad.functions.decorator": "operation",
    "operad.hookspecs": "hookimpl",
    "operad.operations": "ErrorDefinition Operation OperationSpec OperationType",
    "operad.plugins.discovery": "load_plugins",
    "operad.plugins.manager": "Plugins",
    "operad.plugins.record": "PluginRecord",
    "operad.registry.registry": "OperationRegistry",
    "operad.subscriptions": "Subscription subscribe",
    "operad_calls": "CallEventMap CallHandler InProcessTransport PendingRequestMap from_remote",
    "operad_rules": "FirstResults MemoryResults",
    "operad_schema": "Schema SchemaError from_schema",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)

# A library is silent until the application sets logging up: without a handler, Python itself would print warnings.
_getLogger("operad").addHandler(_NullHandler())
