"""Prompts as operations."""

from __future__ import annotations

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
    text_of,
)

_MESSAGES: Json = {
    "type": "object",
    "properties": {"description": {"type": "string"}, "messages": ITEMS},
    "required": ["messages"],
    "additionalProperties": True,
}


class Prompts:
    """Makes operations of prompts."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker

    def fixed(self) -> list[AnyOperation]:
        """To list prompts, and to get one."""
        strings = {"type": "object", "additionalProperties": {"type": "string"}}
        return [
            self._maker.operation(
                "prompts.list", self._list, type=OperationType.QUERY, input_schema=NOTHING, output_schema=ITEMS,
                description="The prompts that the server offers.", metadata=fixed_kind("prompts.list"),
            ),
            self._maker.operation(
                "prompts.get", self._get_one, type=OperationType.QUERY, output_schema=_MESSAGES,
                description="The messages of a prompt.", metadata=fixed_kind("prompts.get"),
                input_schema={
                    "type": "object", "required": ["name"], "additionalProperties": False,
                    "properties": {"name": {"type": "string"}, "arguments": strings},
                },
            ),
        ]  # fmt: skip

    async def _list(self, input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
        items = await all_pages(self._maker.connection, "prompts/list", "prompts")
        return envelope_of(items, await self._maker.connection.open())

    async def _get_one(self, input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
        return await self._get(input["name"], input.get("arguments", {}), "prompts.get", context)

    def prompt(self, prompt: Json) -> AnyOperation:
        """The operation that gets a prompt, its arguments as the input."""
        name = prompt["name"]
        listed = prompt.get("arguments")
        arguments = [
            argument
            for argument in (listed if isinstance(listed, list) else ())
            if isinstance(argument, dict) and isinstance(argument.get("name"), str)
        ]

        async def get(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            return await self._get(name, input, f"prompts.get.{name}", context)

        return self._maker.operation(
            f"prompts.get.{name}",
            get,
            type=OperationType.QUERY,
            title=text_of(prompt.get("title")),
            description=text_of(prompt.get("description")) or "",
            input_schema={
                "type": "object",
                "properties": {
                    argument["name"]: {"type": "string", "description": text_of(argument.get("description")) or ""}
                    for argument in arguments
                },
                "required": [argument["name"] for argument in arguments if argument.get("required") is True],
                "additionalProperties": False,
            },
            output_schema=_MESSAGES,
            metadata=metadata_of("prompt", prompt),
        )

    async def _get(
        self, name: str, arguments: Json, operation: str, context: OperationContext
    ) -> ResponseEnvelope[Any]:
        params = {"name": name, "arguments": arguments}
        raw, live = await self._maker.ask("prompts/get", params, context, name=operation)
        answer = raw if isinstance(raw, dict) else {}
        found = answer.get("messages")
        messages = found if isinstance(found, list) else []
        data: Json = {"messages": messages}
        if isinstance(answer.get("description"), str):
            data["description"] = answer["description"]
        blocks = [message.get("content") for message in messages if isinstance(message, dict)]
        return envelope_of(data, live, content=blocks, meta=meta_of(raw))
