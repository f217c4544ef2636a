"""The envelope kind ``mcp``: what an MCP server answered, and which server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
import msgspec

from operad import ResponseEnvelope
from operad.plugin import EnvelopeKind, record
from operad_mcp.content import ContentBlock, map_mcp_content_blocks


@record(kw_only=True)
class MCPResponseMeta:
    """Metadata of an MCP server's answer."""

    source: ClassVar[str] = "mcp"

    is_error: bool = False
    """The tool says that it failed; `content` tells why."""
    content: list[ContentBlock] = attrs.field(factory=list)
    """What the server sent for people and models."""
    structured_content: Any = msgspec.UNSET
    """What it sent for programs, as it was sent; ``msgspec.UNSET`` if nothing (``None`` is a value)."""
    meta: Any = attrs.field(default=msgspec.UNSET, metadata={"wire": "_meta"})
    """``_meta`` of the answer."""
    protocol_version: str | None = None
    """The revision of the protocol, such as ``2025-11-25``."""
    server: dict[str, Any] | None = None
    """What the server says of itself: ``{name, version, …}``."""


KIND = EnvelopeKind("mcp", MCPResponseMeta, is_error=lambda meta: meta.is_error)


def mcp_envelope(
    data: Any,
    *,
    is_error: bool = False,
    content: Any = (),
    structured_content: Any = msgspec.UNSET,
    meta: Any = msgspec.UNSET,
    protocol_version: str | None = None,
    server: Mapping[str, Any] | None = None,
) -> ResponseEnvelope[Any]:
    """An envelope of kind ``mcp``.

    Args:
        data: the result; ``structured_content`` where the server sent some.
        is_error: whether the tool says that it failed.
        content: blocks, as `map_mcp_content_blocks` takes them.
        structured_content: as the server sent it.
        meta: ``_meta`` of the answer.
        protocol_version: the revision of the protocol.
        server: what the server says of itself.
    """
    return ResponseEnvelope(
        data,
        MCPResponseMeta(
            is_error=is_error,
            content=map_mcp_content_blocks(content),
            structured_content=structured_content,
            meta=meta,
            protocol_version=protocol_version,
            server=None if server is None else dict(server),
        ),
    )
