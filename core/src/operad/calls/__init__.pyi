# Written by tools/references.py from the table in __init__.py.

from operad.calls.byhand import IncomingRequest as IncomingRequest
from operad.calls.event_schemas import CallEventMap as CallEventMap
from operad.calls.handler import CallHandler as CallHandler
from operad.calls.identity import Verifier as Verifier
from operad.calls.inprocess import InProcessTransport as InProcessTransport
from operad.calls.map import PendingRequestMap as PendingRequestMap
from operad.calls.remote import RemoteSession as RemoteSession
from operad.calls.remote import from_remote as from_remote
from operad.calls.settings import CallSettings as CallSettings
from operad.calls.tapping import Passed as Passed
from operad.calls.tapping import tap as tap

__all__ = [
    "CallEventMap",
    "CallHandler",
    "CallSettings",
    "InProcessTransport",
    "IncomingRequest",
    "Passed",
    "PendingRequestMap",
    "RemoteSession",
    "Verifier",
    "from_remote",
    "tap",
]
