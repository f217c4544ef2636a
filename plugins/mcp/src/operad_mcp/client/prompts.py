"""The operations for prompts."""

from __future__ import annotations

from typing import Any

from operad import OperationContext, ResponseEnvelope
from operad_mcp.client.items import ITEMS, AnyOperation, Json, Maker, envelope_of, meta_of, text_of

_MESSAGES: Json = {
    "type": "object",
    "properties": {"description": {"type": "string"}, "messages": ITEMS},
    "required": ["messages"],
}


class Prompts:
    """Converts the prompts of an MCP server to operations."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker

    def fixed(self) -> list[AnyOperation]:
        """Return the operations ``prompts.list`` and ``prompts.get``."""
        strings = {"type": "object", "additionalProperties": {"type": "string"}}
        given: Json = {
            "type": "object", "required": ["name"], "additionalProperties": False,
            "properties": {"name": {"type": "string"}, "arguments": strings},
        }  # fmt: skip
        what = "The messages of a prompt."
        get = self._maker.fixed("prompts.get", self._get_one, what, input_schema=given, output_schema=_MESSAGES)
        return [self._maker.lister("prompts"), get]

    async def _get_one(self, input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
        return await self._get(input["name"], input.get("arguments", {}), "prompts.get", context)

    def prompt(self, prompt: Json) -> AnyOperation:
        """Return the operation that gets a listed prompt. Its input has the prompt's arguments, all strings."""
        name = prompt["name"]
        listed = prompt.get("arguments")
        arguments = [
            argument
            for argument in (listed if isinstance(listed, list) else ())
            if isinstance(argument, dict) and isinstance(argument.get("name"), str)
        ]

        async def get(input: Any, context: OperationContext) -> ResponseEnvelope[Any]:
            return await self._get(name, input, f"prompts.get.{name}", context)

        return self._maker.item(
            "prompt",
            prompt,
            f"prompts.get.{name}",
            get,
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
