"""The call protocol over any transport: `PendingRequestMap` makes calls, `CallHandler` serves them.

`from_remote` turns the operations of peers into operations of this process. Correlation, identity, deadlines,
cancellation, credit and the end of streams are implemented here. A transport only carries the events of
`operad_calls.protocol`.
"""

from operad.lazy import lazily

# Lazily, because finding plugins imports this package and needs no call map. Type checkers read __init__.pyi,
# which tools/references.py writes from this.
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
