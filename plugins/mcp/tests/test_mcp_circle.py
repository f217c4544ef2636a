"""What is served is loaded again: operations, resources and prompts come back as what they were."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server

from operad import CallError, OperationContext, OperationRegistry, SourceError, load_plugins, operation
from operad_mcp import to_mcp
from plugins.mcp.tests import peers
from plugins.mcp.tests.peers import MODES, Log, Slow, loaded, raw, spec_of, until


@operation(namespace="m", type="query")
async def names(of: list[str], limit: int | None = None) -> list[str]:
    """Names."""
    return of[:limit]


@operation(namespace="m")
async def nothing() -> None:
    """Nothing."""


def local() -> OperationRegistry:
    made = peers.plain()
    made.register(names)
    made.register(nothing)
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    recursive = {"$defs": {"Node": node}, "$ref": "#/$defs/Node"}
    raw(made, "a/b.c-" + "x" * 60, lambda given, context: given, input_schema=recursive)
    return raw(made, "fail", CallError("SOLD_OUT", "no more", {"left": 0}))


@MODES
async def test_a_served_registry_loads_with_the_same_ids_schemas_and_data(mode: str) -> None:
    inner = local()
    async with loaded("n", server=to_mcp(inner).server(), mode=mode) as outer:
        assert [spec.id.removeprefix("n.") for spec in outer.specs()] == [spec.id for spec in inner.specs()]
        for spec in inner.specs():
            again = spec_of(outer, f"n.{spec.id}")
            assert again.description == (spec.description or f"The operation {spec.id}.")
            for value in ({}, {"of": ["a"]}, {"of": 1}, {"next": {"next": 3}}, {"next": {"next": {}}}):
                assert again.input_schema.is_valid(value) == spec.input_schema.is_valid(value)
        assert (await outer.execute("n.m.names", {"of": ["a", "b"], "limit": 1})).data == ["a"]
        assert (await outer.execute("n.m.nothing", {})).data is None
        failed = (await outer.execute("n.m.fail", {})).meta
        assert failed.is_error
        sold_out = {"code": "SOLD_OUT", "message": "no more", "details": {"left": 0}}
        assert failed.meta["operad/error"] == sold_out


@MODES
@pytest.mark.parametrize("inner_mode", ["legacy", "2026-07-28"])
async def test_a_question_of_another_server_is_put_to_whoever_called_through_all_of_them(
    mode: str, inner_mode: str
) -> None:
    asked: list[str] = []

    async def elicitation(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return {"action": "accept", "content": {"name": "Ada"}}

    async with peers.features(mode=inner_mode, elicitation="caller") as inner:
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


DRAW = types.Tool(
    name="draw", title="Draw", description="Draws.", icons=[types.Icon(src="https://x/icon.png")],
    input_schema={"type": "object", "properties": {"what": {"type": "string"}}},
    annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False), _meta={"vendor/x": 1},
)  # fmt: skip


LOOK = types.Tool(name="look", input_schema={"type": "object"})


def always(result: Any) -> Any:
    """A handler of a server of the SDK that returns this, or raises it."""

    async def handler(ctx: Any, params: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    return handler


def tools_of(name: str, *tools: types.Tool, **options: Any) -> Server[Any]:
    """A server of the SDK with these tools."""
    return Server(name, on_list_tools=always(types.ListToolsResult(tools=list(tools))), **options)


def foreign(uri: str = "foreign://note", text: str = "a note") -> Server[Any]:
    """A server of the SDK with one of everything."""
    fresh: Any = {"ttl_ms": 0, "cache_scope": "private"}
    prompt = types.Prompt(
        name="greet", description="Greets.", arguments=[types.PromptArgument(name="who", required=True)]
    )
    template = types.ResourceTemplate(uri_template=f"{uri}/{{id}}", name="notes")
    note = types.Resource(uri=uri, name="note", mime_type="text/plain")

    async def call_tool(ctx: Any, params: Any) -> Any:
        await ctx.session.report_progress(1, 2, "drawing")
        fails = (params.arguments or {}).get("what") == "nothing"
        return types.CallToolResult(content=BLOCKS, is_error=fails, _meta={"vendor/y": [1]})

    async def read(ctx: Any, params: Any) -> Any:
        if not str(params.uri).startswith(uri):
            raise MCPError(-32602, "Resource not found", {"uri": str(params.uri)})
        contents = [types.TextResourceContents(uri=str(params.uri), text=text, mime_type="text/plain")]
        return types.ReadResourceResult(contents=contents, **fresh)

    async def get_prompt(ctx: Any, params: Any) -> Any:
        message = types.PromptMessage(role="assistant", content=BLOCKS[1])
        return types.GetPromptResult(description=params.arguments["who"], messages=[message])

    return Server(
        "foreign", version="1", on_call_tool=call_tool, on_read_resource=read, on_get_prompt=get_prompt,
        on_list_tools=always(types.ListToolsResult(tools=[DRAW], **fresh)),
        on_list_resources=always(types.ListResourcesResult(resources=[note], **fresh)),
        on_list_resource_templates=always(types.ListResourceTemplatesResult(resource_templates=[template], **fresh)),
        on_list_prompts=always(types.ListPromptsResult(prompts=[prompt], **fresh)),
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
            assert (answer.content, answer.is_error) == (expected.content, expected.is_error)
            assert (answer.meta or {})["vendor/y"] == [1]
    assert heard == [(1, 2, "drawing")] * 2


@MODES
async def test_resources_templates_and_prompts_of_several_servers_pass_through(mode: str) -> None:
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


class Updates:
    """What hears of updates of resources; ``heard`` has their URIs."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def __call__(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            self.heard.append(str(message.params.uri))


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
@MODES
async def test_a_resource_of_another_server_is_watched_there_once_for_all_who_watch_it_here(mode: str) -> None:
    changes: asyncio.Queue[None] = asyncio.Queue()
    running: list[str] = []

    async def subscribe(input: Any, context: OperationContext) -> Any:
        running.append(input["uri"])
        try:
            while True:
                await changes.get()
                yield {"uri": input["uri"]}
        finally:
            running.remove(input["uri"])

    serving, updates = to_mcp(peers.watched(subscribe)), Updates()
    if mode == "legacy":
        async with (
            Client(serving.server(), mode=mode, message_handler=updates) as one,
            Client(serving.server(), mode=mode, message_handler=updates) as two,
        ):
            await one.subscribe_resource("up://x")
            await two.subscribe_resource("up://x")
            changes.put_nowait(None)
            await until(lambda: updates.heard == ["up://x"] * 2)
            assert running == ["up://x"]
            for _ in range(2):
                await two.unsubscribe_resource("up://x")
                assert running == ["up://x"]
            await one.unsubscribe_resource("up://x")
            await until(lambda: not running)
            await one.subscribe_resource("up://x")
            await until(lambda: bool(running))
    else:
        async with Client(serving.server(), mode=mode) as one, asyncio.timeout(10):
            async with one.listen(resource_subscriptions=["up://x"]) as events:
                await asyncio.sleep(0)
                changes.put_nowait(None)
                assert "up://x" in repr(await anext(aiter(events)))
            await until(lambda: not running)
    await until(lambda: not running)


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
async def test_a_session_whose_first_watch_was_refused_leaves_no_subscription_behind() -> None:
    running: list[str] = []

    async def subscribe(input: Any, context: OperationContext) -> Any:
        running.append(input["uri"])
        try:
            await asyncio.Event().wait()
            yield
        finally:
            running.clear()

    serving = to_mcp(peers.watched(subscribe))
    async with Client(serving.server(), mode="legacy"):  # which goes on when the other session has ended
        async with Client(serving.server(), mode="legacy") as client:
            with pytest.raises(MCPError, match="at most 8192"):
                await client.subscribe_resource("up://" + "x" * 9_000)
            await client.subscribe_resource("up://x")
            await until(lambda: running == ["up://x"])
        await until(lambda: not running)


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
async def test_updates_pass_through_two_servers_and_their_end_is_said(inner: str, caplog: Log) -> None:
    changes: asyncio.Queue[str | None] = asyncio.Queue()

    async def subscribe(input: Any, context: OperationContext) -> Any:
        while (uri := await changes.get()) is not None:
            yield {"uri": uri}
        raise CallError("UNAVAILABLE", "gone")

    updates = Updates()
    async with (
        loaded("n", server=to_mcp(peers.watched(subscribe)).server(), mode=inner) as near,
        Client(to_mcp(near).server(), mode="legacy", message_handler=updates) as client,
    ):
        await client.subscribe_resource("up://x")
        changes.put_nowait("up://x")
        await until(lambda: updates.heard == ["up://x"])
        changes.put_nowait(None)
        await until(lambda: "up://x cannot be watched" in caplog.text)
        assert (await client.read_resource("up://x")).contents


