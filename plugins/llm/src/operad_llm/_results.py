"""Convert results and errors of calls to the formats of model APIs."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import attrs

from operad import CallError, ResponseEnvelope
from operad.wire import to_json

Json = dict[str, Any]

_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The image types that every format with images supports."""
MAX_CHARS = 200_000
"""The maximum number of characters of a result that a model receives."""


@attrs.frozen
class Outcome:
    """The outcome of a call, before it is converted to the format of an API."""

    blocks: tuple[Json, ...]
    """Content blocks of MCP: ``text``, ``image``, and others."""
    data: Any = None
    """The result, or ``{"error": …}`` of a failed call; ``None`` for bytes and for errors of MCP tools."""
    is_error: bool = False

    @property
    def text(self) -> str:
        """The outcome as text. Each block without text, such as an image, is named in brackets."""
        return "\n".join(_text(block) for block in self.blocks)


def outcome_of(envelope: ResponseEnvelope[Any]) -> Outcome:
    """Return the outcome of a call that returned an envelope. Raises `CallError` if its data have no JSON form."""
    meta, data = envelope.meta, envelope.data
    content = getattr(meta, "content", None)
    if isinstance(content, list) and getattr(meta, "source", "") == "mcp":
        is_error = getattr(meta, "is_error", False) is True
        return Outcome(tuple(block.to_wire() for block in content), None if is_error else data, is_error)
    if isinstance(data, (bytes, bytearray, memoryview)):
        found = getattr(meta, "content_type", None)
        mime = found.partition(";")[0].strip().lower() if isinstance(found, str) else ""
        encoded = base64.b64encode(bytes(data)).decode()
        if mime in _PICTURES:
            return Outcome(({"type": "image", "data": encoded, "mimeType": mime},))
        return Outcome((_told(f"[{len(data)} bytes of {mime or 'unknown type'}]"),))
    text = data if isinstance(data, str) else to_json(data).decode()
    return Outcome((_told(text),), data)


def failure_of(error: CallError) -> Outcome:
    """Return the outcome of a call that failed with ``error``."""
    wire = {"error": error.to_wire()}
    return Outcome((_told(to_json(wire).decode()),), wire, is_error=True)


def _told(text: str) -> Json:
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}\n[{len(text) - MAX_CHARS} characters more]"
    return {"type": "text", "text": text}


def _text(block: Json) -> str:
    if block.get("type") == "text":
        return str(block.get("text", ""))
    resource = block.get("resource")
    if isinstance(resource, Mapping) and isinstance(resource.get("text"), str):
        return str(resource["text"])
    if block.get("type") == "resource_link":
        return f"[{block.get('name')}: {block.get('uri')}]"
    kind = block.get("mimeType") or (resource or {}).get("mimeType") or "unknown type"
    return f"[{block.get('type')} of {kind}, which this model is not shown]"


def _is_picture(block: Json) -> bool:
    return block.get("type") == "image" and block.get("mimeType") in _PICTURES


def openai_result(call_id: str, name: str, outcome: Outcome) -> Json:
    """Return the result of a call as a ``tool`` message of chat completions; all blocks become text."""
    return {"role": "tool", "tool_call_id": call_id, "content": outcome.text}


def responses_result(call_id: str, name: str, outcome: Outcome) -> Json:
    """Return the result of a call as an item ``function_call_output`` of the Responses API."""
    output: Any = outcome.text
    if any(map(_is_picture, outcome.blocks)):
        output = [
            {"type": "input_image", "image_url": f"data:{block['mimeType']};base64,{block['data']}"}
            if _is_picture(block)
            else {"type": "input_text", "text": _text(block)}
            for block in outcome.blocks
        ]
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def anthropic_result(call_id: str, name: str, outcome: Outcome) -> Json:
    """Return the result of a call as a block ``tool_result`` for the next message of the user."""
    content: Any = outcome.text
    if any(map(_is_picture, outcome.blocks)):
        content = [
            {"type": "image", "source": {"type": "base64", "media_type": block["mimeType"], "data": block["data"]}}
            if _is_picture(block)
            else {"type": "text", "text": _text(block)}
            for block in outcome.blocks
        ]
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": outcome.is_error}


def gemini_result(call_id: str, name: str, outcome: Outcome) -> Json:
    """Return the result of a call as a part ``functionResponse`` for the next content of the conversation."""
    if outcome.is_error:
        error = (
            outcome.data["error"] if isinstance(outcome.data, dict) and "error" in outcome.data else outcome.text
        )
        response: Json = {"error": error}
    else:
        value = outcome.data if outcome.data is not None and len(outcome.text) <= MAX_CHARS else outcome.text
        response = {"output": value}
    made: Json = {"name": name, "response": response}
    if call_id:
        made["id"] = call_id
    pictures = [block for block in outcome.blocks if _is_picture(block)]
    if pictures:
        made["parts"] = [
            {"inlineData": {"mimeType": block["mimeType"], "data": block["data"]}} for block in pictures
        ]
    return {"functionResponse": made}


def mcp_result(call_id: str, name: str, outcome: Outcome) -> Json:
    """Return the result of a call as a ``CallToolResult`` of MCP."""
    made: Json = {"content": list(outcome.blocks), "isError": outcome.is_error}
    if not isinstance(outcome.data, dict):
        return made
    if outcome.is_error and "error" in outcome.data:  # structured content would have to match the output schema
        return {**made, "_meta": {"operad/error": outcome.data["error"]}}
    return {**made, "structuredContent": outcome.data}
