"""`operad.testing`: the names of operad-testing, imported when they are first used."""

from operad.lazy import lazily

_HOMES = {
    "operad_testing": (
        "ANYTHING BrokerConformance CallLog Cassette EnvelopeKindCapabilities EnvelopeKindConformance Example "
        "HeldResources Participant PluginConformance ResultStoreConformance ServerProcess SourceCapabilities "
        "SourceConformance StaticSource TransportConformance assert_nothing_pending cassette "
        "envelope_schema free_port hostile_schemas make_plugin plugins_of run support_table"
    ),
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
