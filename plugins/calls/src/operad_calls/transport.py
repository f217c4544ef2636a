"""The public names for authors of transports, in addition to those of `operad.plugin`."""

from operad_calls import protocol
from operad_calls.broker import BrokerLink
from operad_calls.event_schemas import FrameCheck
from operad_calls.memory import keep_memory
from operad_calls.protocol import ProtocolError, decode, encode
from operad_calls.reports import Allowance, Reports
from operad_calls.unusable import Unreadable, unreadable

__all__ = [
    "Allowance",
    "BrokerLink",
    "FrameCheck",
    "ProtocolError",
    "Reports",
    "Unreadable",
    "decode",
    "encode",
    "keep_memory",
    "protocol",
    "unreadable",
]
