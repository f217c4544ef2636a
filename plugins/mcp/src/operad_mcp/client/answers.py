"""Answers of a server as envelopes. Nothing that it sent is refused or lost."""

from __future__ import annotations

from typing import Any

import msgspec

from operad import ResponseEnvelope, Schema
from operad_mcp.content import ContentBlock, TextContent, as_text, in_turns, map_many_content_blocks
from operad_mcp.envelopes import mcp_envelope
from operad_mcp.wire.session import Session


async def tool_envelope(raw: Any, live: Session, text_schema: Schema | None = None) -> ResponseEnvelope[Any]:
    """The envelope of a tool's raw result.

    Args:
        raw: ``{content, structuredContent?, isError?, _meta?}``, if the server keeps to the protocol.
        live: the connection that it came by.
        text_schema: take a lone text that is JSON, and fits, as the data.
    """
    if not isinstance(raw, dict):
        raw = {"content": [TextContent.of(as_text(raw))]}
    content = await map_many_content_blocks(raw.get("content"))
    is_error = raw.get("isError") is True
    structured = raw.get("structuredContent", msgspec.UNSET)
    data = structured
    if data is msgspec.UNSET:
        data = await in_turns(ContentBlock.to_wire, content)
        if text_schema is not None and not is_error and len(content) == 1:
            data = _parsed(content[0], text_schema, data)
    return mcp_envelope(
        data,
        is_error=is_error,
        content=content,
        structured_content=structured,
        meta=meta_of(raw),
        protocol_version=live.protocol_version,
        server=live.server,
    )


def _parsed(block: Any, schema: Schema, otherwise: Any) -> Any:
    if not isinstance(block, TextContent):
        return otherwise
    try:
        value = msgspec.json.decode(block.text)
    except (msgspec.DecodeError, RecursionError):
        return otherwise
    return value if schema.is_valid(value) else otherwise


def envelope_of(
    data: Any, live: Session, *, content: Any = (), meta: Any = msgspec.UNSET
) -> ResponseEnvelope[Any]:
    """The envelope of any other answer."""
    return mcp_envelope(
        data, content=content, meta=meta, protocol_version=live.protocol_version, server=live.server
    )


def meta_of(raw: Any) -> Any:
    """``_meta`` of an answer, ``UNSET`` where there is none."""
    return raw.get("_meta", msgspec.UNSET) if isinstance(raw, dict) else msgspec.UNSET
