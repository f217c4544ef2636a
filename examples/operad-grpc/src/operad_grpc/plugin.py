"""The plugin ``grpc``: a source and an envelope kind."""

from __future__ import annotations

from operad.plugin import EnvelopeKind, Source, SourceContext, SourceSession, hookimpl
from operad_grpc.config import GRPCConfig
from operad_grpc.envelopes import GRPCResponseMeta


async def load(config: GRPCConfig, context: SourceContext) -> SourceSession:
    """Return the operations of a server. Raises `SourceError` if it cannot be reached or described."""
    from operad_grpc.source import open_session  # grpc takes 60 ms to import

    return await open_session(config, context)


@hookimpl
def operad_sources() -> list[Source]:
    """Return the source ``grpc``."""
    return [Source("grpc", load, GRPCConfig, "gRPC services, by server reflection or a descriptor set.")]


@hookimpl
def operad_envelope_kinds() -> list[EnvelopeKind]:
    """Return the envelope kind ``grpc``."""
    return [EnvelopeKind("grpc", GRPCResponseMeta)]
