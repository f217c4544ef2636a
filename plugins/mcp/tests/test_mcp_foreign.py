"""Names and text that remote servers choose: what reaches terminals, logs and models of them."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from mcp.server.lowlevel import Server

from operad import OperationContext, OperationRegistry
from operad_mcp import to_mcp
from operad_mcp.foreign import clean_text, one_line
from plugins.mcp.tests.peers import MODES, Caller, Log, fails, plain, raw, spec_of

HIDDEN = "\U000e0041\U000e0042"
DIRTY = f"a\x1b[2J\x1b]0;title\x07b\x07 \u202ec{HIDDEN}\u200b\r\nd\te\x9b31m"
CLEAN = "ab c\nd\te"


def tool(name: str, **more: Any) -> types.Tool:
    return types.Tool.model_validate({"name": name, "inputSchema": {"type": "object"}, **more})


def server_of(*tools: types.Tool) -> Server[Any]:
    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(tools))

    async def called(ctx: Any, params: Any) -> types.CallToolResult:
        if params.name == "logs":
            await ctx.session.send_log_message("warning", "low\x1b[2J\nERROR forged")
            asked = await ctx.session.elicit_form(f"Name\x1b[2J{HIDDEN}?", {"type": "object", "properties": {}})
            return types.CallToolResult(content=[types.TextContent(type="text", text=asked.action)])
        if params.name == "fails":
            raise MCPError(-32000, "no\x1b[31m such\nERROR forged line", {"kept": "\x1b"})
        return types.CallToolResult(content=[types.TextContent(type="text", text=params.name)])

    return Server(f"far{HIDDEN}", instructions=DIRTY, on_list_tools=listed, on_call_tool=called)


async def loaded(registry: OperationRegistry, *tools: types.Tool, **options: Any) -> list[str]:
    await registry.load("mcp", namespace="s", server=server_of(*tools), **options)
    return sorted(spec.name for spec in registry.specs())


@pytest.fixture
async def registry() -> Any:
    async with plain() as made:
        yield made


@MODES
async def test_descriptions_have_no_escape_sequences_and_no_invisible_characters(
    mode: Any, registry: OperationRegistry
) -> None:
    schema = {"type": "object", "properties": {"p": {"type": "string", "title": DIRTY, "description": DIRTY}}}
    dirty = tool("t", title=DIRTY, description=DIRTY, inputSchema=schema, outputSchema=schema)
    await loaded(registry, dirty, tool("long", description="x" * 500_000), mode=mode, server_operations=True)
    spec = spec_of(registry, "s.t")
    assert (spec.title, spec.description) == (CLEAN, CLEAN)
    cleaned = {"type": "object", "properties": {"p": {"type": "string", "title": CLEAN, "description": CLEAN}}}
    assert (spec.input_schema.raw, spec.output_schema.raw) == (cleaned, cleaned)
    assert len(spec_of(registry, "s.long").description) == 65_536
    about = (await registry.execute("s.server.about")).data
    assert (about["instructions"], about["server"]["name"]) == (CLEAN, "far")


async def test_a_description_of_60000_characters_is_whole(registry: OperationRegistry) -> None:
    text = "Servers in use have descriptions of 40,000 characters.\n".ljust(60_000, "x")
    await loaded(registry, tool("t", description=text))
    assert spec_of(registry, "s.t").description == text


async def test_the_message_of_a_servers_error_is_one_line_and_its_details_are_as_sent(
    registry: OperationRegistry,
) -> None:
    await loaded(registry, tool("fails"))
    error = await fails(registry.execute("s.fails"))
    assert error.message == 'MCP server "s": no such ERROR forged line'
    assert error.details["message"] == "no\x1b[31m such\nERROR forged line"
    assert error.details["data"] == {"kept": "\x1b"}


@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
async def test_questions_and_logs_of_a_server_have_no_escape_sequences(
    registry: OperationRegistry, caplog: Log
) -> None:
    user = Caller("decline")
    await loaded(registry, tool("logs"), mode="legacy", elicitation="caller")
    answer = await registry.execute("s.logs", {}, OperationContext(client=user))
    assert answer.meta.content[0].text == "decline"
    assert [message for message, *_ in user.asked] == ["s.logs asks: Name?"]
    assert "s: low ERROR forged" in caplog.text


def test_text_that_people_read_stays_as_it_is() -> None:
    for text in ("Größe\n\t日本語 עברית العربية", "👩\u200d🚀 می\u200cخواهم ☎\ufe0f"):
        assert clean_text(text) == text
    assert one_line(" a\n\tb ") == "a b"
    assert len(one_line("x" * 10_000)) == 2_001


async def test_a_tool_keeps_its_name_if_another_one_has_to_be_renamed_to_it(registry: OperationRegistry) -> None:
    own = {"_meta": {"operad/id": "a.b"}}
    names = await loaded(registry, tool("x\u200dy"), tool("x_y"), tool("a_b", **own), tool("a.b"))
    assert names == ["a.b", "x_y"]
    for name in names:
        assert (await registry.execute(f"s.{name}")).meta.content[0].text == name


async def test_an_id_is_used_only_for_the_name_that_operad_makes_of_it(registry: OperationRegistry) -> None:
    ids = {"delete_all": "other.read_only", "look": ["x"], "shop_buy": "shop.buy"}
    sly = [tool(name, _meta={"operad/id": own}) for name, own in ids.items()]
    assert await loaded(registry, *sly, include=["shop.*", "delete*"]) == ["delete_all", "shop.buy"]


async def test_a_gateway_before_an_operad_with_plain_names_keeps_them(registry: OperationRegistry) -> None:
    inner = raw(OperationRegistry(), "add", 1)
    await registry.load("mcp", namespace="s", server=to_mcp(inner, names="name").server())
    assert [spec.id for spec in registry.specs()] == ["s.add"]


@pytest.mark.parametrize(("clean", "most", "cut"), [(one_line, 2_000, 2_001), (clean_text, 65_536, 65_536)])
def test_a_text_is_cut_above_its_limit_and_not_at_it(clean: Any, most: int, cut: int) -> None:
    assert clean("x" * most) == "x" * most
    assert clean("x" * (most + 1)) == "x" * (cut - 1) + "…"
    assert clean("\u200b" * most + "x" * (most + 1)) == "x" * most  # invisible characters do not fill the limit
