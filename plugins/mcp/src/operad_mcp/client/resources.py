"""Resources and their templates as operations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from operad import OperationContext, OperationType, ResponseEnvelope
from operad_mcp.client.answers import envelope_of, meta_of
from operad_mcp.client.items import (
    ITEMS,
    NOTHING,
    AnyOperation,
    Json,
    Maker,
    all_pages,
    fixed_kind,
    metadata_of,
    nested,
    text_of,
)
from operad_mcp.client.templates import expand, variables

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
        "additionalProperties": True,
    },
}  # fmt: skip


class Resources:
    """Makes operations of resources."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker

    def fixed(self, capabilities: Json) -> list[AnyOperation]:
        """To list resources, to read one, and to watch one where the server offers that."""
        query, make = OperationType.QUERY, self._maker.operation
        operations = [
            make(
                "resources.list", self._list, type=query, input_schema=NOTHING, output_schema=ITEMS,
                description="The resources that the server offers.", metadata=fixed_kind("resources.list"),
            ),
            make(
                "resources.read", self._read_one, type=query, input_schema=_URI_INPUT, output_schema=_CONTENTS,
                description="The contents of a resource.", metadata=fixed_kind("resources.read"),
            ),
        ]  # fmt: skip
        if nested(capabilities, "resources", "subscribe"):
            operations.append(
                make(
                    "resources.subscribe", self._subscribe, type=OperationType.SUBSCRIPTION,
                    input_schema=_URI_INPUT,
                    output_schema={"type": "object", "properties": {"uri": _URI}, "required": ["uri"]},
                    description="An item whenever a resource changes; read it to see how.",
                    metadata=fixed_kind("resources.subscribe"),
                )
            )  # fmt: skip
        return operations

    async def _list(self, input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
        items = await all_pages(self._maker.connection, "resources/list", "resources")
        return envelope_of(items, await self._maker.connection.open())

    async def _read_one(self, input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
        return await self._read(input["uri"], "resources.read", context)

    async def _subscribe(self, input: Any, context: OperationContext) -> AsyncIterator[ResponseEnvelope[Any]]:
        updates = self._maker.connection.watch_resource(input["uri"])
        try:
            async for update in updates:
                yield envelope_of(update, await self._maker.connection.open())
        finally:
            await updates.aclose()

    def template(self, template: Json) -> AnyOperation:
        """The operation that reads the resources of a template."""
        pattern = template["uriTemplate"]
        if not isinstance(pattern, str):
            raise TypeError(f"uriTemplate: expected a string, got {type(pattern).__name__}")
        names = variables(pattern)
        name = f"resources.templates.{template['name']}"

        async def read(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            return await self._read(expand(pattern, input), name, context)

        strings: Json = {"type": ["string", "array", "integer", "number"], "items": {"type": "string"}}
        return self._maker.operation(
            name,
            read,
            type=OperationType.QUERY,
            title=text_of(template.get("title")),
            description=text_of(template.get("description")) or f"The contents of {pattern}.",
            input_schema={
                "type": "object",
                "properties": dict.fromkeys(names, strings),
                "required": [name for name, required in names.items() if required],
                "additionalProperties": False,
            },
            output_schema=_CONTENTS,
            metadata=metadata_of("resourceTemplate", template),
        )

    async def _read(self, uri: str, name: str, context: OperationContext) -> ResponseEnvelope[Any]:
        raw, live = await self._maker.ask("resources/read", {"uri": uri}, context, name=name)
        found = raw.get("contents") if isinstance(raw, dict) else None
        contents = found if isinstance(found, list) else []
        blocks = [{"type": "resource", "resource": item} for item in contents]
        return envelope_of(contents, live, content=blocks, meta=meta_of(raw))
