"""The NATS transport of operad: calls across machines, balanced by queue groups."""

from __future__ import annotations

from operad_nats.config import NATSConfig
from operad_nats.transport import NATSTransport

__all__ = ["NATSConfig", "NATSTransport"]