@MODES
async def test_a_call_that_is_cancelled_here_is_cancelled_at_its_server_over_http(mode: str) -> None:
    slow, methods = Slow(), list[bytes | None]()
    served: Any = to_mcp(raw(OperationRegistry(), "slow", slow)).asgi()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        methods.append(dict(scope.get("headers", ())).get(b"mcp-method"))
        await served(scope, receive, send)

    async with (
        asyncio.timeout(10),
        peers.listening(app) as url,
        loaded("n", url=f"{url}/mcp", mode=mode) as near,
    ):
        calling = asyncio.create_task(near.execute("n.m.slow", {}))
        await slow.started.wait()
        assert not slow.ended.is_set()
        calling.cancel()
        await slow.ended.wait()
    assert (b"tools/call" in methods) is (mode != "legacy")
    assert b"notifications/cancelled" not in methods  # the stateless protocol closes the request instead


async def test_a_server_that_cannot_be_asked_costs_the_others_nothing() -> None:
    async with loaded("f", server=foreign()) as registry:
        for kind in ("resources.list", "resources.read"):
            raw(registry, kind, CallError("UNAVAILABLE", "gone"), metadata={"mcp": {"kind": kind}})
        async with Client(to_mcp(registry).server()) as served:
            assert [item.uri for item in (await served.list_resources()).resources] == ["foreign://note"]
            await asyncio.sleep(0)


