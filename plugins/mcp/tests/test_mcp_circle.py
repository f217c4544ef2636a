"""What is served is loaded again: operations, resources and prompts come back as what they were."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server

from operad import (
    CallError,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    SourceError,
    load_plugins,
    operation,
)
from operad_mcp import to_mcp
from plugins.mcp.tests.peers import MODES, features, listening, loaded, plain


@operation(namespace="m", type="query")
async def names(of: list[str], limit: int | None = None) -> list[str]:
    """Names."""
    return of[:limit]


@operation(namespace="m")
async def nothing() -> None:
    """Nothing."""


def local() -> OperationRegistry:
    made = plain()

    async def fail(input: Any, context: OperationContext) -> Any:
        raise CallError("SOLD_OUT", "no more", {"left": 0})

    recursive = {
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
        "$ref": "#/$defs/Node",
    }

    made.register(names)
    made.register(nothing)
    spec = OperationSpec(namespace="m", name="a/b.c-" + "x" * 60, input_schema=recursive)
    made.register(spec, lambda given, context: given)
    made.register(OperationSpec(namespace="m", name="fail"), fail)
    return made


@MODES
async def test_a_served_registry_loads_with_the_same_ids_schemas_and_data(mode: str) -> None:
    inner = local()
    async with loaded("n", server=to_mcp(inner).server(), mode=mode) as outer:
        assert [spec.id.removeprefix("n.") for spec in outer.specs()] == [spec.id for spec in inner.specs()]
        for spec in inner.specs():
            again = outer.get_spec(f"n.{spec.id}")
            assert again is not None
            assert again.description == (spec.description or f"The operation {spec.id}.")
            for value in ({}, {"of": ["a"]}, {"of": 1}, {"next": {"next": 3}}, {"next": {"next": {}}}):
                assert again.input_schema.is_valid(value) == spec.input_schema.is_valid(value)
        assert (await outer.execute("n.m.names", {"of": ["a", "b"], "limit": 1})).data == ["a"]
        assert (await outer.execute("n.m.nothing", {})).data is None
        failed = await outer.execute("n.m.fail", {})
        assert failed.meta.is_error
        assert failed.meta.meta["operad/error"] == {
            "code": "SOLD_OUT", "message": "no more", "details": {"left": 0}
        }  # fmt: skip


@MODES
@pytest.mark.parametrize("inner_mode", ["legacy", "2026-07-28"])
async def test_a_question_of_another_server_is_put_to_whoever_called_through_all_of_them(
    mode: str, inner_mode: str
) -> None:
    asked: list[str] = []

    async def elicitation(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return {"action": "accept", "content": {"name": "Ada"}}

    async with features(mode=inner_mode, elicitation="caller") as inner:
        served = to_mcp(inner).server()
        async with loaded("n", server=served, mode=mode, elicitation=elicitation) as outer:
            greeting = await outer.execute("n.f.greet", {}, timeout=20)
    assert "Hello, Ada! True" in str(greeting.data)
    assert asked == ["f.greet asks: What is your name?"]


# --- what another MCP server offers --------------------------------------------------------------------

BLOCKS: list[Any] = [
    types.TextContent(type="text", text="hi", annotations=types.Annotations(audience=["user"], priority=0.5)),
    types.ImageContent(type="image", data="AAAA", mime_type="image/png"),
    types.ResourceLink(type="resource_link", uri="file:///x", name="x"),
]


def foreign(uri: str = "foreign://note", text: str = "a note") -> Server[Any]:
    """A server of the SDK with one of everything."""
    tool = types.Tool(
        name="draw",
        title="Draw",
        description="Draws.",
        input_schema={"type": "object", "properties": {"what": {"type": "string"}}},
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        icons=[types.Icon(src="https://x/icon.png")],
        _meta={"vendor/x": 1},
    )

    async def list_tools(ctx: Any, params: Any) -> Any:
        return types.ListToolsResult(tools=[tool], ttl_ms=0, cache_scope="private")

    async def call_tool(ctx: Any, params: Any) -> Any:
        await ctx.session.report_progress(1, 2, "drawing")
        fails = (params.arguments or {}).get("what") == "nothing"
        return types.CallToolResult(content=BLOCKS, is_error=fails, _meta={"vendor/y": [1]})

    async def list_resources(ctx: Any, params: Any) -> Any:
        found = [types.Resource(uri=uri, name="note", mime_type="text/plain")]
        return types.ListResourcesResult(resources=found, ttl_ms=0, cache_scope="private")

    async def list_templates(ctx: Any, params: Any) -> Any:
        found = [types.ResourceTemplate(uri_template=f"{uri}/{{id}}", name="notes")]
        return types.ListResourceTemplatesResult(resource_templates=found, ttl_ms=0, cache_scope="private")

    async def read(ctx: Any, params: Any) -> Any:
        if not str(params.uri).startswith(uri):
            raise MCPError(-32602, "Resource not found", {"uri": str(params.uri)})
        contents = [types.TextResourceContents(uri=str(params.uri), text=text, mime_type="text/plain")]
        return types.ReadResourceResult(contents=contents, ttl_ms=0, cache_scope="private")

    async def list_prompts(ctx: Any, params: Any) -> Any:
        arguments = [types.PromptArgument(name="who", required=True)]
        found = [types.Prompt(name="greet", description="Greets.", arguments=arguments)]
        return types.ListPromptsResult(prompts=found, ttl_ms=0, cache_scope="private")

    async def get_prompt(ctx: Any, params: Any) -> Any:
        message = types.PromptMessage(role="assistant", content=BLOCKS[1])
        return types.GetPromptResult(description=params.arguments["who"], messages=[message])

    return Server(
        "foreign", version="1", on_list_tools=list_tools, on_call_tool=call_tool, on_list_resources=list_resources,
        on_list_resource_templates=list_templates, on_read_resource=read, on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )  # fmt: skip


@MODES
async def test_tools_of_another_server_pass_through_as_what_they_were(mode: str) -> None:
    heard: list[Any] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with (
        loaded("f", server=foreign(), mode=mode) as registry,
        Client(foreign(), mode=mode) as direct,
        Client(to_mcp(registry).server(), mode=mode) as served,
    ):
        (ours,), (theirs,) = (await served.list_tools()).tools, (await direct.list_tools()).tools
        assert ours.name == "f_draw"
        assert ours.meta == {"vendor/x": 1, "operad/id": "f.draw"}
        same = ("title", "description", "input_schema", "output_schema", "annotations", "icons")
        assert [getattr(ours, name) for name in same] == [getattr(theirs, name) for name in same]
        for arguments in ({}, {"what": "nothing"}):
            answer = await served.call_tool("f_draw", arguments, progress_callback=progress)
            expected = await direct.call_tool("draw", arguments)
            assert answer.content == expected.content
            assert answer.is_error == expected.is_error
            assert (answer.meta or {})["vendor/y"] == [1]
    assert heard == [(1, 2, "drawing")] * 2


@MODES
async def test_resources_templates_and_prompts_of_several_servers_pass_through(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with loaded("f", server=foreign(), mode=mode) as registry:
        await registry.load("mcp", namespace="g", server=foreign("other://", "another"), mode=mode)
        async with Client(to_mcp(registry).server(), mode=mode) as served:
            assert [tool.name for tool in (await served.list_tools()).tools] == ["f_draw", "g_draw"]
            # Read before they are listed: who has it is found out.
            texts = {"other://": "another", "foreign://note": "a note", "foreign://note/7": "a note"}
            for uri, text in texts.items():
                (content,) = (await served.read_resource(uri)).contents
                assert (content.uri, content.text, content.mime_type) == (uri, text, "text/plain")
            listed = (await served.list_resources()).resources
            assert [(item.uri, item.name) for item in listed] == [("foreign://note", "note"), ("other://", "note")]
            templates = (await served.list_resource_templates()).resource_templates
            assert [item.uri_template for item in templates] == ["foreign://note/{id}", "other:///{id}"]
            with pytest.raises(Exception, match="Resource not found"):
                await served.read_resource("nobodys://x")
            (prompt, _) = (await served.list_prompts()).prompts
            assert (prompt.name, prompt.description) == ("f_greet", "Greets.")
            assert [(one.name, one.required) for one in prompt.arguments] == [("who", True)]
            got = await served.get_prompt("f_greet", {"who": "you"})
            (message,) = got.messages
            assert (got.description, message.role, message.content) == ("you", "assistant", BLOCKS[1])


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
@MODES
async def test_a_resource_of_another_server_is_watched_there_once_for_all_who_watch_it_here(mode: str) -> None:
    changes: asyncio.Queue[None] = asyncio.Queue()
    running: list[str] = []

    async def listed(input: Any, context: OperationContext) -> Any:
        return [{"uri": "up://x", "name": "x"}]

    async def subscribe(input: Any, context: OperationContext) -> Any:
        running.append(input["uri"])
        try:
            while True:
                await changes.get()
                yield {"uri": input["uri"]}
        finally:
            running.remove(input["uri"])

    registry = OperationRegistry()
    for name, handler in (("list", listed), ("read", listed), ("subscribe", subscribe)):
        kind = f"resources.{name}"
        type = "subscription" if name == "subscribe" else "query"
        registry.register(
            OperationSpec(namespace="u", name=kind, type=type, metadata={"mcp": {"kind": kind}}), handler
        )
    serving = to_mcp(registry)
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def message(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            heard.put_nowait(str(message.params.uri))

    async with asyncio.timeout(10):
        if mode == "legacy":
            async with (
                Client(serving.server(), mode=mode, message_handler=message) as one,
                Client(serving.server(), mode=mode, message_handler=message) as two,
            ):
                await one.subscribe_resource("up://x")
                await two.subscribe_resource("up://x")
                changes.put_nowait(None)
                assert [await heard.get(), await heard.get()] == ["up://x"] * 2
                assert running == ["up://x"]
                for _ in range(2):
                    await two.unsubscribe_resource("up://x")
                    assert running == ["up://x"]
                await one.unsubscribe_resource("up://x")
                while running:
                    await asyncio.sleep(0)
                await one.subscribe_resource("up://x")
                while not running:
                    await asyncio.sleep(0)
        else:
            async with Client(serving.server(), mode=mode) as one:
                async with one.listen(resource_subscriptions=["up://x"]) as events:
                    await asyncio.sleep(0)
                    changes.put_nowait(None)
                    assert "up://x" in repr(await anext(aiter(events)))
                while running:
                    await asyncio.sleep(0)
        while running:
            await asyncio.sleep(0)


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
async def test_a_session_watches_1000_resources_with_uris_of_8192_characters() -> None:
    async with Client(to_mcp(OperationRegistry()).server(), mode="legacy") as client:
        longest = "up://" + "x" * 8_187
        with pytest.raises(MCPError, match="expected a URI of at most 8192 characters, got 8193"):
            await client.subscribe_resource(f"{longest}x")
        for uri in (longest, *(f"up://{number}" for number in range(999))):
            await client.subscribe_resource(uri)
        await client.subscribe_resource(longest)  # which it watches already
        with pytest.raises(MCPError, match="watches 1000 resources, the maximum; unsubscribe from one first"):
            await client.subscribe_resource("up://1000")
        await client.unsubscribe_resource(longest)
        await client.subscribe_resource("up://1000")


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
@pytest.mark.parametrize("inner", ["legacy", "2026-07-28"])
async def test_updates_pass_through_two_servers_and_their_end_is_said(
    inner: str, caplog: pytest.LogCaptureFixture
) -> None:
    changes: asyncio.Queue[str | None] = asyncio.Queue()

    async def listed(input: Any, context: OperationContext) -> Any:
        return [{"uri": "up://x", "name": "x"}]

    async def subscribe(input: Any, context: OperationContext) -> Any:
        while (uri := await changes.get()) is not None:
            yield {"uri": uri}
        raise CallError("UNAVAILABLE", "gone")

    far = OperationRegistry()
    for name, handler in (("list", listed), ("read", listed), ("subscribe", subscribe)):
        kind = f"resources.{name}"
        type = "subscription" if name == "subscribe" else "query"
        far.register(OperationSpec(namespace="u", name=kind, type=type, metadata={"mcp": {"kind": kind}}), handler)
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def message(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            heard.put_nowait(str(message.params.uri))

    async with (
        asyncio.timeout(10),
        loaded("n", server=to_mcp(far).server(), mode=inner) as near,
        Client(to_mcp(near).server(), mode="legacy", message_handler=message) as client,
    ):
        await client.subscribe_resource("up://x")
        changes.put_nowait("up://x")
        assert await heard.get() == "up://x"
        changes.put_nowait(None)
        while "up://x cannot be watched" not in caplog.text:
            await asyncio.sleep(0)
        assert (await client.read_resource("up://x")).contents


@MODES
async def test_a_call_that_is_cancelled_here_is_cancelled_at_its_server_over_http(mode: str) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def slow(input: Any, context: OperationContext) -> Any:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    far = OperationRegistry()
    far.register(OperationSpec(namespace="m", name="slow"), slow)
    async with (
        asyncio.timeout(10),
        listening(to_mcp(far).asgi()) as url,
        loaded("n", url=f"{url}/mcp", mode=mode) as near,
    ):
        calling = asyncio.create_task(near.execute("n.m.slow", {}))
        await started.wait()
        assert not ended.is_set()
        calling.cancel()
        await ended.wait()


async def test_a_server_that_cannot_be_asked_costs_the_others_nothing() -> None:
    async with loaded("f", server=foreign()) as registry:

        async def broken(input: Any, context: OperationContext) -> Any:
            raise CallError("UNAVAILABLE", "gone")

        for kind in ("resources.list", "resources.read"):
            registry.register(OperationSpec(namespace="b", name=kind, metadata={"mcp": {"kind": kind}}), broken)
        async with Client(to_mcp(registry).server()) as served:
            assert [item.uri for item in (await served.list_resources()).resources] == ["foreign://note"]
            await asyncio.sleep(0)


async def test_arguments_of_prompts_are_decoded_and_completed_from_their_schema() -> None:
    registry = OperationRegistry()

    async def ask(input: Any, context: OperationContext) -> Any:
        return f"{input!r}"

    properties = {"count": {"type": "integer"}, "mood": {"type": "string", "enum": ["glad", "grim", "sad"]}}
    schema = {"type": "object", "properties": properties, "required": ["count"]}
    metadata = {"mcp": {"kind": "prompt"}}
    registry.register(OperationSpec(namespace="m", name="ask", input_schema=schema, metadata=metadata), ask)
    template = {"mcp": {"kind": "resourceTemplate", "uriTemplate": "x://{city}"}}
    registry.register(OperationSpec(namespace="m", name="city", metadata=template), ask)

    def complete(spec: OperationSpec, argument: str, value: str) -> list[str] | None:
        return ["Paris", "Prague", "Rome"] if (spec.name, argument) == ("city", "city") else None

    async with Client(to_mcp(registry, complete=complete).server()) as served:
        got = await served.get_prompt("m_ask", {"count": "3", "mood": "glad"})
        assert got.messages[0].content.text == "{'count': 3, 'mood': 'glad'}"
        with pytest.raises(Exception, match="expected integer"):
            await served.get_prompt("m_ask", {"count": "many"})
        prompt = types.PromptReference(name="m_ask")
        moods = await served.complete(prompt, {"name": "mood", "value": "g"})
        assert moods.completion.values == ["glad", "grim"]
        place = types.ResourceTemplateReference(uri="x://{city}")
        cities = await served.complete(place, {"name": "city", "value": "P"})
        assert cities.completion.values == ["Paris", "Prague"]
        unknown = await served.complete(types.PromptReference(name="no"), {"name": "x", "value": ""})
        assert unknown.completion.values == []


async def test_a_server_that_gives_its_tool_another_id_does_not_get_past_what_is_switched_off() -> None:
    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        meta: Any = {"operad/id": "other.read_only"}
        tools = [
            types.Tool(name="delete_all", input_schema={"type": "object"}, _meta=meta),
            types.Tool(name="look", input_schema={"type": "object"}),
        ]
        return types.ListToolsResult(tools=tools)

    server: Server[Any] = Server("sly", on_list_tools=listed)
    async with loaded("s", server=server, exclude=["delete*"]) as registry:
        assert [spec.id for spec in registry.specs()] == ["s.look"]


async def test_a_served_registry_is_named_and_described_by_its_sources(tmp_path: Path) -> None:
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Pets\x1b[2J", "version": "1", "description": "A shop of pets.\n" + "x" * 5_000},
        "servers": [{"url": "http://127.0.0.1:9"}],
        "paths": {"/pets": {"get": {"operationId": "pets", "responses": {"200": {"description": "Pets."}}}}},
    }

    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    server: Server[Any] = Server("far", title="Far away", instructions="Ask politely.", on_list_tools=listed)
    async with OperationRegistry(load_plugins(only=["mcp", "openapi"])) as registry:
        await registry.load("openapi", namespace="shop", spec=document)
        async with Client(to_mcp(registry).server()) as client:
            assert (client.server_info.name, client.server_info.title) == ("shop", "Pets")
            assert client.instructions is not None
            assert client.instructions.startswith("Pets: A shop of pets.\nxxx")
            assert len(client.instructions) < 2_100
        await registry.load("mcp", namespace="far", server=server)
        async with Client(to_mcp(registry).server()) as client:
            assert (client.server_info.name, client.server_info.title) == ("operad", "Far away, Pets")
            assert client.instructions is not None
            assert client.instructions.startswith("Far away: Ask politely.\n\nPets: A shop")
        chosen = to_mcp(registry, name="mine", title="Mine", instructions="Use it.")
        async with Client(chosen.server()) as client:
            assert (client.server_info.name, client.server_info.title) == ("mine", "Mine")
            assert client.instructions == "Use it."


@pytest.mark.parametrize(("code", "is_told"), [(-32601, False), (-32050, True)])
async def test_a_listing_that_a_server_cannot_give_costs_its_other_listings_nothing(
    code: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="look", input_schema={"type": "object"})])

    async def broken(ctx: Any, params: Any) -> Any:
        raise MCPError(code, "no")

    server: Server[Any] = Server("half", on_list_tools=listed, on_list_prompts=broken, on_list_resources=broken)
    async with loaded("h", server=server) as registry:
        assert registry.get_spec("h.look") is not None
        assert ("prompts cannot be listed" in caplog.text) is is_told
    with pytest.raises(SourceError, match="no"):
        async with loaded("h", server=Server("none", on_list_tools=broken)):
            pass


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("prompts.get", {"name": "greet"}),
        ("prompts.get.greet", {"who": "Ada"}),
        ("resources.read", {"uri": "foreign://note"}),
        ("resources.templates.notes", {"id": "1"}),
    ],
)
async def test_an_operation_of_a_server_takes_what_it_declares_and_nothing_else(name: str, good: Any) -> None:
    async with loaded("f", server=foreign()) as registry:
        spec = registry.get_spec(f"f.{name}")
        assert spec is not None
        assert spec.input_schema.is_valid(good)
        for bad in ({}, {**good, "more": 1}):
            with pytest.raises(CallError, match="VALIDATION_ERROR"):
                await registry.execute(f"f.{name}", bad)
