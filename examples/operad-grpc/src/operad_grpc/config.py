"""The options of a ``grpc`` source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs


@attrs.frozen(kw_only=True)
class TLSConfig:
    """The options of TLS, with PEM files. Relative paths start from the folder of the configuration."""

    root_certificates: str | Path | None = None
    """The certificates to trust; default: the list of gRPC."""
    private_key: str | Path | None = None
    """The key of ``certificate_chain``."""
    certificate_chain: str | Path | None = None
    """The certificate of this client, for servers that verify clients."""
    server_name: str | None = None
    """The name that the certificate of the server must have; default: the host of the target."""


@attrs.frozen(kw_only=True)
class GRPCConfig:
    """The address of the services, and the options of calls."""

    target: str
    """A gRPC name: ``host:port``, ``dns:///host:port`` or ``unix:/path``."""
    descriptor_set: str | Path | None = None
    """A file of ``protoc --include_imports --descriptor_set_out``; default: use server reflection."""
    services: Sequence[str] | None = None
    """The full names of the services; default: all except reflection, health and channelz."""
    tls: bool | TLSConfig = False
    token: str | None = attrs.field(default=None, repr=False)
    """The token for ``authorization: Bearer …``. Requires ``tls``, unless the server is on this machine."""
    metadata: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """The metadata that are sent with each call."""
    connect_timeout: float = 10.0
    """The maximum time to connect and to get the description of the services, in seconds."""
    timeout: float = 30.0
    """The timeout of a unary call whose caller sets no deadline, in seconds."""
    max_message: int = 64 * 1024 * 1024
    """The largest message that is accepted, in bytes."""
