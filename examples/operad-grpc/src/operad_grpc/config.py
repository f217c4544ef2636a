"""The options of a ``grpc`` source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs


@attrs.frozen(kw_only=True)
class TLSConfig:
    """TLS, with files in PEM form; relative paths start from the configuration's folder."""

    root_certificates: str | Path | None = None
    """Whom to trust; default: gRPC's own list."""
    private_key: str | Path | None = None
    """With ``certificate_chain``: who we are, for mutual TLS."""
    certificate_chain: str | Path | None = None
    server_name: str | None = None
    """The name to expect in the server's certificate, where it is not the target's."""


@attrs.frozen(kw_only=True)
class GRPCConfig:
    """Where the services are, and how to call them."""

    target: str
    """A gRPC name: ``host:port``, ``dns:///host:port``, ``unix:/path``."""
    descriptor_set: str | Path | None = None
    """A file of ``protoc --include_imports --descriptor_set_out``; default: ask the server's reflection."""
    services: Sequence[str] | None = None
    """Full names of the services to take; default: all but reflection, health and channelz."""
    tls: bool | TLSConfig = False
    token: str | None = attrs.field(default=None, repr=False)
    """Sent as ``authorization: Bearer …``; only with ``tls``, or to this machine."""
    metadata: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Sent with each call."""
    connect_timeout: float = 10.0
    """Seconds that describing the services may take."""
    timeout: float = 30.0
    """Seconds for a unary call without a deadline of its own."""
    max_message: int = 64 * 1024 * 1024
    """The largest message that is accepted, in bytes."""
