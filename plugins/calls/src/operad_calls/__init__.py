"""The call protocol over any transport: `PendingRequestMap` calls, `CallHandler` serves.

`from_remote` makes operations here of what peers serve. Correlation, identity, deadlines, cancellation, credit and
the end of streams live here, once; a transport only moves events, which are those of `operad_calls.protocol`.
"""

from operad.lazy import lazily

# Lazily, because who finds plugins meets the source `remote` and needs no call map for it. Type checkers read
# __init__.pyi, which tools/references.py writes from this.
_HOMES = {
    "operad_calls.serving.byhand": "IncomingRequest",
    "operad_calls.event_schemas": "CallEventMap",
    "operad_calls.serving.handler": "CallHandler",
    "operad_calls.serving.identity": "Verifier",
    "operad_calls.inprocess": "InProcessTransport",
    "operad_calls.calling.map": "PendingRequestMap",
    "operad_calls.federation.remote": "RemoteSession from_remote",
    "operad_calls.settings": "CallSettings",
    "operad_calls.tapping": "Passed tap",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
