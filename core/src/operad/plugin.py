"""What authors of plugins need, and nothing else."""

from operad.lazy import lazily

# The one table of these names, by module, as that of operad. Each is imported when it is first used: what finds
# plugins does without most (the codec imports msgspec, options ssl). Type checkers read plugin.pyi, which
# tools/references.py writes from this.
_HOMES = {
    "operad.access": "may_list",
    "operad.calls.reports": "Allowance Reports printable",
    "operad.calls.settings": "CallSettings",
    "operad.calls.unusable": "unreadable",
    "operad.config.file": "Configuration",
    "operad.config.options": "check_options client_tls",
    "operad.config.private_files": "recall remember write_private",
    "operad.config.reading": "load_configuration",
    "operad.envelopes": "EnvelopeKind",
    "operad.errors": "CallError ConfigError ErrorCode",
    "operad.failures": "mask_error",
    "operad.hookspecs": "hookimpl",
    "operad.calls.memory": "keep_memory",
    "operad.names": "attribute_names keyword_names safe_names",
    "operad.naming": "definition_name object_members",
    "operad.observers": "CallClient trace_context",
    "operad.operations": "DEFAULT_NAMESPACE OPERATION_SPEC_SCHEMA",
    "operad.protocol": "ProtocolError decode encode from_json protocol to_json",
    "operad.registry.interceptors": "InterceptedCall Interceptor ResultStore",
    "operad.registry.loading": "SourceFailure",
    "operad.retries": "RateLimits RetryPolicy retry_after",
    "operad.schemas": "lazy_schema",
    "operad.schemas.bundling": "SharedDefinitions",
    "operad.schemas.likeness": "Record",
    "operad.service": "tell_manager until_stopped",
    "operad.sources": (
        "ASGIApplication Admission Login OpenURL Server Source SourceContext SourceSession Table Tell building "
        "from_folder"
    ),
    "operad.transports": (
        "Capabilities Delivery Event Link LinkDownError NoRespondersError OnEvent OnLink "
        "PayloadTooLargeError Registration Transport TransportError TransportFactory"
    ),
    "operad.wire": "json_safe",
    "operad.words": "did_you_mean",
}

__all__, __getattr__, __dir__ = lazily(__name__, _HOMES)
