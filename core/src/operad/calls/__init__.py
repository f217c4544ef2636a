"""The call protocol: `PendingRequestMap` calls, `CallHandler` serves, over any transport; `from_remote`
makes operations here of what peers serve.

Correlation, identity, deadlines, cancellation, credit and the end of streams live here, once; a transport only
moves events. The events are those of `operad.protocol`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operad.calls.byhand import IncomingRequest
    from operad.calls.handler import CallHandler
    from operad.calls.identity import Verifier
    from operad.calls.inprocess import InProcessTransport
    from operad.calls.map import PendingRequestMap
    from operad.calls.remote import RemoteSession, from_remote
    from operad.calls.settings import CallSettings
    from operad.calls.tapping import Passed, tap
    from operad.protocol import CallEventMap

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

# Lazily, because who finds plugins meets the source `remote` and needs no call map for it.
_HOMES = {
    "CallEventMap": "operad.protocol",
    "CallHandler": "operad.calls.handler",
    "CallSettings": "operad.calls.settings",
    "InProcessTransport": "operad.calls.inprocess",
    "IncomingRequest": "operad.calls.byhand",
    "Passed": "operad.calls.tapping",
    "PendingRequestMap": "operad.calls.map",
    "RemoteSession": "operad.calls.remote",
    "Verifier": "operad.calls.identity",
    "from_remote": "operad.calls.remote",
    "tap": "operad.calls.tapping",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value
