"""The envelope kind ``mcp``, for the responses of MCP servers."""

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
    """The metadata of an MCP server's response."""

    source: ClassVar[str] = "mcp"

    is_error: bool = False
    """Whether the tool reports that it failed; `content` then has the reason."""
    content: list[ContentBlock] = attrs.field(factory=list)
    """The content blocks that the server sent, for people and models."""
    structured_content: Any = msgspec.UNSET
    """The structured content for programs, unchanged. ``msgspec.UNSET`` if the server sent none, because ``None``
    is a value.
    """
    meta: Any = attrs.field(default=msgspec.UNSET, metadata={"wire": "_meta"})
    """The object ``_meta`` of the response; ``msgspec.UNSET`` if the server sent none."""
    protocol_version: str | None = None
    """The revision of the protocol, such as ``2025-11-25``."""
    server: dict[str, Any] | None = None
    """The server's description of itself: ``{name, version, …}``."""


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
    """Return an envelope of kind ``mcp``.

    Args:
        data: the result, usually the same as ``structured_content``.
        is_error: whether the tool reports that it failed.
        content: blocks, as `map_mcp_content_blocks` accepts them.
        structured_content: the structured content that the server sent; ``msgspec.UNSET`` if it sent none.
        meta: ``_meta`` of the response; ``msgspec.UNSET`` if it is missing.
        protocol_version: the revision of the protocol, or ``None`` if it is unknown.
        server: the server's description of itself, or ``None``.
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
