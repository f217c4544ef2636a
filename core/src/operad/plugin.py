"""The public names for authors of plugins.

More of the core is public for larger plugins: the modules directly in `operad`, and `operad.config`.
"""

from operad.lazy import lazily

# The one table of these names, by what an author writes. Each is imported when it is first used: finding plugins
# needs few of them. Type checkers read plugin.pyi, which tools/references.py writes from this.
_HOMES = {
    # any plugin
    "operad.hookspecs": "hookimpl",
    "operad.errors": "CallError ConfigError ErrorCode",
    "operad.records": "record",
    "operad.config": "check_options client_tls",
    # a source
    "operad.sources": "Server Source SourceContext SourceSession Table",
    "operad.operations": "DEFAULT_NAMESPACE OPERATION_SPEC_SCHEMA",
    # an envelope kind
    "operad.envelopes": "EnvelopeKind",
    # a transport
    "operad.transports": (
        "Capabilities Delivery Event Link LinkDownError NoRespondersError OnEvent OnLink "
        "PayloadTooLargeError Registration Transport TransportError TransportFactory"
    ),
    # a server
    "operad.access": "may_list",
    "operad.failures": "mask_error",
    "operad.observers": "trace_context",
    # a call map
    "operad.calls": "CallMap CallServer",
    # interceptors
    "operad.registry.interceptors": "InterceptedCall Interceptor",
    "operad.loading.sources": "SourceFailure",
    "operad_rules": "ResultStore",
    # a login
    "operad_auth": "Login OpenURL Tell",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
