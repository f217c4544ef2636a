"""What a configuration makes of a server: other tools, pins, a later start, more with each call."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import Completion

import operad
from operad import CallError, ConfigError, ErrorCode, OperationContext, SourceError
from operad_mcp import MCPAuth, MCPCall, MCPExtras, from_mcp
from operad_mcp.pins import PinFile, Pins
from plugins.mcp.tests import peers
from plugins.mcp.tests.peers import MODES, Log, Patch, fails, features, hostile, names, spec_of, table, until


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: Patch) -> Path:
    """The folder in which listings are remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


# --- tools as the configuration says -------------------------------------------------------------------


@MODES
async def test_a_tool_is_offered_as_the_overrides_say(mode: str) -> None:
    arguments = {"a": {"name": "number", "description": "To begin with."}, "b": {"value": 2}}
    two = {"name": "plus_two", "description": "Two more.", "type": "query", "arguments": arguments}
    overrides = {"add": two, "sleep": {"hide": True}}
    async with features(mode=mode, overrides=overrides, resources=False, prompts=False) as registry:
        assert {"add", "sleep"}.isdisjoint(names(registry))
        spec = spec_of(registry, "f.plus_two")
        assert (spec.description, spec.type) == ("Two more.", operad.OperationType.QUERY)
        schema = spec.input_schema.raw
        assert (list(schema["properties"]), schema["required"]) == (["number"], ["number"])
        assert schema["properties"]["number"]["description"] == "To begin with."
        assert (await registry.execute("f.plus_two", {"number": 5})).data["total"] == 7


@table("overrides_that_do_not_fit")
async def test_overrides_that_fit_no_tool_or_argument_are_reported(overrides: Any, said: str, caplog: Log) -> None:
    async with features(overrides=overrides) as registry:
        assert names(registry).isdisjoint(overrides)
    assert said in caplog.text


async def test_a_pinned_tool_that_changes_is_reported_and_held(caplog: Log) -> None:
    async with hostile("fickle", pin=True) as registry:
        assert (await registry.execute("h.echo", {"a": 1})).data == {"a": 1}
        await registry.execute("h.count")
        await until(lambda: registry.get_spec("h.echo") is None)
        assert "changed since it was approved (description)" in caplog.text
        error = await fails(registry.execute("h.echo", {"a": 1}))
        assert error.code == "ACCESS_DENIED"
        assert "load the source again to accept it" in error.message
        assert (await registry.execute("h.same", {"a": 1})).data == {"a": 1}
    async with hostile("fickle") as registry:
        await registry.execute("h.count")
        await until(lambda: "everything" in spec_of(registry, "h.echo").description)
        assert (await registry.execute("h.echo", {"a": 1})).data == {"a": 1}


async def test_pins_in_a_file_hold_in_later_processes_until_they_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "tools.lock.json"
    async with hostile(pin=str(path)) as registry:
        first = spec_of(registry, "h.echo")
    kept = json.loads(path.read_text())
    kept["approved"]["h"]["echo"]["description"] = "what was there before"
    path.write_text(json.dumps(kept))
    async with hostile(pin=str(path)) as registry:
        assert registry.get_spec("h.echo") is None
        error = await fails(registry.execute("h.echo", {"a": 1}))
        assert "accept it with `operad pin --accept h.echo`" in error.message
        assert (await registry.execute("h.pid")).data
    file = PinFile.read(path)
    assert (file.approved, list(file.waiting())) == (kept["approved"], [("h.echo", "h", "echo")])
    assert file.accept("h.echo") == ["h.echo"]
    file.write()
    async with hostile(pin=str(path)) as registry:
        assert (await registry.execute("h.echo", {"a": 1})).data == {"a": 1}
        assert spec_of(registry, "h.echo").description == first.description
    path.write_text("no JSON")
    with pytest.raises(ConfigError, match="cannot be read: .*; restore or delete the file"):
        async with hostile(pin=str(path)):
            pass
    with pytest.raises(ConfigError, match="cannot be read: Is a directory; make it readable"):
        PinFile.read(tmp_path)


