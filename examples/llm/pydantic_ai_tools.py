# /// script
# requires-python = ">=3.11"
# dependencies = ["operad", "operad-llm", "pydantic-ai-slim"]
# ///
"""The operations of a registry as tools of pydantic-ai."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent, ModelRetry, Tool
from pydantic_ai.models.test import TestModel

from operad import OperationContext, OperationRegistry, operation
from operad_llm import run_tool_call, tools


def pydantic_ai_tools(registry: OperationRegistry, context: OperationContext) -> list[Tool[None]]:
    """Return a tool for each operation that the caller of ``context`` may call. Its calls run as this caller."""

    def tool(definition: dict[str, Any]) -> Tool[None]:
        async def call(**arguments: Any) -> Any:
            payload = {"name": definition["name"], "arguments": arguments}
            result = await run_tool_call(registry, payload, format="mcp", context=context)
            text = "\n".join(block.get("text", f"[{block['type']}]") for block in result["content"])
            if result["isError"]:
                raise ModelRetry(text)
            return result.get("structuredContent", text)

        return Tool.from_schema(
            call,
            name=definition["name"],
            description=definition["description"],
            json_schema=definition["inputSchema"],
        )

    return [tool(definition) for definition in tools(registry, "mcp", identity=context.identity)]


@operation(namespace="demo", type="query")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    """Let an agent call a tool. The test model calls every tool once."""
    registry = OperationRegistry()
    registry.register(add)
    agent = Agent(TestModel(), tools=pydantic_ai_tools(registry, OperationContext()))
    answer = await agent.run("Add two numbers.")
    print(answer.output)


if __name__ == "__main__":
    asyncio.run(main())
