"""The operations for resources and their templates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from uritemplate import URITemplate

from operad import CallError, ErrorCode, OperationContext, OperationType, ResponseEnvelope
from operad_mcp.client.items import AnyOperation, Json, Maker, envelope_of, meta_of, nested

_URI: Json = {"type": "string", "description": "The URI of the resource."}
_URI_INPUT: Json = {
    "type": "object", "properties": {"uri": _URI}, "required": ["uri"], "additionalProperties": False,
}  # fmt: skip
_CONTENTS: Json = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"uri": {"type": "string"}, "mimeType": {"type": "string"}, "text": {"type": "string"},
                       "blob": {"type": "string", "contentEncoding": "base64"}},
        "required": ["uri"],
    },
}  # fmt: skip


class Resources:
    """Converts the resources and resource templates of an MCP server to operations."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker

    def fixed(self, capabilities: Json) -> list[AnyOperation]:
        """Return the operations that list, read and, if the server supports it, watch resources."""
        make = self._maker.fixed
        what = "The contents of a resource."
        read = make("resources.read", self._read_one, what, input_schema=_URI_INPUT, output_schema=_CONTENTS)
        operations = [self._maker.lister("resources"), read]
        if nested(capabilities, "resources", "subscribe"):
            what = "An item whenever a resource changes; read it to see how."
            operations.append(
                make(
                    "resources.subscribe", self._subscribe, what, type=OperationType.SUBSCRIPTION,
                    input_schema=_URI_INPUT,
                    output_schema={"type": "object", "properties": {"uri": _URI}, "required": ["uri"]},
                )
            )  # fmt: skip
        return operations

    async def _read_one(self, input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
        return await self._read(input["uri"], "resources.read", context)

    async def _subscribe(self, input: Any, context: OperationContext) -> AsyncIterator[ResponseEnvelope[Any]]:
        connection = await self._maker.connection_of(context)
        updates = connection.watch_resource(input["uri"])
        try:
            async for update in updates:
                yield envelope_of(update, await connection.open())
        finally:
            await updates.aclose()

    def template(self, template: Json) -> AnyOperation:
        """Return the operation that reads the resources of a template.

        Raises `KeyError`, `TypeError` or `ValueError` if the server sent an invalid template.
        """
        pattern = template["uriTemplate"]
        if not isinstance(pattern, str):
            raise TypeError(f"uriTemplate: expected a string, got {type(pattern).__name__}")
        names = variables(pattern)
        name = f"resources.templates.{template['name']}"

        async def read(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            return await self._read(expand(pattern, input), name, context)

        strings: Json = {"type": ["string", "array", "integer", "number"], "items": {"type": "string"}}
        return self._maker.item(
            "resourceTemplate",
            template,
            name,
            read,
            f"The contents of {pattern}.",
            input_schema={
                "type": "object",
                "properties": dict.fromkeys(names, strings),
                "required": [name for name, required in names.items() if required],
                "additionalProperties": False,
            },
            output_schema=_CONTENTS,
        )

    async def _read(self, uri: str, name: str, context: OperationContext) -> ResponseEnvelope[Any]:
        raw, live = await self._maker.ask("resources/read", {"uri": uri}, context, name=name)
        found = raw.get("contents") if isinstance(raw, dict) else None
        contents = found if isinstance(found, list) else []
        blocks = [{"type": "resource", "resource": item} for item in contents]
        return envelope_of(contents, live, content=blocks, meta=meta_of(raw))


# --- URI templates (RFC 6570) ------------------------------------------------------------------


def variables(template: str) -> dict[str, bool]:
    """Return the variables of a template in order, each with True if it is required.

    The variables of a query (``{?…}``, ``{&…}``) are optional. Raises `ValueError` if a variable has no name.
    """
    names: dict[str, bool] = {}
    for expression in URITemplate(template).variables:
        for name in expression.variable_names:
            names[name] = names.get(name, False) or expression.operator.value not in ("?", "&")
    if "{}" in template or "" in names:
        raise ValueError(f"uriTemplate: expected a name for each variable, got {template!r:.200}")
    return names


def expand(template: str, values: Mapping[str, Any]) -> str:
    """Return the URI of a template with values. Variables without a value are left out.

    Values are encoded (RFC 6570). Only values of ``{+…}`` and ``{#…}`` may contain reserved characters like ``/``.

    Raises:
        CallError: ``VALIDATION_ERROR`` if a value has the segment ``.`` or ``..``, which would change the path.
    """
    parsed = URITemplate(template)
    texts = {name: list(map(str, one)) if isinstance(one, list) else str(one) for name, one in values.items()}
    for expression in parsed.variables:
        for name, modifiers in expression.variables:
            found = texts.get(name, [])
            for text in found if isinstance(found, list) else [found[: modifiers["prefix"]]]:
                segments = text.split("/") if expression.operator.value in ("+", "#") else [text]
                if "." in segments or ".." in segments:
                    message = f"{name}: expected a value without the segments . and .., got {text!r:.100}"
                    details = {"errors": [{"path": f"$.{name}", "message": message}]}
                    raise CallError(ErrorCode.VALIDATION_ERROR, message, details)
    return parsed.expand({name: text for name, text in texts.items() if text != []})
