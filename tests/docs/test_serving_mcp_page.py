"""The page on serving MCP: its examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mcp import Client

from operad_mcp import to_mcp

PAGE = (Path(__file__).parents[2] / "docs/serving-mcp.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


async def test_the_first_example_serves_and_the_second_adds_a_resource_a_template_and_a_prompt() -> None:
    scope: dict[str, Any] = {"__name__": "page"}
    exec(compile(EXAMPLES[0], "docs/serving-mcp.md", "exec", dont_inherit=True), scope)
    exec(compile(EXAMPLES[1], "docs/serving-mcp.md", "exec", dont_inherit=True), scope)
    registry = scope["registry"]
    for name in ("note", "user", "review"):
        registry.register(scope[name])
    async with Client(to_mcp(registry).server()) as client:
        assert (await client.call_tool("demo_add", {"a": 2, "b": 3})).structured_content == 5
        assert [item.uri for item in (await client.list_resources()).resources] == ["demo://note"]
        assert len((await client.list_resource_templates()).resource_templates) == 1
        assert [item.name for item in (await client.list_prompts()).prompts] == ["demo_review"]
