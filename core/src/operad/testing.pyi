# Written by tools/references.py from the table in testing.py.

from operad_testing import ANYTHING as ANYTHING
from operad_testing import BrokerConformance as BrokerConformance
from operad_testing import CallLog as CallLog
from operad_testing import Cassette as Cassette
from operad_testing import EnvelopeKindCapabilities as EnvelopeKindCapabilities
from operad_testing import EnvelopeKindConformance as EnvelopeKindConformance
from operad_testing import Example as Example
from operad_testing import HeldResources as HeldResources
from operad_testing import Participant as Participant
from operad_testing import PluginConformance as PluginConformance
from operad_testing import ResultStoreConformance as ResultStoreConformance
from operad_testing import ServerProcess as ServerProcess
from operad_testing import SourceCapabilities as SourceCapabilities
from operad_testing import SourceConformance as SourceConformance
from operad_testing import StaticSource as StaticSource
from operad_testing import TransportConformance as TransportConformance
from operad_testing import assert_nothing_pending as assert_nothing_pending
from operad_testing import cassette as cassette
from operad_testing import envelope_schema as envelope_schema
from operad_testing import free_port as free_port
from operad_testing import hostile_schemas as hostile_schemas
from operad_testing import make_plugin as make_plugin
from operad_testing import plugins_of as plugins_of
from operad_testing import run as run
from operad_testing import support_table as support_table

__all__ = [
    "ANYTHING",
    "BrokerConformance",
    "CallLog",
    "Cassette",
    "EnvelopeKindCapabilities",
    "EnvelopeKindConformance",
    "Example",
    "HeldResources",
    "Participant",
    "PluginConformance",
    "ResultStoreConformance",
    "ServerProcess",
    "SourceCapabilities",
    "SourceConformance",
    "StaticSource",
    "TransportConformance",
    "assert_nothing_pending",
    "cassette",
    "envelope_schema",
    "free_port",
    "hostile_schemas",
    "make_plugin",
    "plugins_of",
    "run",
    "support_table",
]
