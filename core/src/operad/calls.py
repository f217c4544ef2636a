"""The call protocol: `PendingRequestMap` calls, `CallHandler` serves, over any transport; `from_remote`
makes operations here of what peers serve.

Correlation, identity, deadlines, cancellation, credit and the end of streams live here, once; a transport only
moves events. The events are those of `operad.protocol`.
"""

from operad._federation import RemoteSession, from_remote
from operad._incoming import IncomingRequest
from operad._pending import PendingRequestMap
from operad._serving import CallHandler, Verifier
from operad.protocol import CallEventMap

__all__ = [
    "CallEventMap",
    "CallHandler",
    "IncomingRequest",
    "PendingRequestMap",
    "RemoteSession",
    "Verifier",
    "from_remote",
]
