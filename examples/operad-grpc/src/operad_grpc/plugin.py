"""The entry point: what this distribution contributes."""

from __future__ import annotations

from operad.plugin import EnvelopeKind, Source, SourceContext, SourceSession, hookimpl
from operad_grpc.config import GRPCConfig
from operad_grpc.envelopes import GRPCResponseMeta


async def load(config: GRPCConfig, context: SourceContext) -> SourceSession:
    """Connect and describe the services. Raises `SourceError`."""
    from operad_grpc.source import open_session  # grpc takes 60 ms to import

    return await open_session(config, context)


@hookimpl
def operad_sources() -> list[Source]:
    """The source ``grpc``."""
    return [Source("grpc", load, GRPCConfig, "gRPC services, by server reflection or a descriptor set.")]


@hookimpl
def operad_envelope_kinds() -> list[EnvelopeKind]:
    """The envelope kind ``grpc``."""
    return [EnvelopeKind("grpc", GRPCResponseMeta)]
