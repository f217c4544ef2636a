"""The conformance kit: test suites to subclass, and helpers for tests.

pytest loads `operad_testing.fixtures` through an entry point. The other modules are imported when they are first
used.
"""

from operad.lazy import lazily

_HOMES = {
    "operad_testing._broker": "BrokerConformance",
    "operad_testing._cassette": "Cassette cassette",
    "operad_testing._envelopes": "EnvelopeKindCapabilities EnvelopeKindConformance",
    "operad_testing._envelope_schema": "envelope_schema",
    "operad_testing._examples": "ANYTHING Example",
    "operad_testing._fakes": "CallLog StaticSource make_plugin plugins_of",
    "operad_testing._hostile": "hostile_schemas",
    "operad_testing._leaks": "HeldResources assert_nothing_pending",
    "operad_testing._plugins": "PluginConformance",
    "operad_testing._results": "ResultStoreConformance",
    "operad_testing._running": "run",
    "operad_testing._server": "ServerProcess free_port",
    "operad_testing._sources": "SourceCapabilities SourceConformance",
    "operad_testing._support": "support_table",
    "operad_testing.transport": "Participant TransportConformance",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
