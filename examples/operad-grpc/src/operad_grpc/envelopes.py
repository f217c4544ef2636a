"""The envelope kind ``grpc``."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import attrs

from operad import ResponseEnvelope


@attrs.frozen
class GRPCResponseMeta:
    """The metadata of the response of an RPC."""

    source: ClassVar[str] = "grpc"

    method: str
    """The path of the method, ``/package.Service/Method``."""
    status: str = "OK"
    """The name of the gRPC status."""
    initial_metadata: Mapping[str, list[str]] = attrs.field(factory=dict)
    """The metadata that the server sent before the response; values of ``-bin`` keys are base64."""
    trailing_metadata: Mapping[str, list[str]] = attrs.field(factory=dict)
    """The metadata that the server sent after the response; empty for the items of a stream, which precede it."""


def grpc_envelope(
    data: Any, method: str, initial: Iterable[tuple[str, str | bytes]] = (), trailing: Iterable[Any] = ()
) -> ResponseEnvelope[Any]:
    """Return an envelope of the kind ``grpc``."""
    return ResponseEnvelope(data, GRPCResponseMeta(method, "OK", readable(initial), readable(trailing)))


def readable(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, list[str]]:
    """Return gRPC metadata as JSON values: lists of texts by key, with bytes as base64."""
    found: dict[str, list[str]] = {}
    for key, value in metadata or ():
        text = base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value
        found.setdefault(key, []).append(text)
    return found
