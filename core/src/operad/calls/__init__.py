"""The call protocol: `PendingRequestMap` calls, `CallHandler` serves, over any transport; `from_remote`
makes operations here of what peers serve.

Correlation, identity, deadlines, cancellation, credit and the end of streams live here, once; a transport only
moves events. The events are those of `operad.protocol`.
"""

from operad.lazy import lazily

# Lazily, because who finds plugins meets the source `remote` and needs no call map for it. Type checkers read
# __init__.pyi, which tools/references.py writes from this.
_HOMES = {
    "operad.calls.byhand": "IncomingRequest",
    "operad.calls.event_schemas": "CallEventMap",
    "operad.calls.handler": "CallHandler",
    "operad.calls.identity": "Verifier",
    "operad.calls.inprocess": "InProcessTransport",
    "operad.calls.map": "PendingRequestMap",
    "operad.calls.remote": "RemoteSession from_remote",
    "operad.calls.settings": "CallSettings",
    "operad.calls.tapping": "Passed tap",
}

__all__, __getattr__, __dir__ = lazily(__name__, _HOMES)
