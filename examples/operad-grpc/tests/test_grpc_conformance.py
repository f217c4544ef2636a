"""operad-grpc against operad's conformance kit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from loft import serve_loft
from operad_grpc import GRPCResponseMeta

from operad_testing import (
    EnvelopeKindConformance,
    Example,
    PluginConformance,
    SourceCapabilities,
    SourceConformance,
)


class TestSource(SourceConformance):
    source = "grpc"
    capabilities = SourceCapabilities(subscriptions=True, envelope_kind="grpc")
    example = Example("Loft.SendBird", {"ring": "a", "city": "Rome"}, data={"ring": "a", "to": "Rome"})
    invalid = Example("Loft.SendBird", {"ring": 3})
    stream = Example(
        "Loft.WatchBirds",
        {"count": 2},
        data=[
            {"ring": ring, "feathers": "0", "colour": "COLOUR_UNSPECIFIED", "chicks": []} for ring in ("0", "1")
        ],
    )
    failing = Example("Loft.GetBird", {"ring": "lost"}, error="EXECUTION_ERROR")
    slow = Example("Loft.SendBird", {"sleepMs": 60_000})
    broken = (
        {"target": "127.0.0.1:1", "connect_timeout": 5},
        {"services": ["loft.v1.Nobody"]},
        {"descriptor_set": "/no/such/file"},
        {"target": "example.com:443"},  # a token in clear
    )
    secrets = ("s3cret-token", "s3cret-key")

    @asynccontextmanager
    async def environment(self) -> AsyncIterator[Mapping[str, Any]]:
        async with serve_loft() as (target, _):
            yield {"target": target, "token": "s3cret-token", "metadata": {"x-key": "s3cret-key"}}


class TestEnvelopeKind(EnvelopeKindConformance):
    kind_source = "grpc"
    examples = (
        GRPCResponseMeta("/a.B/C"),
        GRPCResponseMeta("/a.B/C", "OK", {"a": ["1", "2"]}, {"b-bin": ["AAE="]}),
    )


class TestPlugin(PluginConformance):
    distribution = "operad-grpc"
    contributes = {"sources": ["grpc"], "envelope_kinds": ["grpc"]}
