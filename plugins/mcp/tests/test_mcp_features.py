"""Every feature of the protocol, through a server of the SDK, in both protocols and over each transport."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from operad import CallError, ErrorCode, OperationContext, OperationRegistry, SourceError, load_plugins
from operad_mcp import MCPProgress
from plugins.mcp.tests import peers
from plugins.mcp.tests.peers import FEATURES, MODES, Caller, HttpServer, Log, fails, features, spec_of, until

STDIO = {"command": sys.executable, "args": [str(FEATURES), "stdio"]}


@MODES
async def test_a_tool_is_a_mutation_with_its_schemas_title_and_description(mode: str) -> None:
    async with features(**STDIO, mode=mode) as registry:
        spec = spec_of(registry, "f.add")
        told = (spec.type, spec.title, spec.description)
        assert told == ("mutation", "Add numbers", "The sum of two numbers.")
        assert spec.input_schema.errors({"a": 1}) != []
        assert spec.output_schema.is_valid({"total": 1, "pid": 2})
        envelope = await registry.execute("f.add", {"a": 1, "b": 2})
        assert envelope.data["total"] == 3
        assert envelope.meta.structured_content == envelope.data
        version = "2025-11-25" if mode == "legacy" else mode
        assert (envelope.meta.server["name"], envelope.meta.protocol_version) == ("features", version)
        assert (await fails(registry.execute("f.add", {"a": "x"}))).code == ErrorCode.VALIDATION_ERROR


@MODES
async def test_resources_templates_and_prompts_are_operations(mode: str) -> None:
    async with features(mode=mode) as registry:
        listed = (await registry.execute("f.resources.list")).data
        assert {item["uri"] for item in listed} == {"note://one", "note://blob"}
        prompts = (await registry.execute("f.prompts.list")).data
        assert [prompt["name"] for prompt in prompts] == ["review"]
        for name, given, text in (
            ("read", {"uri": "note://one"}, "the first note"),
            ("templates.any_note", {"folder": "a b", "name": "c"}, "c in a b"),
        ):
            read = await registry.execute(f"f.resources.{name}", given)
            assert (read.data[0]["text"], read.meta.content[0].text) == (text, text)
            assert read.meta.content[0].type == "resource"
        blob = (await registry.execute("f.resources.read", {"uri": "note://blob"})).data
        assert blob[0]["blob"] == "AAE="
        for name, given, text in (
            ("get", {"name": "review", "arguments": {"code": "x"}}, "A kind review of: x"),
            ("get.review", {"code": "y", "style": "stern"}, "A stern review of: y"),
        ):
            got = await registry.execute(f"f.prompts.{name}", given)
            assert (got.data["messages"][0]["content"]["text"], got.meta.content[0].text) == (text, text)
        error = await fails(registry.execute("f.resources.read", {"uri": "note://nowhere"}))
        assert error.code == ErrorCode.EXECUTION_ERROR
        assert "jsonrpcCode" in error.details


@MODES
async def test_a_value_cannot_leave_its_place_in_a_template(mode: str) -> None:
    async with features(mode=mode) as registry:
        error = await fails(registry.execute("f.resources.templates.any_note", {"folder": "..", "name": "c"}))
        assert error.code == ErrorCode.VALIDATION_ERROR


@MODES
async def test_progress_is_reported_in_order(mode: str) -> None:
    seen: list[MCPProgress] = []
    async with features(mode=mode, on_progress=seen.append) as registry:
        await registry.execute("f.steps", {"count": 3})
    reports = [(report.progress, report.total, report.message) for report in seen]
    assert reports == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    assert {report.operation_id for report in seen} == {"f.steps"}
    assert len({report.request_id for report in seen}) == 1


@MODES
async def test_progress_and_logs_of_the_server_reach_observers_of_the_call(mode: str) -> None:
    seen: list[tuple[Any, ...]] = []

    def reported(call: Any, report: Any) -> None:
        seen.append((call.operation_id, report.kind, report.progress, report.message))

    async with features(mode=mode, log_level="info") as registry:
        registry.observe(reported=reported)
        await registry.execute("f.steps", {"count": 2})
        assert seen == [("f.steps", "progress", 1, "step 1"), ("f.steps", "progress", 2, "step 2")]
        await registry.execute("f.talk")
    assert seen[2:] == [("f.talk", "log", None, "a word from the server")]


@MODES
async def test_logs_of_the_server_reach_the_callback_or_the_logger(mode: str, caplog: Log) -> None:
    seen: list[dict[str, Any]] = []
    async with features(mode=mode, on_log=seen.append, log_level="info") as registry:
        await registry.execute("f.talk")
        await until(lambda: bool(seen))
    assert seen[0]["data"] == "a word from the server"
    caplog.set_level(logging.INFO)
    async with features(mode=mode, log_level="info") as registry:
        await registry.execute("f.talk")
        await until(lambda: "a word from the server" in caplog.text)


@MODES
async def test_the_callbacks_answer_what_the_server_asks(mode: str) -> None:
    asked: list[str] = []

    async def elicitation(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return {"action": "accept", "content": {"name": "Ada"}}

    async def sampling(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["messages"][0]["content"]["text"])
        return {"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "abacus"}

    callbacks: Any = {"elicitation": elicitation, "sampling": sampling, "roots": ["file:///tmp/a"]}
    async with features(mode=mode, **callbacks) as registry:
        greeting = await registry.execute("f.greet")
        assert greeting.meta.content[0].text == "Hello, Ada! True"  # the form's default is filled in
        assert (await registry.execute("f.think")).meta.content[0].text == "abacus thinks 4"
        assert (await registry.execute("f.roots")).data == {"result": ["file:///tmp/a"]}
    assert asked == ["What is your name?", "2 + 2?"]


@MODES
async def test_questions_of_a_server_reach_whoever_waits_for_the_call_where_that_is_wanted(mode: str) -> None:
    caller = Caller()
    async with features(mode=mode, elicitation="caller", sampling="caller") as registry:
        context = OperationContext(client=caller)
        assert (await registry.execute("f.greet", {}, context)).meta.content[0].text == "Hello, Ada! True"
        assert (await registry.execute("f.think", {}, context)).meta.content[0].text == "abacus thinks 4"
        (message, form, *_), (request, _) = caller.asked
        assert (message, sorted(form["properties"])) == ("f.greet asks: What is your name?", ["name", "polite"])
        assert request["messages"][0]["content"]["text"] == "2 + 2?"
        refusing = OperationContext(client=Caller("decline"))
        assert (await outcome(registry.execute("f.greet", {}, refusing))) != "Hello, Ada! True"
        assert "no client that can be asked" in await outcome(registry.execute("f.greet"))


async def outcome(call: Awaitable[Any]) -> str:
    """What a call says, whichever way it failed."""
    try:
        envelope = await call
    except CallError as error:
        return error.message
    assert envelope.meta.is_error
    return str(envelope.meta.content[0].text)


@pytest.mark.parametrize("tool", ["greet", "think", "roots"])
async def test_a_server_that_asks_what_nobody_answers_gets_no_answer(tool: str) -> None:
    async with features(mode="2026-07-28") as registry:
        callback = {"greet": "elicitation", "think": "sampling", "roots": "roots"}[tool]
        assert callback in await outcome(registry.execute(f"f.{tool}"))


@MODES
async def test_a_listing_that_changes_is_followed(mode: str) -> None:
    async with features(mode=mode) as registry:
        async with asyncio.timeout(20):
            while registry.get_spec("f.grown") is None:
                # In the stateless protocol changes come only once the listener is heard.
                await registry.execute("f.grow")
                await asyncio.sleep(0.1)
        assert (await registry.execute("f.grown")).data == {"result": "grown"}


async def test_resource_updates_are_a_subscription() -> None:
    async with features(mode="2026-07-28") as registry:
        assert registry.get_spec("f.resources.subscribe") is not None
        async with registry.subscribe("f.resources.subscribe", {"uri": "note://one"}) as updates:
            first = asyncio.ensure_future(anext(updates))
            async with asyncio.timeout(20):
                while not first.done():  # until the listener is heard
                    await registry.execute("f.touch", {"uri": "note://other"})
                    await registry.execute("f.touch", {"uri": "note://one"})
                    await asyncio.wait({first}, timeout=0.2)
                assert (await first).data == {"uri": "note://one"}


@MODES
async def test_a_server_object_in_this_process_is_a_source(mode: str) -> None:
    server = MCPServer("memory")

    @server.tool()
    def double(number: int) -> int:
        return number * 2

    async with features(server=server, mode=mode) as registry:
        assert (await registry.execute("f.double", {"number": 4})).data == {"result": 8}


async def test_http_servers_are_called_and_left() -> None:
    async def use(url: str, mode: str) -> None:
        async with features(url=url, mode=mode) as registry:
            results = await asyncio.gather(*(registry.execute("f.add", {"a": n, "b": 1}) for n in range(20)))
            assert [result.data["total"] for result in results] == list(range(1, 21))

    for how in ({}, {"json_response": True}, {"stateless_http": True}):
        async with peers.listening(peers.feature_server().streamable_http_app(**how)) as url:
            await asyncio.gather(*(use(f"{url}/mcp", mode) for mode in ("auto", "legacy")))


async def test_the_transport_of_2024_is_spoken_too() -> None:
    async with (
        peers.listening(peers.feature_server().sse_app()) as old,
        features(url=f"{old}/sse", transport="sse", mode="legacy") as registry,
    ):
        assert (await registry.execute("f.add", {"a": 1, "b": 1})).data["total"] == 2


async def test_a_refused_connection_fails_its_call_and_the_next_one_initialises_again() -> None:
    async with (
        HttpServer() as http,
        features(url=http.url, mode="auto") as modern,
        features(url=http.url, mode="legacy") as legacy,
    ):
        both = (modern, legacy)
        before = (await legacy.execute("f.add", {"a": 1, "b": 1})).data["pid"]
        hanging = [asyncio.create_task(fails(registry.execute("f.sleep", {"seconds": 60}))) for registry in both]
        await asyncio.sleep(0.3)
        await http.stop()
        assert {(await error).code for error in hanging} == {ErrorCode.UNAVAILABLE}
        for registry in both:
            error = await fails(registry.execute("f.add", {"a": 1, "b": 1}))
            assert error.code == ErrorCode.UNAVAILABLE
            assert str(http.port) in error.message
        await http.start()
        for registry in both:
            assert (await registry.execute("f.add", {"a": 1, "b": 1})).data["pid"] != before


async def test_nobody_at_the_url_is_a_source_error_that_names_it() -> None:
    http = HttpServer()
    with pytest.raises(SourceError, match=f"127.0.0.1:{http.port}"):
        async with features(url=http.url):
            pass


async def test_an_answer_above_the_limit_over_http_fails_its_own_call() -> None:
    app = peers.feature_server().streamable_http_app(json_response=True)
    async with peers.listening(app) as url, features(url=f"{url}/mcp", max_message_bytes=20_000) as registry:
        error = await fails(registry.execute("f.prompts.get.review", {"code": "x" * 50_000}))
        assert error.code == ErrorCode.PAYLOAD_TOO_LARGE
        assert (await registry.execute("f.add", {"a": 1, "b": 1})).data["total"] == 2


async def test_filters_choose_the_operations() -> None:
    async with features(include=["a*", "s*"], exclude=["sleep"]) as registry:
        assert {spec.name for spec in registry.specs()} == {"add", "steps"}
    async with features(resources=False, prompts=False) as registry:
        assert not [spec.id for spec in registry.specs() if "resources" in spec.id or "prompts" in spec.id]


async def test_the_environment_and_folder_of_the_configuration_are_the_programs(tmp_path: Path) -> None:
    toml = tmp_path / "operad.toml"
    toml.write_text(
        f'[sources.f]\ntype = "mcp"\ncommand = {sys.executable!r}\nargs = [{str(FEATURES)!r}, "stdio"]\n'
        "trust_annotations = true\ninclude = ['add']\n"
    )
    async with OperationRegistry.from_config(toml, load_plugins(only=["mcp"])) as registry:
        assert not registry.failures
        assert spec_of(registry, "f.add").type == "query"
        assert (await registry.execute("f.add", {"a": 1, "b": 1})).data["pid"] != os.getpid()
