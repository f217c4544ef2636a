"""Descriptions of a remote server are clean and bounded on every way out: models, HTTP, MCP, terminal."""

from __future__ import annotations

import json
import re
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.lowlevel import Server

from operad import OperationRegistry, load_plugins
from operad_cli.output.text import print_text, printable
from operad_llm import tools
from operad_mcp import to_mcp
from operad_serve import to_openapi
from plugins.serve.tests.front_door import client_of

BOUND = 65_536
HOSTILE = re.compile("[\x1b\x07\x9b\u202e\u2066\u200b\u200f\U000e0000-\U000e0fff]")
TEXT = "a\x1b[2J\x1b]0;title\x07b\x9b31m\u202e\u2066\u200b\u200f\U000e0041\U000e0042" + "x" * 100_000
SCHEMA = {"type": "object", "properties": {"p": {"type": "string", "title": TEXT, "description": TEXT}}}


def hostile_server() -> Server[Any]:
    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        tool = {"name": "t", "title": TEXT, "description": TEXT, "inputSchema": SCHEMA}
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool)])

    return Server("far", on_list_tools=listed)


async def test_every_way_out_has_clean_descriptions_of_bounded_length(capsys: pytest.CaptureFixture[str]) -> None:
    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        await registry.load("mcp", namespace="s", server=hostile_server())
        ways = [json.dumps(tools(registry, format), ensure_ascii=False) for format in ("openai", "anthropic")]
        async with client_of(to_openapi(registry)) as call:  # the explorer shows this document
            answer = await call("GET", "/openapi.json")
            assert answer.status == 200
            ways.append(json.dumps(answer.json(), ensure_ascii=False))
        async with Client(to_mcp(registry).server()) as client:
            ways += [tool.model_dump_json() for tool in (await client.list_tools()).tools]
        spec = registry.get_spec("s.t")
        assert spec is not None
        print_text(printable(spec.description))
        ways.append(capsys.readouterr().out)
    assert len(ways) == 5
    for shown in ways:
        assert not HOSTILE.search(shown)
        assert "x" * (BOUND - 100) in shown
        assert "x" * BOUND not in shown
