# /// script
# requires-python = ">=3.11"
# dependencies = ["operad", "operad-llm", "langchain-core"]
# ///
"""The operations of a registry as tools of LangChain."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.tools import StructuredTool, ToolException

from operad import OperationContext, OperationRegistry, operation
from operad_llm import run_tool_call, tools


def langchain_tools(registry: OperationRegistry, context: OperationContext) -> list[StructuredTool]:
    """Return a tool for each operation that the caller of ``context`` may call. Its calls run as this caller."""

    def tool(definition: dict[str, Any]) -> StructuredTool:
        async def call(**arguments: Any) -> str:
            payload = {"name": definition["name"], "arguments": arguments}
            result = await run_tool_call(registry, payload, format="mcp", context=context)
            text = "\n".join(block.get("text", f"[{block['type']}]") for block in result["content"])
            if result["isError"]:
                raise ToolException(text)
            return text

        return StructuredTool(
            name=definition["name"],
            description=definition["description"],
            args_schema=definition["inputSchema"],
            coroutine=call,
            handle_tool_error=True,
        )

    return [tool(definition) for definition in tools(registry, "mcp", identity=context.identity)]


@operation(namespace="demo", type="query")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    """Call a tool as a LangChain agent does."""
    registry = OperationRegistry()
    registry.register(add)
    (tool,) = langchain_tools(registry, OperationContext())
    print(tool.name, tool.args)
    print(await tool.ainvoke({"type": "tool_call", "id": "1", "name": tool.name, "args": {"a": 2, "b": 3}}))
    print(await tool.ainvoke({"type": "tool_call", "id": "2", "name": tool.name, "args": {"a": "two", "b": 3}}))


if __name__ == "__main__":
    asyncio.run(main())
