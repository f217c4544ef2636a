"""Envelopes and errors as results of tools, resources and prompts. Needs no SDK."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from operad import CallError, ResponseEnvelope
from operad.wire import to_json
from operad_mcp.envelopes import MCPResponseMeta
from operad_mcp.server.forms import WRAPPED, ToolForm
from operad_mcp.server.kinds import Json

MAX_DEPTH = 100
"""How deep structured data may be; what is deeper is text alone, because the SDKs' models refuse it."""


def text_block(text: str) -> Json:
    """A block of text."""
    return {"type": "text", "text": text}


def tool_result(envelope: ResponseEnvelope[Any], form: ToolForm, *, handshake: bool) -> Json:
    """The result of a tool: blocks for people and models, structured content for programs.

    Raises:
        CallError: ``SERIALIZATION_ERROR``, data that JSON cannot hold.
    """
    meta = envelope.meta
    if isinstance(meta, MCPResponseMeta):
        return _passed_on(meta, envelope.data, form, handshake=handshake)
    data = envelope.data
    if isinstance(data, (bytes, bytearray, memoryview)):
        content, data = binary_block(bytes(data), meta)
    else:
        content = text_block(data if isinstance(data, str) else to_json(data).decode())
        if isinstance(data, str):
            to_json(data)  # half a surrogate pair has no JSON form
    if form.declares_output and not form.spec.output_schema.is_valid(data):
        return _mismatch(content, form)
    return {"content": [content], **_structured(data, form, handshake=handshake)}


def data_result(data: Json) -> Json:
    """Return an object as the result of a tool."""
    return {"content": [text_block(to_json(data).decode())], "structuredContent": data}


def stream_result(items: list[Any], *, truncated: bool) -> Json:
    """The result of a subscription that was called as a tool."""
    return data_result({"items": items, "truncated": truncated})


def error_result(error: CallError) -> Json:
    """The result that says that a call failed: for the model in words, for programs with code and details."""
    wire = error.to_wire()
    text = error.message or error.code
    details = error.details
    if isinstance(details, Mapping):
        details = {key: value for key, value in details.items() if value != error.message}
    if details:
        text = f"{text}\n{to_json(details).decode()[:4_000]}"
    prefix = "" if error.code == "EXECUTION_ERROR" else f"{error.code}: "
    return {"content": [text_block(prefix + text)], "structuredContent": {"error": wire}, "isError": True}


def binary_block(data: bytes, meta: Any) -> tuple[Json, str]:
    """A block of bytes, of the media type that their envelope tells, and the bytes in base64."""
    encoded = base64.b64encode(data).decode()
    found = getattr(meta, "content_type", None)
    mime = found.partition(";")[0].strip().lower() if isinstance(found, str) else ""
    kind = mime.partition("/")[0]
    if kind in ("image", "audio"):
        return {"type": kind, "data": encoded, "mimeType": mime}, encoded
    resource = {"uri": "operad:result", "mimeType": mime or "application/octet-stream", "blob": encoded}
    return {"type": "resource", "resource": resource}, encoded


def resource_contents(envelope: ResponseEnvelope[Any], uri: str, mime: str | None) -> list[Any]:
    """The contents of a resource. Raises `CallError` ``SERIALIZATION_ERROR``."""
    meta, data = envelope.meta, envelope.data
    if isinstance(meta, MCPResponseMeta):
        return [block.to_wire()["resource"] for block in meta.content if block.type == "resource"]
    found: Json = {"uri": uri}
    if isinstance(data, (bytes, bytearray, memoryview)):
        found["blob"] = base64.b64encode(bytes(data)).decode()
        mime = mime or "application/octet-stream"
    elif isinstance(data, str):
        found["text"] = data
    else:
        found["text"] = to_json(data).decode()
        mime = mime or "application/json"
    if mime:
        found["mimeType"] = mime
    return [found]


def prompt_result(envelope: ResponseEnvelope[Any], description: str) -> Json:
    """The messages of a prompt: given as such, or as the text of one.

    Raises:
        CallError: ``SERIALIZATION_ERROR``
    """
    data = envelope.data
    messages = data.get("messages") if isinstance(data, Mapping) else data
    if isinstance(messages, list) and all(isinstance(message, Mapping) for message in messages):
        made: Json = {"messages": messages}
        if isinstance(data, Mapping) and isinstance(data.get("description"), str):
            description = data["description"]
    else:
        text = data if isinstance(data, str) else to_json(data).decode()
        made = {"messages": [{"role": "user", "content": text_block(text)}]}
    return {**made, "description": description} if description else made


def _passed_on(meta: MCPResponseMeta, data: Any, form: ToolForm, *, handshake: bool) -> Json:
    """What another MCP server answered, as it was."""
    made: Json = {"content": [block.to_wire() for block in meta.content]}
    if isinstance(meta.meta, Mapping):
        made["_meta"] = dict(meta.meta)
    if meta.is_error:
        structured = meta.structured_content
        if isinstance(structured, Mapping):
            made["structuredContent"] = structured
        return {**made, "isError": True}
    if meta.structured_content is not msgspec.UNSET:
        made.update(_structured(meta.structured_content, form, handshake=handshake))
    elif form.declares_output and form.spec.output_schema.is_valid(data):
        made.update(_structured(data, form, handshake=handshake))
    return made


def _structured(data: Any, form: ToolForm, *, handshake: bool) -> Json:
    if _deeper(data, MAX_DEPTH):
        return {}
    if form.wraps_output:
        return {"structuredContent": {WRAPPED: data}}
    if data is None or (handshake and not isinstance(data, dict)):
        return {}
    return {"structuredContent": data}


def _mismatch(content: Json, form: ToolForm) -> Json:
    """Clients refuse a whole result whose structure is not what was declared, and with it what the call did."""
    text = (
        "The operation ran and answered what follows. It is marked as an error only because it does not match "
        f"the output schema that {form.spec.id} declares."
    )
    return {"content": [text_block(text), content], "isError": True}


def _deeper(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth == 0 or any(_deeper(item, depth - 1) for item in value.values())
    if isinstance(value, (list, tuple)):
        return depth == 0 or any(_deeper(item, depth - 1) for item in value)
    return False
