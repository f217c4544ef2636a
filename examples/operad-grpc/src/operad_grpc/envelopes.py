"""The envelope kind ``grpc``."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import attrs

from operad import ResponseEnvelope


@attrs.frozen
class GRPCResponseMeta:
    """Metadata of the answer of an RPC."""

    source: ClassVar[str] = "grpc"

    method: str
    """``/package.Service/Method``"""
    status: str = "OK"
    """The name of the gRPC status."""
    initial_metadata: Mapping[str, list[str]] = attrs.field(factory=dict)
    """What the server sent before the answer; values of ``-bin`` keys in base64."""
    trailing_metadata: Mapping[str, list[str]] = attrs.field(factory=dict)
    """What the server sent after the answer; empty for the items of a stream, which come before it."""


def grpc_envelope(
    data: Any, method: str, initial: Iterable[tuple[str, str | bytes]] = (), trailing: Iterable[Any] = ()
) -> ResponseEnvelope[Any]:
    """An envelope of kind ``grpc``."""
    return ResponseEnvelope(data, GRPCResponseMeta(method, "OK", readable(initial), readable(trailing)))


def readable(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, list[str]]:
    """gRPC metadata as JSON can hold them."""
    found: dict[str, list[str]] = {}
    for key, value in metadata or ():
        text = base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value
        found.setdefault(key, []).append(text)
    return found
