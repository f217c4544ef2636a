# Written by tools/references.py from the table in __init__.py.

from operad_testing._broker import BrokerConformance as BrokerConformance
from operad_testing._cassette import Cassette as Cassette
from operad_testing._cassette import cassette as cassette
from operad_testing._envelope_schema import envelope_schema as envelope_schema
from operad_testing._envelopes import EnvelopeKindCapabilities as EnvelopeKindCapabilities
from operad_testing._envelopes import EnvelopeKindConformance as EnvelopeKindConformance
from operad_testing._examples import ANYTHING as ANYTHING
from operad_testing._examples import Example as Example
from operad_testing._fakes import CallLog as CallLog
from operad_testing._fakes import StaticSource as StaticSource
from operad_testing._fakes import make_plugin as make_plugin
from operad_testing._fakes import plugins_of as plugins_of
from operad_testing._hostile import hostile_schemas as hostile_schemas
from operad_testing._leaks import HeldResources as HeldResources
from operad_testing._leaks import assert_nothing_pending as assert_nothing_pending
from operad_testing._plugins import PluginConformance as PluginConformance
from operad_testing._results import ResultStoreConformance as ResultStoreConformance
from operad_testing._running import run as run
from operad_testing._server import ServerProcess as ServerProcess
from operad_testing._server import free_port as free_port
from operad_testing._sources import SourceCapabilities as SourceCapabilities
from operad_testing._sources import SourceConformance as SourceConformance
from operad_testing._support import support_table as support_table
from operad_testing.transport import Participant as Participant
from operad_testing.transport import TransportConformance as TransportConformance

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
