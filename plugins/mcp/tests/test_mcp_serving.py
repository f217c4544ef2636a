"""A registry served as an MCP server, in memory, to the SDK's own client, in both generations of the protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import attrs
import mcp_types as types
import pytest
from mcp import Client, MCPError

import operad
from operad import CallError, ConfigError, OperationContext, OperationRegistry, from_schema, operation
from operad.registry.base import RegistryBase
from operad_mcp import MCPServing, client_of, mcp_envelope, to_mcp
from operad_testing import hostile_schemas, make_plugin, plugins_of
from plugins.mcp.tests.peers import MODES, Log, Slow, plain, raw, table

PAGE = {"mcp": {"kind": "resource", "uri": "a:b"}}
PROMPT = {"mcp": {"kind": "prompt"}}


@operation(namespace="m", type="query", title="Add")
async def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


@operation(namespace="m", idempotent=True)
async def pair(left: str, right: str | None = None) -> dict[str, str | None]:
    """Both."""
    return {"left": left, "right": right}


@operation(namespace="m", type="query")
async def maybe(there: bool) -> int | None:
    """A number or nothing."""
    return 1 if there else None


@operation(namespace="m", access_control=operad.AccessControl(required_scopes=("write",)))
async def guarded() -> str:
    """For writers."""
    return "written"


@operation(namespace="m")
async def count(to: int) -> AsyncIterator[int]:
    """Numbers."""
    for number in range(to):
        yield number


def registry(**answers: Any) -> OperationRegistry:
    """The operations above, and one for each of these answers."""
    made = plain()
    for one in (add, pair, maybe, guarded, count):
        made.register(one)
    for name, answer in answers.items():
        raw(made, name, answer)
    return made


async def echo(input: Any, context: OperationContext) -> Any:
    return input


def error_of(answer: Any) -> Any:
    """The error of a result that says that a call failed."""
    assert answer.is_error
    assert answer.structured_content is None
    return answer.meta["operad/error"]


def client(served: MCPServing | OperationRegistry, mode: str = "2026-07-28", **options: Any) -> Client:
    serving = served if isinstance(served, MCPServing) else to_mcp(served)
    return Client(serving.server(), mode=mode, **options)


async def tools_of(session: Client) -> dict[str, Any]:
    return {tool.name: tool for tool in (await session.list_tools()).tools}


async def called(served: Any, name: str, arguments: Any = None, mode: str = "2026-07-28", **options: Any) -> Any:
    """The result of one call."""
    async with client(served, mode, **options) as session:
        return await session.call_tool(f"m_{name}", arguments or {})


# --- listing -----------------------------------------------------------------------------------------


HOSTILE = hostile_schemas()


@MODES
async def test_hostile_schemas_fail_no_listing_and_what_cannot_be_told_is_said_once(
    mode: str, caplog: Log
) -> None:
    made = registry()
    for name, schema in HOSTILE.items():
        raw(made, name, "x", input_schema=schema, output_schema=schema, metadata={"_meta": {"a": 1}})
    raw(made, "meta", "x", metadata={"_meta": {"a": "\ud800", "b": 10**4400}})
    caplog.set_level("WARNING", "operad.mcp")
    async with client(made, mode) as session:
        for _ in range(2):
            tools = await tools_of(session)
        assert (await session.call_tool("m_add", {"a": 1, "b": 2})).content[0].text == "3"
    assert tools.keys() == {"m_add", "m_count", "m_maybe", "m_pair", "m_meta", *(f"m_{name}" for name in HOSTILE)}
    assert tools["m_add"].input_schema["required"] == ["a", "b"]
    assert tools["m_digits"].input_schema == {"type": "object", "properties": {"a": {}}}
    assert list(tools["m_surrogate"].input_schema["properties"]) == ["\\udc80"]
    assert tools["m_unbuilt"].input_schema == {"type": "object"}
    (said,) = [one.getMessage() for one in caplog.records if "unbuilt" in one.getMessage()]
    assert "no such document" in said


@MODES
async def test_operations_are_tools_with_safe_names_schemas_and_hints_of_their_type(mode: str) -> None:
    async with client(registry(), mode) as session:
        tools = await tools_of(session)
    assert sorted(tools) == ["m_add", "m_count", "m_maybe", "m_pair"]
    added, hints = tools["m_add"], tools["m_pair"].annotations
    assert (added.title, added.description) == ("Add", "The sum.")
    assert added.meta == {"operad/id": "m.add", **({"operad/wrapped": True} if mode == "legacy" else {})}
    assert added.input_schema["required"] == ["a", "b"]
    assert added.annotations.read_only_hint is True
    assert (hints.idempotent_hint, hints.read_only_hint) == (True, False)


async def test_every_tool_has_a_description_and_an_object_as_its_input() -> None:
    made = OperationRegistry()
    schemas: list[Any] = [None, True, {"type": ["object", "null"]}, {"anyOf": [{"required": ["a"]}]}]
    for number, schema in enumerate(schemas):
        raw(made, f"n{number}", "x", input_schema=schema)
    definitions = {"$defs": {"N": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/N"}}
    raw(made, "list", echo, input_schema=definitions)
    async with client(made) as session:
        tools = await tools_of(session)
        called = await session.call_tool("m_list", {"input": [1, 2]})
        refused = await session.call_tool("m_list", {"input": ["x"]})
    assert len(tools) == 5
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools.values())
    assert called.structured_content == [1, 2]
    assert refused.is_error


async def test_a_long_name_is_cut_with_a_hash_and_still_leads_to_its_operation() -> None:
    made = OperationRegistry()
    for name in ("x" * 70, "x" * 71, "a.b", "a/b"):
        raw(made, name, name)
    async with client(made) as session:
        for name, tool in (await tools_of(session)).items():
            assert len(name) <= 50
            assert f"m.{(await session.call_tool(name)).content[0].text}" == tool.meta["operad/id"]


async def test_names_may_leave_the_namespace_out() -> None:
    async with client(to_mcp(registry(), names="name")) as session:
        assert "add" in await tools_of(session)


@MODES
async def test_a_listing_has_pages_and_a_cursor_that_nobody_gave_is_refused(mode: str) -> None:
    made = OperationRegistry()
    for number in range(25):
        raw(made, f"n{number:02}", number)
    async with client(to_mcp(made, page_size=10), mode) as session:
        names, cursor = [], None
        for _ in range(3):
            page = await session.list_tools(cursor=cursor)
            names += [tool.name for tool in page.tools]
            cursor = page.next_cursor
        assert cursor is None
        assert names == sorted(names)
        assert len(names) == 25
        with pytest.raises(MCPError, match="cursor"):
            await session.list_tools(cursor="7")


@MODES
async def test_resources_templates_and_prompts_have_pages_and_refuse_other_cursors(mode: str) -> None:
    made = OperationRegistry()
    for number in range(5):
        for kind, place in (("resource", "uri"), ("resourceTemplate", "uriTemplate"), ("prompt", "other")):
            fields = {place: f"a:b{number}/{{x}}", "icons": [{"no": "src"}] if number == 4 else []}
            raw(made, f"{kind}{number}", 1, metadata={"mcp": {"kind": kind, **fields}})
    async with client(to_mcp(made, page_size=2), mode) as session:
        for listing, key in (
            (session.list_resources, "resources"),
            (session.list_resource_templates, "resource_templates"),
            (session.list_prompts, "prompts"),
        ):
            pages = [await listing(cursor=cursor) for cursor in (None, "2", "4", "5")]  # type: ignore[operator]  # each of them
            assert [len(getattr(page, key)) for page in pages] == [2, 2, 0, 0]  # the last one has no valid icon
            assert [page.next_cursor for page in pages] == ["2", "4", None, None]
            for cursor in ("6", "-1", "x", "\u0663", ""):
                with pytest.raises(MCPError, match="expected a nextCursor of"):
                    await listing(cursor=cursor)  # type: ignore[operator]  # each of them


async def test_a_tool_that_the_protocol_refuses_does_not_cost_the_others(caplog: Log) -> None:
    unusable = {"mcp": {"kind": "tool", "icons": [{"no": "src"}]}, "annotations": {"title": 7}}
    async with client(raw(registry(), "odd", "x", metadata=unusable)) as session:
        assert (await tools_of(session))["m_odd"].icons is None
    assert "without some of its fields" in caplog.text


async def test_an_output_schema_that_reaches_a_whole_api_is_not_told() -> None:
    links = [{"$ref": f"#/$defs/S{n}"} for n in range(201)]
    chain = {f"S{n}": {"type": "object", "properties": {"next": links[n + 1]}} for n in range(200)}
    made = registry()
    for name, number in (("large", 0), ("small", 198)):
        raw(made, name, {"next": {}}, output_schema=from_schema(links[number], document={"$defs": chain}))
    async with client(made) as session:
        tools = await tools_of(session)
        assert tools["m_large"].output_schema is None
        assert tools["m_small"].output_schema is not None
        assert (await session.call_tool("m_large", {})).structured_content == {"next": {}}


# --- calling -----------------------------------------------------------------------------------------


@MODES
async def test_data_are_structured_and_text_and_wrapped_where_a_client_knows_objects_only(mode: str) -> None:
    async with client(registry(), mode) as session:
        number = await session.call_tool("m_add", {"a": 2, "b": 3})
        both = await session.call_tool("m_pair", {"left": "l"})
        none = await session.call_tool("m_maybe", {"there": False})
    assert number.content[0].text == "5"
    structured = [answer.structured_content for answer in (number, both, none)]
    five = {"result": 5} if mode == "legacy" else 5
    assert structured == [five, {"left": "l", "right": None}, {"result": None}]
    assert not any(answer.is_error for answer in (number, both, none))


@MODES
async def test_errors_are_results_with_code_and_details_and_what_is_undeclared_is_masked(
    mode: str, caplog: Log
) -> None:
    made = registry(domain=CallError("SOLD_OUT", "no more", {"left": 0}), broken=KeyError("password=hunter2"))
    async with client(made, mode) as session:
        answers = [await session.call_tool(f"m_{name}", {}) for name in ("add", "domain", "broken", "guarded")]
        with pytest.raises(MCPError, match="Unknown tool") as unknown:
            await session.call_tool("m_nothing", {})
    assert unknown.value.code == -32602
    codes = [error_of(answer)["code"] for answer in answers]
    assert codes == ["VALIDATION_ERROR", "SOLD_OUT", "EXECUTION_ERROR", "ACCESS_DENIED"]
    assert error_of(answers[1])["details"] == {"left": 0}
    assert "hunter2" not in answers[2].model_dump_json()
    assert "hunter2" in caplog.text


@pytest.mark.parametrize("exposed", [False, True])
async def test_errors_keep_addresses_of_upstream_servers_inside_unless_they_are_exposed(exposed: bool) -> None:
    made = registry()
    url = "http://10.0.0.3:9009/items/99"
    details = {"statusCode": 404, "url": url, "method": "GET", "headers": {"x-node": "n7"}, "body": "none"}
    raw(made, "lost", CallError("EXECUTION_ERROR", f"GET {url}: 404 Not Found", details))
    raw(made, "note", CallError("UNAVAILABLE", f"GET {url}: no connection", details), metadata=PAGE)
    async with client(to_mcp(made, expose_upstream=exposed)) as session:
        answer = await session.call_tool("m_lost", {})
        with pytest.raises(MCPError) as caught:
            await session.read_resource("a:b")
    text = answer.model_dump_json() + str(caught.value) + json.dumps(caught.value.error.data)
    assert ("10.0.0.3" in answer.content[0].text) == exposed
    assert ("10.0.0.3" in text) == exposed
    assert error_of(answer)["details"]["statusCode"] == 404
    assert exposed or error_of(answer)["message"] == "the upstream server: 404 Not Found"


@MODES
async def test_data_that_json_cannot_hold_are_an_error_of_their_call_alone(mode: str) -> None:
    odd = [float("nan"), {1, 2}, {"a": object()}, {7: "x"}, "half \ud800 pair", {"\ud800": 1}]
    async with client(registry(**{f"odd{n}": data for n, data in enumerate(odd)}), mode) as session:
        codes = [error_of(await session.call_tool(f"m_odd{number}"))["code"] for number in range(len(odd))]
        assert codes == ["SERIALIZATION_ERROR"] * len(odd)
        assert (await session.call_tool("m_add", {"a": 1, "b": 1})).content[0].text == "2"


@MODES
async def test_data_of_any_depth_and_size_arrive(mode: str) -> None:
    deep: list[Any] = [0]
    for _ in range(300):
        deep.append([deep[-1]])
    made = registry(
        large={"text": "é" * 1_000_000}, **{f"deep{levels}": {"a": deep[levels]} for levels in (99, 100, 300)}
    )
    async with client(to_mcp(made, result_bytes=8_000_000), mode) as session:
        for levels in (99, 100, 300):
            answer = await session.call_tool(f"m_deep{levels}", {})
            assert answer.content[0].text.count("[") == levels
            assert (answer.structured_content is None) is (levels > 99)
        assert len((await session.call_tool("m_large", {})).structured_content["text"]) == 1_000_000


LINES = "\n".join(f'"line" {number} é' for number in range(1_000))
"""12 KB that JSON escapes."""
ROWS = {"rows": LINES.splitlines()}
OF_ROWS = from_schema({"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]})


@MODES
async def test_a_result_above_the_limit_is_cut_and_says_so_and_has_no_second_copy(mode: str) -> None:
    made = registry(text=LINES, rows=ROWS)
    cut = r"\[cut: the result has \d+ bytes, result_bytes allows 10000; 1 of 1 blocks .*\]"
    written = json.dumps(ROWS, ensure_ascii=False, separators=(",", ":"))
    async with client(to_mcp(made, result_bytes=10_000), mode) as session:
        for name, whole in (("text", LINES), ("rows", written)):
            answer = await session.call_tool(f"m_{name}", {})
            assert answer.structured_content is None
            text, note = (block.text for block in answer.content)
            assert len(text) > 5_000
            assert whole.startswith(text)
            assert len(answer.model_dump_json()) < 11_000
            assert re.fullmatch(cut, note)
    async with client(to_mcp(made, result_bytes=30_000), mode) as session:
        answer = await session.call_tool("m_rows", {})
        assert (answer.structured_content, len(answer.content)) == (None, 2)
        assert json.loads(answer.content[0].text) == ROWS
        assert answer.content[1].text.endswith("; structuredContent is left out]")


@MODES
async def test_data_above_the_limit_of_a_tool_with_a_schema_are_an_error_or_have_one_copy(mode: str) -> None:
    made = raw(registry(), "rows", ROWS, output_schema=OF_ROWS)
    for limit in (10_000, 30_000, 100_000):
        async with client(to_mcp(made, result_bytes=limit), mode) as session:
            await session.list_tools()
            answer = await session.call_tool("m_rows", {})
        if limit == 10_000:
            assert error_of(answer)["code"] == "PAYLOAD_TOO_LARGE"
            assert "result_bytes" in answer.content[0].text
        else:
            assert answer.structured_content == ROWS
            assert (len(answer.content[0].text) < 100) is (limit == 30_000)


@MODES
async def test_of_two_copies_the_text_goes_and_the_pictures_stay(mode: str) -> None:
    picture = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    content = [{"type": "text", "text": json.dumps(ROWS)}, picture]
    answer = mcp_envelope(ROWS, content=content, structured_content=ROWS)
    made = raw(registry(), "rows", answer, output_schema=OF_ROWS)
    found = await called(to_mcp(made, result_bytes=30_000), "rows", mode=mode)
    assert found.structured_content == ROWS
    assert [block.type for block in found.content] == ["text", "image"]
    assert found.content[0].text == "The result is in structuredContent."


@MODES
async def test_a_stream_ends_below_the_limit_of_a_result(mode: str) -> None:
    answer = await called(to_mcp(registry(), result_bytes=2_048), "count", {"to": 100_000}, mode)
    assert answer.structured_content["truncated"] is True
    assert len(answer.model_dump_json()) < 4_096


@MODES
async def test_a_resource_or_a_prompt_above_the_limit_is_an_error(mode: str) -> None:
    made = raw(raw(registry(), "page", LINES, metadata=PAGE), "ask", LINES, metadata=PROMPT)
    async with client(to_mcp(made, result_bytes=10_000), mode) as session:
        with pytest.raises(MCPError, match="result_bytes"):
            await session.read_resource("a:b")
        with pytest.raises(MCPError, match="result_bytes"):
            await session.get_prompt("m_ask")


@attrs.frozen
class Picture:
    source = "picture"
    content_type: str


@pytest.mark.parametrize(
    ("mime", "kind"), [("image/png", "image"), ("audio/wav; q=1", "audio"), ("application/pdf", "resource")]
)
async def test_bytes_are_a_block_of_their_media_type(mime: str, kind: str) -> None:
    block = (await called(registry(bytes=operad.ResponseEnvelope(b"\x00\xff", Picture(mime))), "bytes")).content[0]
    assert block.type == kind
    assert base64.b64decode(block.resource.blob if kind == "resource" else block.data) == b"\x00\xff"


@table("media_types")
async def test_a_resource_has_the_media_type_that_it_declares_or_that_of_its_data(
    data: Any, declared: Any, kind: str, mime: str | None, value: str
) -> None:
    data = b"\x00" if kind == "blob" else data
    place = {} if declared is None else {"mimeType": declared}
    made = raw(registry(), "page", data, metadata={"mcp": {**PAGE["mcp"], **place}})
    template = {"kind": "resourceTemplate", "uriTemplate": "t:{name}/{?q}", **place}
    raw(made, "broken", data, metadata={"mcp": {**template, "uriTemplate": "t:{"}})
    raw(made, "template", echo if data == "text" else data, metadata={"mcp": template})
    async with client(made) as session:
        (read,) = (await session.read_resource("a:b")).contents
        assert (read.uri, read.mime_type, getattr(read, kind)) == ("a:b", mime, value)
        (read,) = (await session.read_resource("t:n/?q=1")).contents
        assert read.uri == "t:n/?q=1"
        assert getattr(read, kind) == ('{"name":"n","q":"1"}' if data == "text" else value)
        for uri in ("a:c", "t:n", "x:y"):
            with pytest.raises(MCPError, match="Resource not found") as raised:
                await session.read_resource(uri)
            assert (raised.value.code, raised.value.data) == (-32602, {"uri": uri})


@table("failed_reads")
async def test_a_resource_or_a_prompt_that_fails_is_an_error_with_its_code(
    error: Any, read: int, got: int, words: str
) -> None:
    made = raw(registry(), "page", CallError(*error), metadata=PAGE)
    raw(made, "ask", CallError(*error), metadata=PROMPT)
    async with client(to_mcp(made, mask_errors=False)) as session:
        with pytest.raises(MCPError, match=words) as raised:
            await session.read_resource("a:b")
        assert (raised.value.code, raised.value.data["uri"]) == (read, "a:b")
        with pytest.raises(MCPError, match=error[1]) as raised:
            await session.get_prompt("m_ask")
        assert (raised.value.code, raised.value.data["error"]["code"]) == (got, error[0])
        with pytest.raises(MCPError, match="Unknown prompt: no") as raised:
            await session.get_prompt("no")
        assert raised.value.code == -32602


@table("prompts")
async def test_a_prompt_has_the_messages_of_its_data_and_its_arguments_from_its_schema(
    data: Any, described: str, texts: list[str]
) -> None:
    fields = {"a": {"type": "string", "description": "An a."}, "b": {"description": 5}, "c": True}
    schema = {"type": "object", "properties": fields, "required": ["b"]}
    made = raw(registry(), "ask", data, description="Asks.", input_schema=schema, metadata=PROMPT)
    raw(made, "any", data, metadata={"mcp": {"kind": "prompt", "arguments": [{"name": "x"}]}})
    raw(made, "bare", data, metadata=PROMPT)
    async with client(made) as session:
        listed = {prompt.name: prompt.arguments or [] for prompt in (await session.list_prompts()).prompts}
        assert [(each.name, each.required, each.description) for each in listed["m_ask"]] == [
            ("a", False, "An a."), ("b", True, None), ("c", False, None),
        ]  # fmt: skip
        assert [len(listed[name]) for name in ("m_any", "m_bare")] == [1, 0]
        got = await session.get_prompt("m_ask", {"b": "x"})
        assert got.description == described
        assert [message.content.text for message in got.messages] == texts


@table("structured_content")
async def test_structured_content_of_another_server_is_where_its_client_looks_for_it(
    declared: bool, given: Any, structured: Any, error: Any
) -> None:
    envelope = mcp_envelope({"a": 1}, content=[{"type": "text", "text": "t"}], meta={"k": 1}, **given)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    made = raw(registry(), "far", envelope, **({"output_schema": schema} if declared else {}))
    answer = await called(made, "far")
    assert answer.is_error is ("is_error" in given)
    assert (answer.structured_content, answer.meta.get("operad/error"), answer.meta["k"]) == (structured, error, 1)


@MODES
async def test_a_result_that_breaks_its_own_schema_reaches_the_client_with_a_word_about_it(mode: str) -> None:
    made = OperationRegistry(on_mismatch="ignore")
    raw(made, "odd", {"n": "many"}, output_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    async with client(made, mode) as session:
        await session.list_tools()
        answer = await session.call_tool("m_odd", {})
    assert answer.is_error
    assert "does not match" in answer.content[0].text
    assert answer.content[1].text == '{"n":"many"}'


@MODES
async def test_a_subscription_is_progress_and_then_all_of_its_items(mode: str) -> None:
    seen: list[tuple[float, str | None]] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message))

    async with client(to_mcp(registry(), stream_items=3), mode) as session:
        whole = await session.call_tool("m_count", {"to": 2}, progress_callback=heard)
        cut = await session.call_tool("m_count", {"to": 100})
    assert whole.structured_content == {"items": [0, 1], "truncated": False}
    assert seen == [(1, "0"), (2, "1")]
    assert cut.structured_content == {"items": [0, 1, 2], "truncated": True}


async def test_a_subscription_without_an_end_is_left_when_its_time_is_over() -> None:
    slow = Slow()

    async def ticks(input: Any, context: OperationContext) -> AsyncIterator[int]:
        yield 1
        await slow(input, context)

    made = raw(OperationRegistry(), "ticks", ticks, type="subscription")
    for stream_timeout in (0.05, 1.0, 5.0):  # the longer ones where this process is slow to begin
        content = (await called(to_mcp(made, stream_timeout=stream_timeout), "ticks")).structured_content
        if content and content.get("items"):
            break
    assert content == {"items": [1], "truncated": True}
    assert slow.ended.is_set()


@MODES
async def test_who_cancels_a_call_cancels_its_handler_and_what_that_calls(mode: str) -> None:
    inner = Slow()

    async def outer(input: Any, context: OperationContext) -> Any:
        return (await context.env.m.inner()).data

    async with client(registry(inner=inner, outer=outer), mode) as session, asyncio.timeout(20):
        call = asyncio.ensure_future(session.call_tool("m_outer", {}))
        await inner.started.wait()
        call.cancel()
        await inner.ended.wait()
        await asyncio.gather(call, return_exceptions=True)
        assert (await session.call_tool("m_add", {"a": 1, "b": 1})).content[0].text == "2"


@MODES
async def test_a_call_that_takes_too_long_ends_in_a_timeout(mode: str) -> None:
    answer = await called(to_mcp(registry(forever=Slow()), timeout=0.05), "forever", mode=mode)
    assert error_of(answer)["code"] == "TIMEOUT"


# --- who calls ---------------------------------------------------------------------------------------


@MODES
async def test_without_its_scope_an_operation_is_not_listed_and_with_it_it_is_called(mode: str) -> None:
    async with client(to_mcp(registry(), identity={"id": "me", "scopes": ["write"]}), mode) as session:
        assert "m_guarded" in await tools_of(session)
        assert (await session.call_tool("m_guarded", {})).content[0].text == "written"
    async with client(to_mcp(registry(), identity={"id": "you"}), mode) as session:
        assert "m_guarded" not in await tools_of(session)
        assert (await session.call_tool("m_guarded", {})).is_error


# --- search ------------------------------------------------------------------------------------------


async def test_many_operations_are_searched_described_and_called_by_three_tools() -> None:
    async with client(to_mcp(registry(), tools="search")) as session:
        tools = await tools_of(session)
        assert [
            (name, each.annotations and (each.annotations.read_only_hint, each.annotations.open_world_hint),
             each.input_schema["required"], each.input_schema["additionalProperties"])
            for name, each in tools.items()
        ] == [
            ("search", (True, False), ["query"], False), ("describe", (True, False), ["id"], False),
            ("call", None, ["id"], False),
        ]  # fmt: skip
        found = await session.call_tool("search", {"query": "the sum", "limit": 1})
        assert [one["id"] for one in found.structured_content["operations"]] == ["m.add"]
        told = await session.call_tool("describe", {"id": "m.add"})
        assert told.structured_content["inputSchema"]["required"] == ["a", "b"]
        called = await session.call_tool("call", {"id": "m.add", "input": {"a": 2, "b": 3}})
        assert called.structured_content == 5
        stream = await session.call_tool("call", {"id": "m.count", "input": {"to": 1}})
        assert stream.structured_content == {"items": [0], "truncated": False}
        with pytest.raises(MCPError, match="Unknown tool"):
            await session.call_tool("m_add", {"a": 1, "b": 2})


async def test_search_mode_describes_titles_and_errors_and_calls_what_only_a_plugin_knows() -> None:
    def resolve(operation_id: str) -> Any:
        spec = operad.OperationSpec(namespace="later", name="echo")
        return operad.Operation(spec, echo) if operation_id == "later.echo" else None

    made = OperationRegistry(plugins_of(make_plugin("later", operad_resolve_operation=resolve)))
    small, large = {"type": "integer"}, {"enum": list(range(200))}
    errors = [operad.ErrorDefinition("LOST", "It is lost.", schema) for schema in (small, large)]
    raw(made, "titled", 1, title="A title", description="d", error_schemas=errors, output_schema=large)
    raw(made, "plain", 1)
    async with client(to_mcp(made, tools="search", output_values=100)) as session:
        found = await session.call_tool("call", {"id": "later.echo", "input": {"a": 1}})
        assert found.structured_content == {"a": 1}
        unknown = [await session.call_tool("call", {"id": name}) for name in ("later.other", "a b.c", "nothing")]
        assert [error_of(answer)["code"] for answer in unknown] == ["OPERATION_NOT_FOUND"] * 3
        told = (await session.call_tool("describe", {"id": "m.titled"})).structured_content
        stated = {"code": "LOST", "description": "It is lost."}
        assert told == {
            "id": "m.titled", "type": "mutation", "description": "d", "title": "A title", "inputSchema": told["inputSchema"],
            "errors": [{**stated, "schema": small}, stated],
        }  # fmt: skip
        told = (await session.call_tool("describe", {"id": "m.plain"})).structured_content
        assert told.keys() == {"id", "type", "description", "inputSchema"}


async def test_a_search_lets_the_index_grow_in_steps_first(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[object] = []

    async def prepare(self: RegistryBase) -> None:
        prepared.append(self)

    monkeypatch.setattr(RegistryBase, "prepare_search", prepare)
    async with client(to_mcp(registry(), tools="search")) as session:
        await session.call_tool("search", {"query": "sum"})
    assert len(prepared) == 1


async def test_search_returns_short_lines_and_an_unknown_id_a_similar_one() -> None:
    made = registry()
    raw(made, "long", 1, description=f"Do {'a lot ' * 100}.\n\nIn detail.")
    async with client(to_mcp(made, tools="search")) as session:
        found = await session.call_tool("search", {"query": "long", "limit": 1})
        (line,) = found.content[0].text.splitlines()
        assert line.startswith("m.long (mutation): Do a lot")
        assert found.structured_content["operations"][0]["description"] == line.partition(": ")[2]
        assert len(line.partition(": ")[2]) == 121
        for name, meant in (("add", "m.add"), ("m/add", "m.add"), ("m.pairs", "m.pair"), ("guarded", None)):
            answer = await session.call_tool("describe", {"id": name})
            hint = f'did you mean "{meant}"?' if meant else "use search"
            assert hint in answer.content[0].text
        assert "m.add" in (await session.call_tool("call", {"id": "add", "input": {}})).content[0].text


async def test_an_input_that_a_model_writes_as_json_text_is_parsed_unless_text_is_what_is_taken() -> None:
    made = raw(registry(), "text", echo, input_schema=from_schema({"type": "string"}))
    async with client(to_mcp(made, tools="search")) as session:
        for name, given, data in (("m.add", '{"a": 2, "b": 3}', 5), ("m.text", '{"a": 2}', '{"a": 2}')):
            answer = await session.call_tool("call", {"id": name, "input": given})
            assert answer.structured_content == data
        wrong = await session.call_tool("call", {"id": "m.add", "input": "{a: 2}"})
        assert error_of(wrong)["code"] == "VALIDATION_ERROR"


async def test_errors_have_no_headers_of_http() -> None:
    details = {"statusCode": 404, "headers": {"server": "inner", "date": "today"}, "body": "none"}
    answer = await called(registry(gone=CallError("NOT_FOUND", "g" * 5_000, details)), "gone")
    assert error_of(answer)["details"] == {"statusCode": 404, "body": "none"}
    assert error_of(answer)["message"] == "g" * 4_000
    assert "inner" not in answer.model_dump_json()


async def test_search_shows_and_calls_nothing_that_the_caller_may_not_call() -> None:
    async with client(to_mcp(registry(), tools="search")) as session:
        found = await session.call_tool("search", {"query": "for writers"})
        assert "m.guarded" not in [one["id"] for one in found.structured_content["operations"]]
        for tool, code, *inputs in (
            ("describe", "OPERATION_NOT_FOUND", {"id": "m.guarded"}, {"id": "m.nothing"}),
            ("call", "ACCESS_DENIED", {"id": "m.guarded"}),
            (
                "search",
                "VALIDATION_ERROR",
                {},
                {"query": 7},
                {"query": "x", "limit": 0},
                {"query": "x", "limit": 51},
            ),
        ):
            for given in inputs:
                assert error_of(await session.call_tool(tool, given))["code"] == code


async def test_a_search_finds_ten_operations_and_looks_further_than_those_that_the_caller_may_not_see() -> None:
    made = OperationRegistry()
    for number in range(60):
        guard = operad.AccessControl(required_scopes=("write",)) if number < 45 else None
        raw(made, f"n{number:02}", number, description="One and the same.", access_control=guard)
    raw(made, "x" * 30, 1)
    async with client(to_mcp(made, tools="search")) as session:
        for given, count in (({}, 10), ({"limit": 1}, 1), ({"limit": 50}, 15)):
            found = await session.call_tool("search", {"query": "one and the same", **given})
            assert len(found.structured_content["operations"]) == count
        for more, hint in ((8, "did you mean"), (9, "use search")):
            answer = await session.call_tool("describe", {"id": "m." + "x" * (30 + more)})
            assert hint in answer.content[0].text


async def test_a_page_of_large_tools_ends_early_and_the_next_one_goes_on() -> None:
    made = OperationRegistry()
    for name in ("a", "b", "c", "d", "e"):
        raw(made, name, 1, description="x" * 49_030)
    async with client(made) as session:
        cursor, pages = None, []
        for _ in range(3):
            page = await session.list_tools(cursor=cursor)
            pages.append([tool.name for tool in page.tools])
            cursor = page.next_cursor
    assert (pages, cursor) == ([["m_a", "m_b"], ["m_c", "m_d"], ["m_e"]], None)


async def test_with_code_the_tools_are_those_of_code_mode_and_without_them_a_warning_says_what_is_missing(
    caplog: Log,
) -> None:
    pytest.importorskip("operad_code")
    made = OperationRegistry(operad.load_plugins(only=["mcp", "code"]))
    made.register(add)
    async with client(to_mcp(made, tools="code")) as session:
        assert await tools_of(session) == {}
        assert 'needs a source of type "code"' in caplog.text
        raw(made, "run", 1, metadata={"operad.code": {}})
        assert list(await tools_of(session)) == ["m_run"]
        with pytest.raises(MCPError, match="Unknown tool"):
            await session.call_tool("m_add", {"a": 1, "b": 2})
    with pytest.raises(operad.PluginError, match="code"):
        client(to_mcp(plain(), tools="code"))


async def test_above_a_hundred_operations_search_is_what_clients_see() -> None:
    made = OperationRegistry()
    for number in range(101):
        raw(made, f"n{number}", number)
    for options, count in (({}, 3), ({"tools": "all", "page_size": 200}, 101)):
        async with client(to_mcp(made, **options)) as session:
            assert len(await tools_of(session)) == count


# --- the client --------------------------------------------------------------------------------------

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


async def greet(input: Any, context: OperationContext) -> Any:
    answer = await client_of(context).elicit("Who are you?", NAME)
    again = await client_of(context).elicit("And your friend?", NAME)
    return [answer["content"]["name"], again["content"]["name"]]


@MODES
async def test_a_handler_asks_the_user_in_either_generation(mode: str) -> None:
    asked: list[str] = []

    async def elicit(context: Any, params: Any) -> Any:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": f"N{len(asked)}"})

    answer = await called(registry(greet=greet), "greet", mode=mode, elicitation_callback=elicit)
    assert answer.content[0].text == '["N1","N2"]'
    assert asked == ["Who are you?", "And your friend?"]


@MODES
async def test_a_handler_learns_that_its_client_cannot_be_asked(mode: str) -> None:
    async def careful(input: Any, context: OperationContext) -> Any:
        try:
            return await greet(input, context)
        except CallError as error:
            return f"nobody: {error.details['requiredCapabilities']}"

    async with client(registry(greet=greet, careful=careful), mode) as session:
        assert (await session.call_tool("m_careful", {})).content[0].text == "nobody: {'elicitation': {}}"
        if mode == "legacy":
            assert (await session.call_tool("m_greet", {})).is_error
        else:
            with pytest.raises(MCPError) as raised:
                await session.call_tool("m_greet", {})
            assert raised.value.code == -32021
            assert raised.value.data == {"requiredCapabilities": {"elicitation": {}}}


@MODES
async def test_a_handler_asks_the_model_and_for_the_places_of_its_client(mode: str) -> None:
    async def sample(context: Any, params: Any) -> Any:
        text = types.TextContent(type="text", text="4")
        if params.max_tokens == 3:
            return types.CreateMessageResult(role="assistant", model="m3", content=text)
        return types.CreateMessageResultWithTools(role="assistant", model="m4", content=[text, text])

    async def roots(context: Any) -> Any:
        return types.ListRootsResult(roots=[types.Root(uri="file:///a")])

    async def think(input: Any, context: OperationContext) -> Any:
        asked = client_of(context)
        message = {"role": "user", "content": {"type": "text", "text": "2+2"}}
        sampled, places = await asyncio.gather(asked.sample([message], max_tokens=3), asked.roots())
        several = await asked.sample([message], max_tokens=4)
        texts = [sampled["content"]["text"], *(block["text"] for block in several["content"])]
        return [sampled["model"], texts, places, sorted(asked.capabilities)]

    options: Any = {"sampling_callback": sample, "list_roots_callback": roots}
    answer = await called(registry(think=think), "think", mode=mode, **options)
    found = json.loads(answer.content[0].text)
    assert found == ["m3", ["4", "4", "4"], [{"uri": "file:///a"}], ["roots", "sampling"]]


@MODES
@pytest.mark.parametrize("content", [{"name": 5}, {}, None])
async def test_an_answer_that_does_not_fit_the_form_is_an_error_or_asked_for_again(
    mode: str, content: Any
) -> None:
    answers: list[Any] = [content, {"name": "Ada"}, {"name": "Bob"}]

    async def elicit(context: Any, params: Any) -> Any:
        return types.ElicitResult(action="accept", content=answers.pop(0))

    answer = await called(registry(greet=greet), "greet", mode=mode, elicitation_callback=elicit)
    if mode == "legacy":
        assert "the client's answer to elicitation/create cannot be used" in answer.content[0].text
        assert len(answers) == 2
    else:
        assert answer.content[0].text == '["Ada","Bob"]'


async def test_a_question_that_the_client_rejects_is_an_error_with_its_code() -> None:
    async def elicit(context: Any, params: Any) -> Any:
        return types.ErrorData(code=-32050, message="not now")

    answer = await called(registry(greet=greet), "greet", mode="legacy", elicitation_callback=elicit)
    assert error_of(answer)["details"]["jsonrpcCode"] == -32050
    assert "the client rejected elicitation/create: not now" in answer.content[0].text


@MODES
@pytest.mark.parametrize("url", ["https://as.example/yes", "http://as.example/yes", "javascript:alert()", None])
async def test_a_user_who_must_agree_first_is_sent_there_once(mode: str, url: Any) -> None:
    visits: list[Any] = []

    async def elicit(context: Any, params: Any) -> Any:
        visits.append((params.mode, params.message, params.url))
        return types.ElicitResult(action="accept")

    async def connected(input: Any, context: OperationContext) -> Any:
        if not visits:
            raise CallError("AUTHORIZATION_REQUIRED", "agree first", {"url": url})
        return "agreed"

    served = to_mcp(registry(connected=connected), mask_errors=False)
    is_asked = isinstance(url, str) and url.startswith("http")
    async with client(served, mode, elicitation_callback=elicit) as session:
        if mode == "legacy" and is_asked:
            with pytest.raises(MCPError, match="agree first") as raised:
                await session.call_tool("m_connected", {})
            (asked,) = raised.value.data["elicitations"]
            assert (raised.value.code, asked["mode"], asked["url"]) == (-32042, "url", url)
        else:
            answer = await session.call_tool("m_connected", {})
            assert answer.is_error is not is_asked
            assert visits == ([("url", "agree first", url)] if is_asked else [])
    visits.clear()
    assert (await called(served, "connected", mode=mode)).is_error  # a client that cannot open URLs


@MODES
async def test_logs_reach_a_client_that_wants_them(mode: str) -> None:
    heard: list[Any] = []

    async def log(params: Any) -> None:
        heard.append((params.level, params.data, params.logger))

    async def talk(input: Any, context: OperationContext) -> Any:
        await context.log("debug", "quiet")
        await context.log("warning", "just loud enough")
        await context.log("error", {"a": 1}, "me")

    async with client(registry(talk=talk), mode, logging_callback=log) as session:
        if mode == "legacy":
            level = types.SetLevelRequest(params=types.SetLevelRequestParams(level="warning"))
            await session.session.send_request(level, types.EmptyResult)
            await session.call_tool("m_talk", {})
            await asyncio.sleep(0)
            assert heard == [("warning", "just loud enough", None), ("error", {"a": 1}, "me")]
        else:
            await session.call_tool("m_talk", {})
            assert heard == []


# --- changes -----------------------------------------------------------------------------------------


async def test_a_session_of_the_handshake_generation_hears_that_tools_changed() -> None:
    heard = asyncio.Event()

    async def message(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            heard.set()

    made = registry()
    async with client(made, "legacy", message_handler=message) as session:
        assert session.server_capabilities.tools.list_changed
        raw(made, "late", "here")
        async with asyncio.timeout(20):
            await heard.wait()
        assert "m_late" in await tools_of(session)


async def test_a_listener_of_2026_hears_of_tools_and_of_the_resource_that_it_watches() -> None:
    made = registry()
    serving = to_mcp(made)
    async with (
        client(serving) as session,
        session.listen(tools_list_changed=True, resource_subscriptions=["test://x"]) as events,
    ):
        raw(made, "late", "here")
        async with asyncio.timeout(20):
            first = await anext(aiter(events))
            await serving.resource_updated("test://other")
            await serving.resource_updated("test://x")
            second = await anext(aiter(events))
    assert "ToolsListChanged" in repr(first)
    assert "test://x" in repr(second)


# --- options -----------------------------------------------------------------------------------------


@table("refused_options")
def test_an_option_that_cannot_be_used_is_refused_with_words(options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        to_mcp(OperationRegistry(), **options)


def test_the_key_of_a_state_is_in_no_repr() -> None:
    assert "secret" not in repr(to_mcp(OperationRegistry(), state_key="secret" * 10).config)
