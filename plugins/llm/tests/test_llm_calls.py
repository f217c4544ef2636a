"""The calls of models: read in each format, run as their caller, answered in the same format."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from operad import (
    AccessControl,
    CallError,
    ConfigError,
    Identity,
    OperationContext,
    OperationRegistry,
    OperationSpec,
    ResponseEnvelope,
    operation,
)
from operad_llm import run_tool_call, tools
from operad_llm.tools import FORMATS

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))

PNG = "iVBORw0KGgo="


@operation(namespace="m")
async def add(a: int, b: int | None = None, note: str = "") -> int:
    """The sum."""
    return a + (b or 0)


@operation(namespace="m")
async def numbers(to: int) -> AsyncIterator[int]:
    """Numbers."""
    for number in range(to):
        yield number


@attrs.frozen
class Answer:
    """An envelope's metadata, as an MCP server's answer has them."""

    content: list[Any]
    is_error: bool = False
    source = "mcp"


@attrs.frozen
class Block:
    wire: dict[str, Any]

    def to_wire(self) -> dict[str, Any]:
        return self.wire


@attrs.frozen
class File:
    content_type: str
    source = "http"


def registry() -> OperationRegistry:
    made = OperationRegistry()
    made.register(add)
    made.register(numbers)
    guard = AccessControl(required_scopes=("write",))

    def give(name: str, answer: Any, **spec: Any) -> None:
        async def handler(input: Any, context: OperationContext) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer(input) if callable(answer) else answer

        made.register(OperationSpec(namespace="m", name=name, **spec), handler)

    give("guarded", "written", access_control=guard)
    give("domain", CallError("SOLD_OUT", "no more", {"left": 0}))
    give("broken", RuntimeError("password=hunter2"))
    give("echo", lambda given: given, input_schema={"type": "array", "items": {"type": "integer"}})
    odd = {"type": "object", "properties": {"filter[x]": {"type": "string"}}}
    give("odd", lambda given: given, input_schema=odd)
    image = Block({"type": "image", "data": PNG, "mimeType": "image/png"})
    give("draw", ResponseEnvelope([], Answer([Block({"type": "text", "text": "here"}), image])))
    give("fail", ResponseEnvelope([], Answer([Block({"type": "text", "text": "it broke"})], is_error=True)))
    give("bytes", ResponseEnvelope(b"\x00" * 7, File("application/pdf")))
    give("photo", ResponseEnvelope(b"\x00", File("image/jpeg; q=1")))
    return made


def call(format: str, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {
        "openai": {"id": "c1", "type": "function", "function": {"name": name, "arguments": text}},
        "openai-responses": {"type": "function_call", "id": "i", "call_id": "c1", "name": name, "arguments": text},
        "anthropic": {"type": "tool_use", "id": "c1", "name": name, "input": arguments},
        "gemini": {"functionCall": {"id": "c1", "name": name, "args": arguments}},
        "mcp": {"name": name, "arguments": arguments},
    }[format]


def said(format: str, result: dict[str, Any]) -> Any:
    return {
        "openai": lambda: result["content"],
        "openai-responses": lambda: result["output"],
        "anthropic": lambda: result["content"],
        "gemini": lambda: result["functionResponse"]["response"],
        "mcp": lambda: result["content"][0]["text"],
    }[format]()


@pytest.mark.parametrize("format", FORMATS)
async def test_a_call_is_recognized_run_and_answered_with_the_id_that_it_came_with(format):
    result = await run_tool_call(registry(), call(format, "m_add", {"a": 2, "b": 3}))
    assert result == TABLES["answers"][format]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("m_nothing", {}, "OPERATION_NOT_FOUND"),
        ("m_add", {"a": "x"}, "VALIDATION_ERROR"),
        ("m_guarded", {}, "ACCESS_DENIED"),
        ("m_domain", {}, "SOLD_OUT"),
        ("m_broken", {}, "EXECUTION_ERROR"),
    ],
)
async def test_what_fails_is_a_result_that_says_so(format, name, arguments, code):
    result = await run_tool_call(registry(), call(format, name, arguments))
    assert code in json.dumps(result)
    assert "hunter2" not in json.dumps(result)
    if format == "anthropic":
        assert result["is_error"] is True
    if format == "gemini":
        assert result["functionResponse"]["response"]["error"]["code"] == code
    if format == "mcp":
        assert (result["isError"], result["_meta"]["operad/error"]["code"]) == (True, code)
        assert "structuredContent" not in result


@pytest.mark.parametrize("format", ["openai", "openai-responses"])
@pytest.mark.parametrize("text", ["{not json", "[" * 100_000, '"text"', "7", "null"])
async def test_arguments_that_are_no_object_are_an_answer_too(format, text):
    result = await run_tool_call(registry(), call(format, "m_add", text))
    assert "VALIDATION_ERROR" in said(format, result)


@pytest.mark.parametrize("payload", [None, 7, "x", [], {}, {"a": 1}])
async def test_what_is_no_call_at_all_cannot_be_answered_and_raises(payload):
    with pytest.raises(ValueError, match="tool call"):
        await run_tool_call(registry(), payload)


@pytest.mark.parametrize("format", FORMATS)
async def test_a_call_without_its_fields_is_answered_as_one_of_no_tool(format):
    result = await run_tool_call(registry(), {}, format=format)
    assert "OPERATION_NOT_FOUND" in json.dumps(result)


async def test_a_call_runs_with_the_rights_of_its_context_and_no_others():
    wanted = call("openai", "m_guarded", {})
    writer = OperationContext(identity=Identity("me", {"write"}))
    assert (await run_tool_call(registry(), wanted, context=writer))["content"] == "written"
    reader = OperationContext(identity=Identity("you", {"read"}))
    assert "ACCESS_DENIED" in (await run_tool_call(registry(), wanted, context=reader))["content"]


async def test_a_model_may_call_what_it_was_offered_and_nothing_else():
    made = registry()
    offered = tools(made, include=["m.add"])
    assert (await run_tool_call(made, call("openai", "m_add", {"a": 1}), offered=offered))["content"] == "1"
    refused = await run_tool_call(made, call("openai", "m_domain", {}), offered=offered)
    assert "OPERATION_NOT_FOUND" in refused["content"]


async def test_a_name_that_is_nearly_right_gets_the_nearest_tool_that_the_caller_may_use():
    made = registry()
    for name in (" m_add", "m.add", "m_ad"):
        refused = await run_tool_call(made, call("openai", name, {"a": 1}))
        assert 'did you mean \\"m_add\\"?' in refused["content"]
    guarded = (await run_tool_call(made, call("openai", "m_guardedd", {})))["content"]
    assert '"m_guarded"' not in guarded


async def test_nulls_that_strict_mode_forced_are_left_out_and_nulls_that_mean_something_stay():
    made, table = registry(), TABLES["nulls"]
    spec = OperationSpec(namespace="m", name="nulls", input_schema=table["schema"])
    made.register(spec, lambda given, context: given)
    result = await run_tool_call(made, call("mcp", "m_nulls", table["sent"]))
    assert result["structuredContent"] == table["received"]
    refused = await run_tool_call(made, call("mcp", "m_nulls", {"needed": None}))
    assert refused["isError"]


async def test_an_input_that_is_no_object_travels_as_one_argument():
    made = registry()
    tool = next(tool for tool in tools(made, "mcp") if tool["name"] == "m_echo")
    assert tool["inputSchema"]["required"] == ["input"]
    result = await run_tool_call(made, call("openai", "m_echo", {"input": [1, 2]}))
    assert result["content"] == "[1,2]"


async def test_names_of_arguments_that_anthropic_refuses_come_back_as_what_they_are():
    made = registry()
    tool = next(tool for tool in tools(made, "anthropic") if tool["name"] == "m_odd")
    (name,) = tool["input_schema"]["properties"]
    result = await run_tool_call(made, call("anthropic", "m_odd", {name: "v"}))
    assert result["content"] == '{"filter[x]":"v"}'


async def test_pictures_reach_the_models_that_take_them_and_are_named_to_the_others():
    answers = {format: await run_tool_call(registry(), call(format, "m_draw", {})) for format in FORMATS}
    seen = {format: said(format, answer) for format, answer in answers.items()}
    seen["gemini"] = answers["gemini"]["functionResponse"]["parts"]
    seen["mcp"] = answers["mcp"]["content"][1]
    assert seen == TABLES["pictures"]


async def test_the_error_of_an_mcp_tool_is_an_error_of_the_call():
    result = await run_tool_call(registry(), call("anthropic", "m_fail", {}))
    assert (result["is_error"], result["content"]) == (True, "it broke")
    gemini = await run_tool_call(registry(), call("gemini", "m_fail", {}))
    assert gemini["functionResponse"]["response"] == {"error": "it broke"}


async def test_bytes_are_a_picture_or_a_word_about_them():
    pdf = await run_tool_call(registry(), call("openai", "m_bytes", {}))
    assert pdf["content"] == "[7 bytes of application/pdf]"
    photo = await run_tool_call(registry(), call("anthropic", "m_photo", {}))
    assert photo["content"][0]["source"]["media_type"] == "image/jpeg"


async def test_a_subscription_is_its_first_items():
    whole = await run_tool_call(registry(), call("mcp", "m_numbers", {"to": 2}))
    assert whole["structuredContent"] == {"items": [0, 1], "truncated": False}
    cut = await run_tool_call(registry(), call("mcp", "m_numbers", {"to": 1_000}))
    assert len(cut["structuredContent"]["items"]) == 100
    assert cut["structuredContent"]["truncated"] is True


async def test_a_call_ends_when_its_time_is_over_and_when_it_is_cancelled():
    made = registry()
    ended = asyncio.Event()

    async def forever(input: Any, context: OperationContext) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    made.register(OperationSpec(namespace="m", name="forever"), forever)
    for timeout in (0.01, 0.5, 5.0):
        late = await run_tool_call(made, call("openai", "m_forever", {}), timeout=timeout)
        assert "TIMEOUT" in late["content"]
        if ended.is_set():  # it had begun by then
            break
    assert ended.is_set()


async def test_objects_of_the_vendors_sdks_are_calls_as_their_json_is():
    class Dumps:
        def model_dump(self, **options: Any) -> Any:
            return call("anthropic", "m_add", {"a": 1})

    assert (await run_tool_call(registry(), Dumps()))["content"] == "1"


async def test_an_sdks_object_with_empty_fields_is_of_its_own_format():
    class Dumps:
        def __init__(self, fields: dict[str, Any]) -> None:
            self.fields = fields

        def model_dump(self, *, mode: str, by_alias: bool, exclude_none: bool = False) -> Any:
            return {name: value for name, value in self.fields.items() if not (exclude_none and value is None)}

    made = registry()
    made.register(OperationSpec(namespace="m", name="now", type="query"), lambda _input, context: 12)
    bare = Dumps({"id": None, "name": "m_now", "args": None, "partialArgs": None, "willContinue": None})
    assert await run_tool_call(made, bare) == {"functionResponse": {"name": "m_now", "response": {"output": 12}}}
    part = Dumps({"text": None, "functionCall": {"id": "c", "name": "m_now", "args": None}})
    assert (await run_tool_call(made, part))["functionResponse"]["response"] == {"output": 12}


@pytest.mark.parametrize(("payload", "says"), TABLES["not ours"])
async def test_what_is_not_ours_to_run_is_refused_and_not_taken_for_a_call_of_another_format(payload, says):
    with pytest.raises(ValueError, match=says):
        await run_tool_call(registry(), payload)


async def test_a_format_that_there_is_not_is_told_with_those_that_there_are():
    with pytest.raises(ConfigError, match='expected one of openai, .*, got "cohere"'):
        await run_tool_call(registry(), call("mcp", "m_add", {}), format="cohere")


async def test_a_name_that_a_model_made_up_is_repeated_in_part():
    answer = await run_tool_call(registry(), call("openai", "x" * 5_000, {}))
    assert "OPERATION_NOT_FOUND" in answer["content"]
    assert len(answer["content"]) < 600


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', "{" * 9_000, "\ud800"])
async def test_arguments_that_only_some_readers_take_are_no_json(text):
    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="m", name="any"), lambda _input, context: None)
    call = {"id": "1", "type": "function", "function": {"name": "m_any", "arguments": text}}
    answer = await run_tool_call(registry, call)
    assert "the arguments are not JSON: " in answer["content"]
    json.dumps(answer).encode()
