"""A server that other people wrote, behind a served registry: its clients see what they would see without it."""

from __future__ import annotations

import json
import re
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from operad import OperationRegistry, load_plugins
from operad_mcp import to_mcp
from tests.peers.mcp.installed import EVERYTHING, NODE, needs_npm

pytestmark = needs_npm

CALLS: dict[str, Any] = {
    "echo": {"message": "hi"},
    "get-sum": {"a": 2, "b": 3},
    "get-tiny-image": {},
    "get-annotated-message": {"messageType": "error", "includeImage": True},
    "get-structured-content": {"location": "New York"},
    "get-resource-links": {"count": 2},
    "get-resource-reference": {"resourceType": "Text", "resourceId": 1},
    "trigger-long-running-operation": {"duration": 0.1, "steps": 2},
}


def seen(model: Any) -> Any:
    """What a client sees, without the time of day, which the server says in its texts."""
    written = model.model_dump_json(by_alias=True, exclude_none=True)
    return json.loads(re.sub(r"\d{1,2}:\d\d:\d\d [AP]M", "now", written))


async def test_the_everything_server_is_the_same_behind_a_registry() -> None:
    command = {"command": str(NODE), "args": [str(EVERYTHING), "stdio"]}
    async with OperationRegistry(load_plugins(only=["operad-mcp"])) as registry:
        await registry.load("mcp", namespace="e", **command)
        serving = to_mcp(registry, names="name", tools="all")
        async with Client(serving.server()) as ours, Client(StdioServerParameters(**command)) as theirs:
            await the_tools_are_the_same(ours, theirs)
            listed = {one.uri: seen(one) for one in (await ours.list_resources()).resources}
            assert listed == {one.uri: seen(one) for one in (await theirs.list_resources()).resources}
            for uri in list(listed)[:3]:
                assert (
                    seen(await ours.read_resource(uri))["contents"]
                    == seen(await theirs.read_resource(uri))["contents"]
                )
            templates = [
                seen(one)["uriTemplate"] for one in (await ours.list_resource_templates()).resource_templates
            ]
            assert sorted(templates) == sorted(
                seen(one)["uriTemplate"] for one in (await theirs.list_resource_templates()).resource_templates
            )
            prompts = {one.name: seen(one) for one in (await theirs.list_prompts()).prompts}
            assert {one.name: seen(one) for one in (await ours.list_prompts()).prompts} == prompts
            for name in ("simple-prompt", "args-prompt"):
                arguments = {"city": "Rome"} if name == "args-prompt" else {}
                got, wanted = [seen(await one.get_prompt(name, arguments)) for one in (ours, theirs)]
                assert got["messages"] == wanted["messages"]


async def the_tools_are_the_same(ours: Client, theirs: Client) -> None:
    offered = {one.name: seen(one) for one in (await ours.list_tools()).tools}
    for one in (await theirs.list_tools()).tools:
        wanted = seen(one)
        if one.name not in offered:  # tools that run as tasks only
            assert wanted.get("execution", {}).get("taskSupport") == "required"
            continue
        got = offered[one.name]
        for key in ("title", "description", "inputSchema", "outputSchema", "annotations", "icons"):
            assert got.get(key) == wanted.get(key), (one.name, key)
    for name, arguments in CALLS.items():
        got, wanted = [seen(await one.call_tool(name, arguments)) for one in (ours, theirs)]
        for key in ("content", "structuredContent", "isError"):
            assert got.get(key) == wanted.get(key), (name, key)