async def test_arguments_of_prompts_are_decoded_and_completed_from_their_schema() -> None:
    registry = OperationRegistry()

    async def ask(input: Any, context: OperationContext) -> Any:
        return f"{input!r}"

    properties = {"count": {"type": "integer"}, "mood": {"type": "string", "enum": ["glad", "grim", "sad"]}}
    schema = {"type": "object", "properties": properties, "required": ["count"]}
    raw(registry, "ask", ask, input_schema=schema, metadata={"mcp": {"kind": "prompt"}})
    raw(registry, "city", ask, metadata={"mcp": {"kind": "resourceTemplate", "uriTemplate": "x://{city}"}})

    def complete(spec: Any, argument: str, value: str) -> list[str] | None:
        cities = ["Paris", "Prague", "Rome", *(f"Z{number}" for number in range(101))]
        return cities if (spec.name, argument) == ("city", "city") else None

    async with Client(to_mcp(registry, complete=complete).server()) as served:
        got = await served.get_prompt("m_ask", {"count": "3", "mood": "glad"})
        assert got.messages[0].content.text == "{'count': 3, 'mood': 'glad'}"
        with pytest.raises(Exception, match="expected integer, got str"):
            await served.get_prompt("m_ask", {"count": "many"})
        for of, name, value, values in (
            (types.PromptReference(name="m_ask"), "mood", "g", ["glad", "grim"]),
            (types.ResourceTemplateReference(uri="x://{city}"), "city", "P", ["Paris", "Prague"]),
            (
                types.ResourceTemplateReference(uri="x://{city}"),
                "city",
                "Z",
                [f"Z{number}" for number in range(100)],
            ),
            (types.PromptReference(name="no"), "x", "", []),
        ):
            found = (await served.complete(of, {"name": name, "value": value})).completion
            assert (found.values, bool(found.has_more)) == (values, value == "Z")


async def test_a_server_that_gives_its_tool_another_id_does_not_get_past_what_is_switched_off() -> None:
    meta: Any = {"operad/id": "other.read_only"}
    sly = types.Tool(name="delete_all", input_schema={"type": "object"}, _meta=meta)
    async with loaded("s", server=tools_of("sly", sly, LOOK), exclude=["delete*"]) as registry:
        assert [spec.id for spec in registry.specs()] == ["s.look"]


async def test_a_served_registry_is_named_and_described_by_its_sources() -> None:
    async def described(**options: Any) -> tuple[str, str | None, str]:
        async with Client(to_mcp(registry, **options).server()) as client:
            return client.server_info.name, client.server_info.title, client.instructions or ""

    pets = {"get": {"operationId": "pets", "responses": {"200": {"description": "Pets."}}}}
    document = {
        "openapi": "3.1.0", "servers": [{"url": "http://127.0.0.1:9"}], "paths": {"/pets": pets},
        "info": {"title": "Pets\x1b[2J", "version": "1", "description": "A shop of pets.\n" + "x" * 5_000},
    }  # fmt: skip
    server = tools_of("far", title="Far away", instructions="Ask politely.")
    async with OperationRegistry(load_plugins(only=["mcp", "openapi"])) as registry:
        await registry.load("openapi", namespace="shop", spec=document)
        *named, instructions = await described()
        assert named == ["shop", "Pets"]
        assert instructions.startswith("Pets: A shop of pets.\nxxx")
        assert len(instructions) == len("Pets: ") + 2_000
        await registry.load("mcp", namespace="far", server=server)
        *named, instructions = await described()
        assert named == ["operad", "Far away, Pets"]
        assert instructions.startswith("Far away: Ask politely.\n\nPets: A shop")
        await registry.load("mcp", namespace="wide", server=tools_of("wide", title="x" * 300))
        assert (await described())[1] == f"Far away, Pets, {'x' * 184}"
        chosen = {"name": "mine", "title": "Mine", "instructions": "Use it."}
        assert await described(**chosen) == tuple(chosen.values())


@pytest.mark.parametrize(("code", "is_told"), [(-32601, False), (-32050, True)])
async def test_a_listing_that_a_server_cannot_give_costs_its_other_listings_nothing(
    code: int, is_told: bool, caplog: Log
) -> None:
    broken = always(MCPError(code, "no"))
    server = tools_of("half", LOOK, on_list_prompts=broken, on_list_resources=broken)
    async with loaded("h", server=server) as registry:
        assert registry.get_spec("h.look") is not None
        assert ("prompts cannot be listed" in caplog.text) is is_told
    with pytest.raises(SourceError, match="no"):
        async with loaded("h", server=Server("none", on_list_tools=broken)):
            pass


@peers.table("declared_inputs")
async def test_an_operation_of_a_server_takes_what_it_declares_and_nothing_else(name: str, good: Any) -> None:
    async with loaded("f", server=foreign()) as registry:
        assert spec_of(registry, f"f.{name}").input_schema.is_valid(good)
        for bad in ({}, {**good, "more": 1}):
            with pytest.raises(CallError, match="VALIDATION_ERROR"):
                await registry.execute(f"f.{name}", bad)