def test_a_running_process_does_not_undo_what_the_user_accepted(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    pins = Pins("h", str(path), logging.getLogger("test"))
    for description in ("old", "new"):
        pins.approved({"name": "echo", "description": description})
        pins.keep(["echo"])
    file = PinFile.read(path)
    assert file.accept("h") == ["h.echo"]
    file.write()
    pins.approved({"name": "later", "description": "x"})
    pins.keep(["echo", "later"])
    kept = PinFile.read(path)
    assert kept.approved["h"] == {"echo": {"description": "new"}}
    assert [name for name, *_ in kept.waiting()] == ["h.later"]
    pins.keep(["echo"])
    assert list(PinFile.read(path).waiting()) == []


async def test_a_tool_that_a_pinned_server_adds_is_held_until_it_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    async with hostile("changing", pin=str(path)) as registry:
        before = names(registry)
        await registry.execute("h.count")  # from now on the server lists count, echo and fresh
        await until(lambda: names(registry) != before)
        assert names(registry) == {"count", "echo"}
        error = await fails(registry.execute("h.fresh"))
        assert error.code == "ACCESS_DENIED"
        assert "it is new" in error.message
        assert "`operad pin --accept h.fresh`" in error.message
    file = PinFile.read(path)
    assert [name for name, *_ in file.waiting()] == ["h.fresh"]
    assert file.accept("h.fresh") == ["h.fresh"]
    file.write()
    async with hostile("changing", pin=str(path)) as registry:
        await registry.execute("h.count")
        await until(lambda: names(registry) == {"count", "echo", "fresh"})


async def test_a_held_tool_that_the_server_removes_is_no_longer_held(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    definition = {"inputSchema": {"type": "object"}}
    approved = {"count": definition, "echo": definition}
    path.write_text(json.dumps({"approved": {"h": approved}, "held": {}}))
    async with hostile("changing", pin=str(path)) as registry:
        assert names(registry) == {"count", "echo"}
        assert (await fails(registry.execute("h.pid"))).code == "ACCESS_DENIED"
        await registry.execute("h.count")  # from now on the server lists count, echo and fresh
        async with asyncio.timeout(10):
            while (await fails(registry.execute("h.pid"))).code == "ACCESS_DENIED":
                await asyncio.sleep(0.01)
    assert [name for name, *_ in PinFile.read(path).waiting()] == ["h.fresh"]


async def test_a_tool_that_a_pinned_server_adds_is_not_what_a_later_start_remembers(cache: Path) -> None:
    async with hostile("changing", pin=True, start="first use") as registry:
        before = names(registry)
        await registry.execute("h.count")
        await until(lambda: names(registry) != before)
    async with hostile("changing", pin=True, start="first use") as registry:
        assert names(registry) == {"count", "echo"}


async def test_definitions_that_cannot_be_written_down_are_not_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be written: .*; name another file"):
        async with hostile(pin=str(tmp_path / "no" / "pins.json")):
            pass


async def test_a_pinned_tool_that_changed_is_not_what_a_later_start_remembers(cache: Path) -> None:
    async with hostile("fickle", pin=True, start="first use") as registry:
        spec = spec_of(registry, "h.echo")
        await registry.execute("h.count")
        await until(lambda: registry.get_spec("h.echo") is None)
    async with hostile("fickle", pin=True, start="first use") as registry:
        assert spec_of(registry, "h.echo").description == spec.description


async def test_the_server_itself_can_be_asked() -> None:
    for mode, version in (("legacy", "2025-11-25"), ("2026-07-28", "2026-07-28")):
        async with features(server_operations=True, mode=mode) as registry:
            about = (await registry.execute("f.server.about")).data
            assert (about["server"]["name"], about["protocolVersion"]) == ("features", version)
            assert "instructions" in about
            assert (await registry.execute("f.server.ping")).data is None
    async with features() as registry:
        assert not [name for name in names(registry) if name.startswith("server.")]


async def test_arguments_are_completed_where_the_server_can() -> None:
    server = MCPServer("completing")

    @server.prompt()
    def review(language: str) -> str:
        return language

    @server.completion()
    async def complete(reference: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=[name for name in ("python", "pascal", "c") if name.startswith(argument.value)])

    async with peers.loaded("c", server=server, server_operations=True) as registry:
        wanted = {"prompt": "review", "argument": "language", "value": "p"}
        found = await registry.execute("c.server.complete", wanted)
        assert found.data["values"] == ["python", "pascal"]
        assert (await fails(registry.execute("c.server.complete", {"argument": "a"}))).code == "VALIDATION_ERROR"


# --- when it starts --------------------------------------------------------------------------------------


async def test_a_server_that_was_seen_before_starts_with_its_first_call(cache: Path) -> None:
    env = {"TOKEN": "hush"}
    async with hostile(start="first use", env=env) as registry:
        seen = names(registry)
    assert "hush" not in "".join(file.read_text() for file in cache.rglob("*.json"))
    before = peers.children()
    async with hostile(start="first use", env=env) as registry:
        assert names(registry) == seen
        assert peers.children() == before
        spec = spec_of(registry, "h.echo")
        assert (await registry.execute("h.echo", {"a": 1})).data == {"a": 1}
        assert peers.children() != before
        assert spec_of(registry, "h.echo").description == spec.description


async def test_a_listing_is_remembered_for_its_server_and_credential_alone(cache: Path) -> None:
    given: dict[str, Any] = {"headers": {"x-a": "1"}, "auth": MCPAuth(token="a"), "start": "first use"}
    async with peers.listening(peers.feature_server().streamable_http_app(stateless_http=True)) as url:
        given["url"] = f"{url}/mcp"
        async with features(**given):
            pass
        others = ({"headers": {}}, {"auth": None}, {"auth": MCPAuth(token="b")}, {"url": f"{url}/mcp?b"})
        for other in others:
            async with await from_mcp("f", **{**given, **other}) as wrapper:
                assert wrapper.client.server["name"] == "features"  # connected, and not from memory
    async with await from_mcp("f", **given) as wrapper:  # nobody listens any more
        assert (wrapper.client.server, wrapper.client.modern, wrapper.instructions) == ({}, False, None)
        assert "add" in {operation.spec.name for operation in wrapper.tools}


async def test_what_has_changed_since_it_was_seen_is_followed_after_the_first_call(cache: Path) -> None:
    async with hostile(start="first use"):
        pass
    (file,) = cache.rglob("*.json")
    file.write_text(file.read_text().replace('"echo"', '"gone"'))
    async with hostile(start="first use") as registry:
        assert "echo" not in names(registry)
        await registry.execute("h.pid")
        await until(lambda: "echo" in names(registry))
    file.write_text("{")
    async with hostile(start="first use") as registry:
        assert "echo" in names(registry)


# --- what goes with a call -------------------------------------------------------------------------------


async def test_each_call_has_its_own_meta_and_trace() -> None:
    server = MCPServer("meta")

    @server.tool()
    def told(context: Context) -> dict[str, Any]:
        meta = context.request_context.meta
        return {key: value for key, value in dict(meta or {}).items() if "/" not in key}

    calls: list[MCPCall] = []

    def on_call(call: MCPCall) -> MCPExtras:
        calls.append(call)
        return MCPExtras(meta={"tenant": call.identity.id if call.identity else None})

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with peers.loaded("m", server=server, mode="legacy", on_call=on_call) as registry:
        context = OperationContext(
            identity=operad.Identity(id="ada", scopes=[]),
            metadata={"traceparent": trace, "baggage": "k=v", "tracestate": "a=\n", "mcp": {"meta": {"a": 1}}},
        )
        envelope = await registry.execute("m.told", {}, context)
        told_meta = envelope.data.get("result", envelope.data)
        assert told_meta == {"a": 1, "tenant": "ada", "traceparent": trace, "baggage": "k=v"}
        assert (calls[0].server, calls[0].operation_id) == ("m", "m.told")
        for wrong, said in (
            ({"header": {}}, "headers"),
            ({"headers": {"x-key": "two\nlines"}}, "^((?!two).)*got another value for 'x-key'((?!two).)*$"),
        ):
            with pytest.raises((ConfigError, CallError), match=said):
                await registry.execute("m.told", {}, OperationContext(metadata={"mcp": wrong}))


@MODES
async def test_a_callback_learns_for_which_call_it_is_asked(mode: str) -> None:
    asked: list[MCPCall] = []

    async def elicitation(params: dict[str, Any], call: MCPCall) -> dict[str, Any]:
        asked.append(call)
        return {"action": "accept", "content": {"name": "Ada"}}

    async with features(mode=mode, elicitation=elicitation) as registry:
        context = OperationContext(request_id="r1", identity=operad.Identity(id="bob", scopes=[]))
        await registry.execute("f.greet", {}, context)
    (call,) = asked
    assert (call.server, call.operation_id, call.request_id) == ("f", "f.greet", "r1")
    assert call.identity == context.identity


@MODES
async def test_no_call_runs_out_of_time_while_a_person_is_asked(mode: str) -> None:
    timeout, said = 0.0, None

    async def elicitation(params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(1.5 * timeout)
        return {"action": "accept", "content": {"name": "Ada"}}

    for timeout in (0.4, 4.0):  # the second one where the server needs longer for what comes before and after
        with suppress(CallError, SourceError):
            async with features(mode=mode, elicitation=elicitation, timeout=timeout) as registry:
                said = (await registry.execute("f.greet")).meta.content[0].text
                break
    assert said is not None
    assert "Ada" in said


@pytest.mark.parametrize("renew", [True, False])
async def test_progress_renews_the_timeout_where_that_is_wanted(renew: bool) -> None:
    server = MCPServer("slow")

    @server.tool()
    async def crawl(pause: float, context: Context) -> str:
        for step in range(5):
            await asyncio.sleep(pause)
            await context.report_progress(step, 5)
        return "there"

    said = code = None
    for timeout in (0.4, 4.0):  # the second one where this process stood still meanwhile
        options = {"timeout": timeout, "renew_timeout": renew, "on_progress": lambda _: None}
        try:
            async with peers.loaded("s", server=server, **options) as registry:
                said = (await registry.execute("s.crawl", {"pause": timeout * 0.375})).meta.content[0].text
        except SourceError:
            continue
        except CallError as error:
            code = error.code
        if renew is (said is not None):
            break
    assert said == ("there" if renew else None)
    assert renew or code == ErrorCode.TIMEOUT


async def test_an_address_that_a_server_wants_visited_is_in_the_error() -> None:
    login = {"mode": "url", "url": "https://id.example/login", "elicitationId": "1"}
    said = {"code": -32042, "message": "log in first", "data": {"elicitations": [login]}}
    async with hostile() as registry:
        error = await fails(registry.execute("h.raw", peers.line(error=said)))
        assert error.details["url"] == login["url"]
        assert login["url"] in error.message


# --- tasks -------------------------------------------------------------------------------------------------


async def test_a_tool_that_runs_as_a_task_is_called_like_any_other() -> None:
    async with hostile() as registry:
        assert (await registry.execute("h.task_only", timeout=10)).data == "done"
        assert (await registry.execute("h.cancelled_tasks")).data == 0


async def test_a_call_that_is_cancelled_cancels_its_task() -> None:
    async with hostile("endless_task") as registry:
        for timeout in (0.3, 3, 15):  # until there is a task by then
            error = await fails(registry.execute("h.task_only", timeout=timeout))
            assert error.code == ErrorCode.TIMEOUT
            if cancelled := (await registry.execute("h.cancelled_tasks")).data:
                break
        assert cancelled == 1


# --- programs ----------------------------------------------------------------------------------------------


async def test_a_program_inherits_what_is_named_and_leaves_its_words_in_a_file(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("OPERAD_TEST_PROXY", "http://p")
    monkeypatch.setenv("OPERAD_TEST_SECRET", "hush")
    log = tmp_path / "server.log"
    wanted = ["OPERAD_TEST_PROXY", "OPERAD_TEST_SECRET", "GIVEN"]
    inherited = ["OPERAD_TEST_PROXY", "OPERAD_TEST_NONE"]
    async with hostile("chatty", inherit_env=inherited, env={"GIVEN": "1"}, stderr=str(log)) as registry:
        found = (await registry.execute("h.environment", {"names": wanted})).data
    assert found == {"OPERAD_TEST_PROXY": "http://p", "OPERAD_TEST_SECRET": None, "GIVEN": "1"}
    assert log.read_text() == "a word on standard error\n"
    assert [name in os.environ for name in wanted] == [True, True, False]


async def test_what_a_program_wrote_of_a_message_before_it_ended_is_in_the_error() -> None:
    async with hostile() as registry:
        error = await fails(registry.execute("h.cut_off", {"size": 20}))
    assert 'it ended with code 3; {"jsonrpc": "2.0", "' in error.message


@pytest.mark.parametrize("step", ["at step", "at " + 700 * "/folder" + "/step"])
async def test_the_cause_above_a_stack_is_in_the_error(step: str) -> None:
    stack = "\\n".join(f"    {number} {step}" for number in range(3))
    printed = f"TypeError: fetch failed\\n\\n{stack}\\n\\x1b[31mbye"
    code = f"import sys; sys.stderr.write('{printed}'); sys.exit(3)"
    told = r"code 3; TypeError: fetch failed \| 1 at [^ ]* \| 2 at [^ ]* \| bye$"
    with pytest.raises(SourceError, match=told):
        async with hostile(args=["-c", code]):
            pass


# --- bounds ------------------------------------------------------------------------------------------------


@MODES
async def test_no_input_schema_loses_the_listing(mode: str) -> None:
    async with hostile("schemas", "modern", mode=mode) as registry:
        assert names(registry) == {f"bad{number}" for number in range(12)}


async def test_a_server_that_changes_all_the_time_is_listed_now_and_then() -> None:
    async with hostile("restless") as registry:
        await asyncio.sleep(0.5)
        assert (await registry.execute("h.listings")).data < 10


async def test_what_is_no_longer_listed_is_forgotten() -> None:
    async with hostile("growing") as registry:
        gone = weakref.ref(spec_of(registry, "h.grown1"))
        await registry.execute("h.listings")
        await until(lambda: "grown1" not in names(registry))
        gc.collect()
        assert gone() is None


async def test_a_flood_of_logs_and_progress_holds_no_answer_up() -> None:
    start = '{"jsonrpc":"2.0",'
    log = f'{start}"method":"notifications/message","params":{{"level":"info","data":"{"x" * 1000}"}}}}\n'
    progress = f'{start}"method":"notifications/progress","params":{{"progressToken":ID,"progress":1}}}}\n'
    answer = f'{start}"id":ID,"result":{{"structuredContent":"there"}}}}\n'
    seen: list[Any] = []
    async with hostile(on_log=seen.append, on_progress=lambda _: None) as registry:
        text = (log + progress) * 10_000 + answer
        assert (await registry.execute("h.raw", {"text": text}, timeout=20)).data == "there"
        assert len(seen) == 10_000


def test_a_registry_of_another_event_loop_says_so() -> None:
    registry = peers.plain()
    with asyncio.Runner() as first:
        first.run(registry.load("mcp", namespace="h", **peers.program()))
        with asyncio.Runner() as second:
            error = second.run(fails(registry.execute("h.echo", {"a": 1}, timeout=5)))
        assert "event loop" in error.message
        first.run(registry.aclose())
