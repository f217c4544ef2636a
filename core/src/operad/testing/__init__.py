"""The conformance kit: suites to subclass, and small real parts to test with.

Nothing here is loaded by pytest on its own; an author imports what the tests use.
"""

from operad.testing._broker import BrokerConformance
from operad.testing._cassette import Cassette, cassette
from operad.testing._envelopes import EnvelopeKindCapabilities, EnvelopeKindConformance
from operad.testing._examples import ANYTHING, Example
from operad.testing._fakes import CallLog, StaticSource, make_plugin, plugins_of
from operad.testing._hostile import hostile_schemas
from operad.testing._leaks import HeldResources, assert_nothing_pending
from operad.testing._plugins import PluginConformance
from operad.testing._results import ResultStoreConformance
from operad.testing._running import run
from operad.testing._server import ServerProcess
from operad.testing._sources import SourceCapabilities, SourceConformance
from operad.testing._support import support_table
from operad.testing.transport import Participant, TransportConformance

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
    "hostile_schemas",
    "make_plugin",
    "plugins_of",
    "run",
    "support_table",
]
