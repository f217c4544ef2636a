# Written by tools/references.py from the table in __init__.py.

from operad_calls.calling.map import PendingRequestMap as PendingRequestMap
from operad_calls.event_schemas import CallEventMap as CallEventMap
from operad_calls.federation.remote import RemoteSession as RemoteSession
from operad_calls.federation.remote import from_remote as from_remote
from operad_calls.inprocess import InProcessTransport as InProcessTransport
from operad_calls.serving.byhand import IncomingRequest as IncomingRequest
from operad_calls.serving.handler import CallHandler as CallHandler
from operad_calls.serving.identity import Verifier as Verifier
from operad_calls.settings import CallSettings as CallSettings
from operad_calls.tapping import Passed as Passed
from operad_calls.tapping import tap as tap

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
