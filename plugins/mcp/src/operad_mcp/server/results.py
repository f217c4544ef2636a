"""The results of tools, resources and prompts, made without the SDK from envelopes and errors."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from operad import CallError, ErrorCode, ResponseEnvelope
from operad.wire import to_json
from operad_mcp.envelopes import MCPResponseMeta
from operad_mcp.server.forms import WRAPPED, ToolForm
from operad_mcp.server.kinds import Json

MAX_DEPTH = 100
"""The maximum depth of structured data. Deeper data is sent as text only, because the SDKs' models reject it."""
_ERROR = "operad/error"
"""The key of ``_meta`` for the error of a call, because structured content has to match the output schema."""
_ERROR_TEXT = 4_000
"""The maximum number of characters of an error's message, and of its details, in a result."""


def text_block(text: str) -> Json:
    """Return a text as a content block."""
    return {"type": "text", "text": text}


def tool_result(envelope: ResponseEnvelope[Any], form: ToolForm, *, handshake: bool) -> Json:
    """Return an envelope as the result of a tool: blocks for people and models, structured content for programs.

    Data that does not match the output schema is marked as an error.

    Raises:
        CallError: ``SERIALIZATION_ERROR`` for data without a JSON form.
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
            to_json(data)  # a lone surrogate has no JSON form
    if form.declares_output and not form.spec.output_schema.is_valid(data):
        return _mismatch(content, form)
    return {"content": [content], **_structured(data, form, handshake=handshake)}


def data_result(data: Json) -> Json:
    """Return an object as the result of a tool, as text and as structured content."""
    return {"content": [text_block(to_json(data).decode())], "structuredContent": data}


def stream_result(items: list[Any], *, truncated: bool) -> Json:
    """Return the items of a subscription, and whether it was ended early (``truncated``), as a tool's result."""
    return data_result({"items": items, "truncated": truncated})


def error_result(error: CallError) -> Json:
    """Return the result of a call that failed: text for the model, and ``_meta`` with the error for programs."""
    text, details = (error.message or error.code)[:_ERROR_TEXT], error.details
    if isinstance(details, Mapping):
        details = {key: details[key] for key in details if key != "headers"}  # HTTP headers are useless to a model
    wire = {"code": error.code, "message": text, **({} if details is None else {"details": details})}
    if isinstance(details, Mapping):
        details = {key: value for key, value in details.items() if value != error.message}
    if details:
        written = to_json(details).decode()
        text = f"{text}\n{written[:_ERROR_TEXT]}"
        if len(written) > _ERROR_TEXT:
            del wire["details"]
    prefix = "" if error.code == ErrorCode.EXECUTION_ERROR else f"{error.code}: "
    return {"content": [text_block(prefix + text)], "_meta": {_ERROR: wire}, "isError": True}


def bounded(result: Json, limit: int, *, declares_output: bool) -> Json:
    """Return a result of at most about ``limit`` bytes.

    Structured content and text are usually the same data. If both are too large together, a tool with an output
    schema keeps the structured content. Any other tool, or an error, keeps the text, which is cut at the limit. If
    structured content that is kept is too large, the result is an error: cut data would not match the schema.
    """
    size = len(to_json(result))
    if size <= limit:
        return result
    structured, failed = result.get("structuredContent"), result.get("isError") is True
    if declares_output and not failed:
        others = [block for block in result["content"] if block["type"] != "text"]
        slim = {**result, "content": [text_block("The result is in structuredContent."), *others]}
        is_small = structured is not None and len(to_json(slim)) <= limit
        return slim if is_small else error_result(_too_large(size, limit))
    content = result["content"] or [text_block(to_json(structured).decode())]
    kept = _cut(content, limit)
    what = "structuredContent is left out" if kept == content else f"{len(kept)} of {len(content)} blocks are left"
    note = f"[cut: the result has {size} bytes, result_bytes allows {limit}; {what}]"
    return {"content": [*kept, text_block(note)], **({"isError": True} if failed else {})}


def within(made: Json, limit: int) -> Json:
    """Return ``made``, the result of a resource or a prompt, if its JSON has at most ``limit`` bytes.

    Raises `CallError` (``PAYLOAD_TOO_LARGE``) if it has more.
    """
    size = len(to_json(made))
    if size > limit:
        raise _too_large(size, limit)
    return made


def _too_large(size: int, limit: int) -> CallError:
    message = f"the operation ran, but its result has {size} bytes; expected at most {limit} (result_bytes)"
    return CallError(ErrorCode.PAYLOAD_TOO_LARGE, message, {"message": message})


def _cut(content: list[Json], limit: int) -> list[Json]:
    """Return the blocks that fit into ``limit`` bytes. The text that crosses the limit is cut there."""
    kept: list[Json] = []
    for block in content:
        size = len(to_json(block))
        if size > limit:
            text = block.get("text") if block["type"] == "text" else None
            while text and (written := len(to_json(text))) > limit:  # characters that JSON escapes take more bytes
                text = text[: len(text) * limit // written]
            return [*kept, text_block(text)] if text else kept
        kept.append(block)
        limit -= size
    return kept


def binary_block(data: bytes, meta: Any) -> tuple[Json, str]:
    """Return a content block with ``data``, and ``data`` in base64.

    The media type is ``meta.content_type``, or ``application/octet-stream`` if it is missing.
    """
    encoded = base64.b64encode(data).decode()
    found = getattr(meta, "content_type", None)
    mime = found.partition(";")[0].strip().lower() if isinstance(found, str) else ""
    kind = mime.partition("/")[0]
    if kind in ("image", "audio"):
        return {"type": kind, "data": encoded, "mimeType": mime}, encoded
    resource = {"uri": "operad:result", "mimeType": mime or "application/octet-stream", "blob": encoded}
    return {"type": "resource", "resource": resource}, encoded


def resource_contents(envelope: ResponseEnvelope[Any], uri: str, mime: str | None) -> list[Any]:
    """Return an envelope as the contents of the resource ``uri``, with the media type ``mime``.

    If ``mime`` is ``None``, the media type is ``application/octet-stream`` for bytes, is left out for text, and is
    ``application/json`` for other data. The contents of another MCP server's response are returned unchanged.

    Raises:
        CallError: ``SERIALIZATION_ERROR`` for data without a JSON form.
    """
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
    """Return an envelope as the result of a prompt: the messages in its data, else one message with its data.

    ``description`` is used unless the data has a description.

    Raises:
        CallError: ``SERIALIZATION_ERROR`` for data without a JSON form.
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
    """Return another MCP server's result unchanged."""
    made: Json = {"content": [block.to_wire() for block in meta.content]}
    if isinstance(meta.meta, Mapping):
        made["_meta"] = dict(meta.meta)
    if meta.is_error:
        structured = meta.structured_content
        if isinstance(structured, Mapping) and form.declares_output:  # it may not match the schema
            made["_meta"] = {**made.get("_meta", {}), _ERROR: structured}
        elif isinstance(structured, Mapping):
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
    """Return a result that is marked as an error, because clients reject data that does not match the schema."""
    text = (
        "The operation ran and returned what follows. It is marked as an error only because it does not match "
        f"the output schema that {form.spec.id} declares."
    )
    return {"content": [text_block(text), content], "isError": True}


def _deeper(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth == 0 or any(_deeper(item, depth - 1) for item in value.values())
    if isinstance(value, (list, tuple)):
        return depth == 0 or any(_deeper(item, depth - 1) for item in value)
    return False
