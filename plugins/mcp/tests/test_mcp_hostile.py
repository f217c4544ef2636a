"""Servers that misbehave: no good tool is lost, no result, no call hangs, no process stays behind."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from operad import ErrorCode, OperationRegistry, SourceError
from operad_mcp import MCPClientConfig, MCPClientWrapper, TextContent, create_mcp_client, map_mcp_content_blocks
from operad_mcp.client.operations import Offer
from operad_mcp.content import map_many_content_blocks
from operad_mcp.source import MCPSession
from operad_mcp.wire.connection import Connection
from operad_mcp.wire.ending import end_process, new_mark
from operad_mcp.wire.protocol import ServerLogger
from operad_mcp.wire.stdio import _found, stdio_link
from plugins.mcp.tests import peers
from plugins.mcp.tests.peers import Log, Patch, fails, hostile, spec_of, table, until


@asynccontextmanager
async def impatient(timeout: float, **options: Any) -> AsyncIterator[OperationRegistry]:
    """With so short a timeout of calls, or a longer one where the server needs it to be listed."""
    for longer in (timeout, 10 * timeout):
        async with AsyncExitStack() as stack:
            try:
                registry = await stack.enter_async_context(hostile(timeout=longer, **options))
            except SourceError:
                continue
            yield registry
            return
    raise AssertionError("it cannot be loaded")


@contextmanager
def counted_turns() -> Iterator[list[None]]:
    """Count the turns that other tasks have meanwhile."""
    turns: list[None] = []

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(None)

    taking = asyncio.ensure_future(others())
    yield turns
    taking.cancel()


async def works(registry: OperationRegistry) -> None:
    """Check that the server is called, and answers."""
    assert (await registry.execute("h.echo", {"a": 1})).data == {"a": 1}


async def test_one_bad_tool_among_300_loses_no_other() -> None:
    async with hostile("many") as registry:
        assert len(registry) == 300
        assert (await registry.execute("h.tool298", {"a": 1})).data == {"a": 1}
        assert (await registry.execute("h.bad", {"a": 1})).data == {"a": 1}


async def test_tools_that_are_none_are_left_out_and_the_rest_stays(caplog: Log) -> None:
    async with hostile() as registry:
        assert {"echo", "empty_schema", "array_output", "with_space"} <= peers.names(registry)
        assert (await registry.execute("h.with_space", {"a": 1})).data == {"a": 1}
    assert "without a name" in caplog.text


async def test_unknown_blocks_become_text_with_their_json() -> None:
    async with hostile() as registry:
        for name, *texts in (
            ("unknown_block", '{"type":"hologram","depth":3}', "fine"),
            ("malformed_block", '{"type":"text","text":5}', '"loose"', "null"),
        ):
            envelope = await registry.execute(f"h.{name}")
            assert [block.text for block in envelope.meta.content] == texts


async def test_every_odd_result_arrives(caplog: Log) -> None:
    async with hostile() as registry:
        for name, expected in peers.TABLES["odd_results"].items():
            assert (await registry.execute(f"h.{name}")).data == expected, name
        failed = await registry.execute("h.failed")
        assert failed.meta.is_error
        assert failed.data == [{"type": "text", "text": "no"}]
    assert "does not match its output schema" in caplog.text


async def test_the_raw_result_is_in_meta_even_if_the_cast_changes_the_data() -> None:
    async with hostile() as registry:
        envelope = await registry.execute("h.vendor_fields")
        wire = envelope.to_wire()["meta"]
        assert [wire[name] for name in ("content", "_meta", "server", "protocolVersion")] == [
            [{"type": "text", "text": "a", "x-vendor": [1]}], {"k": 1}, {"name": "hostile"}, "2025-11-25",
        ]  # fmt: skip
        assert "structuredContent" not in wire
        assert registry.plugins.envelope_kinds.from_wire(envelope.to_wire()) == envelope


@pytest.mark.parametrize("parse", [True, False])
async def test_text_is_parsed_as_json_only_when_asked_for(parse: bool) -> None:
    async with hostile(parse_json_text=parse) as registry:
        data = (await registry.execute("h.json_text")).data
        assert data == ({"n": 3} if parse else [{"type": "text", "text": '{"n": 3}'}])


@pytest.mark.parametrize(
    ("option", "most", "counts"), [("max_pages", 20, [20]), ("max_listing_bytes", 1_000, range(4, 20))]
)
async def test_an_endless_listing_ends_at_the_cap(option: str, most: int, counts: Any, caplog: Log) -> None:
    async with hostile("endless", **{option: most}) as registry:
        assert len(registry) in counts
    assert f"{option} = {most}" in caplog.text


async def test_an_answer_of_very_many_blocks_lets_others_have_their_turns() -> None:
    answer: list[Any] = [{"type": "text", "text": "x"}] * 10_000 + [7]
    with counted_turns() as turns:
        blocks = await map_many_content_blocks(answer)
    assert len(turns) > 3
    assert len(blocks) == 10_001
    assert blocks[-1] == TextContent.of("7")
    assert blocks == map_mcp_content_blocks(answer)


async def test_a_listing_that_goes_in_circles_ends() -> None:
    async with hostile("circle") as registry:
        assert len(registry) == 2


async def test_a_banner_on_standard_output_is_passed_over(caplog: Log) -> None:
    async with hostile("banner") as registry:
        await works(registry)
    assert "Welcome to the hostile server!" in caplog.text


@pytest.mark.parametrize("tool", ["huge", "huge_id_last"])
async def test_an_answer_above_the_limit_fails_its_own_call_only(tool: str) -> None:
    async with hostile(max_message_bytes=1_000_000) as registry:
        huge = asyncio.create_task(fails(registry.execute(f"h.{tool}", {"size": 5_000_000})))
        other = await registry.execute("h.echo", {"a": 1})
        error = await huge
        assert error.code == ErrorCode.PAYLOAD_TOO_LARGE
        assert "max_message_bytes" in error.message
        assert other.data == {"a": 1}


async def test_a_result_of_100_mb_is_refused_within_the_deadline() -> None:
    async with hostile() as registry:
        error = await fails(registry.execute("h.huge", {"size": 100_000_000}, timeout=60))
        assert error.code == ErrorCode.PAYLOAD_TOO_LARGE


async def test_a_large_result_below_the_limit_arrives_whole() -> None:
    async with hostile() as registry:
        envelope = await registry.execute("h.huge", {"size": 20_000_000}, timeout=60)
        assert len(envelope.meta.content[0].text) == 20_000_000


async def test_a_crash_fails_the_calls_in_flight_and_the_next_call_starts_the_server_again() -> None:
    async with hostile() as registry:
        before = (await registry.execute("h.pid")).data
        hanging = asyncio.create_task(fails(registry.execute("h.hang")))
        await asyncio.sleep(0)
        error = await fails(registry.execute("h.crash"))
        assert error.code == ErrorCode.UNAVAILABLE
        assert "code 3" in error.message
        assert (await hanging).code == ErrorCode.UNAVAILABLE
        assert (await registry.execute("h.pid")).data != before


@pytest.mark.parametrize("size", [1, 20, 45, 60])
async def test_a_program_that_ends_within_its_answer_is_lost_and_starts_again(size: int) -> None:
    async with hostile() as registry:
        error = await fails(registry.execute("h.cut_off", {"size": size}))
        assert error.code == ErrorCode.UNAVAILABLE
        assert "code 3" in error.message
        await works(registry)


async def test_a_last_answer_without_the_end_of_its_line_is_taken() -> None:
    async with hostile() as registry:
        assert (await registry.execute("h.cut_off", {"size": 1000})).data == {}


async def test_a_mutation_is_never_sent_again_after_a_loss_but_a_trusted_query_is(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    async with hostile() as registry:
        spec = spec_of(registry, "h.die_once")
        assert (spec.type, spec.metadata["annotations"]) == ("mutation", {"readOnlyHint": True})
        error = await fails(registry.execute("h.die_once", {"marker": str(marker)}))
        assert error.code == ErrorCode.UNAVAILABLE
    marker.unlink()
    async with hostile(trust_annotations=True) as registry:
        assert spec_of(registry, "h.die_once").type == "query"
        assert (await registry.execute("h.die_once", {"marker": str(marker)})).data == "second life"


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_tool_is_declared_idempotent_only_if_its_hints_are_trusted(trusted: bool) -> None:
    async with hostile(trust_annotations=trusted) as registry:
        assert [spec.id for spec in registry.specs() if spec.idempotent] == (["h.with_space"] if trusted else [])


async def test_a_call_without_an_answer_ends_with_its_deadline() -> None:
    async with impatient(0.2) as registry:
        assert (await fails(registry.execute("h.hang"))).code == ErrorCode.TIMEOUT
        assert (await fails(registry.execute("h.hang", timeout=0.1))).code == ErrorCode.TIMEOUT
        assert (await registry.execute("h.echo", {"a": 1}, timeout=20)).data == {"a": 1}


@pytest.mark.parametrize(("mode", "options"), [("silent", {"discover_timeout": 0.2}), ("dies_when_asked", {})])
async def test_a_server_that_never_answers_the_question_is_shaken_hands_with(mode: str, options: Any) -> None:
    async with hostile(mode, mode="auto", **options) as registry:
        await works(registry)


async def test_a_question_is_waited_for_as_long_as_the_configuration_says(monkeypatch: Patch) -> None:
    """And where a person has to log in for its answer, as long as that takes: the SDK would wait for 10 s."""
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.1)
    async with hostile("modern", "slow", mode="auto", discover_timeout=20.0) as registry:
        envelope = await registry.execute("h.echo", {"a": 1})
        assert envelope.meta.protocol_version == "2026-07-28"


@table("servers_that_do_not_start")
async def test_a_server_that_does_not_start_says_why(modes: list[str], options: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        async with hostile(*modes, **options):
            pass


async def test_a_json_rpc_error_is_a_call_error_with_its_code_and_data() -> None:
    async with hostile() as registry:
        error = await fails(registry.execute("h.error"))
        assert error.code == ErrorCode.EXECUTION_ERROR
        assert error.details == {"message": "bad arguments", "jsonrpcCode": -32602, "data": {"field": "x"}}


async def test_the_registry_follows_a_listing_that_changes() -> None:
    async with hostile("changing") as registry:
        assert "fresh" not in peers.names(registry)
        kept = registry.get_spec("h.echo")
        await registry.execute("h.count")
        await until(lambda: "fresh" in peers.names(registry))
        assert peers.names(registry) == {"count", "echo", "fresh"}
        assert registry.get_spec("h.echo") is kept
        assert (await registry.execute("h.fresh", {"a": 1})).data == {"a": 1}


async def test_an_end_that_is_cut_short_closes_the_pipes_of_its_program() -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    transport, _ = await asyncio.get_running_loop().subprocess_exec(
        asyncio.SubprocessProtocol, sys.executable, "-c", code, start_new_session=True
    )
    ending = asyncio.create_task(end_process(transport, new_mark(), 30))
    for _ in range(3):  # in each of its three waits
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert transport.is_closing()
    await until(lambda: transport.get_returncode() is not None)


async def gone(pids: Iterable[int]) -> None:
    """Wait until none of these processes runs."""
    await until(lambda: not any(peers.alive(pid) for pid in pids))


@pytest.mark.parametrize("modes", [("children",), ("stubborn",), ("stubborn", "children")])
async def test_no_process_stays_behind(modes: tuple[str, ...]) -> None:
    async with hostile(*modes, shutdown_timeout=0.3) as registry:
        pids = (await registry.execute("h.pid")).data
        assert all(psutil.pid_exists(pid) for pid in pids)
    await gone(pids)


async def test_no_process_stays_behind_a_crash() -> None:
    async with hostile("children", shutdown_timeout=0.3) as registry:
        pids = (await registry.execute("h.pid")).data
        await fails(registry.execute("h.crash"))
        await gone(pids)


async def test_no_server_of_a_file_stays_behind_a_load_that_is_cancelled(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    connected: list[str] = []

    async def create(name: str, *args: Any, **options: Any) -> MCPClientWrapper:
        made = await create_mcp_client(name, *args, **options)
        connected.append(name)
        return made

    monkeypatch.setattr("operad_mcp.client.servers.create_mcp_client", create)
    servers = {"good": peers.program(), "mute": peers.program("mute")}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    before = peers.children()
    async with peers.plain() as registry:
        options = {"config": str(tmp_path / "mcp.json"), "shutdown_timeout": 0.2, "mode": "legacy"}
        loading = asyncio.create_task(registry.load("mcp", **options))
        await until(lambda: connected == ["good"])
        started = peers.children() - before
        assert started
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        await gone(started)


async def test_a_session_whose_one_server_cannot_be_closed_closes_the_others() -> None:
    closed: list[str] = []

    class Wrapper:
        operations = ()

        def __init__(self, name: str) -> None:
            self.name = name

        def on_change(self, callback: Any) -> None:
            pass

        async def aclose(self) -> None:
            if self.name == "bad":
                raise OSError("it cannot be closed")
            await asyncio.sleep(0.01)
            closed.append(self.name)

    session = MCPSession([Wrapper(name) for name in ("bad", "one", "two")])  # type: ignore[misc]  # stand-ins
    with pytest.raises(OSError, match="cannot be closed"):
        await session.aclose()
    assert closed == ["one", "two"]


async def test_a_listing_that_fails_for_whatever_reason_is_logged_and_the_next_change_is_heard(
    caplog: Log, monkeypatch: Patch
) -> None:
    real, failing = Offer.refresh, [True]

    async def refresh(offer: Offer, what: str = "all") -> None:
        if failing:
            failing.clear()
            raise RuntimeError("what nobody thought of")
        await real(offer, what)

    async with hostile("changing") as registry:
        monkeypatch.setattr(Offer, "refresh", refresh)
        await registry.execute("h.count")
        await until(lambda: "listing again failed" in caplog.text)
        await registry.execute("h.count")
        await until(lambda: registry.get_spec("h.fresh") is not None)


async def test_no_process_stays_behind_a_load_that_is_cancelled() -> None:
    before = peers.children()
    loading = asyncio.create_task(hostile("mute", shutdown_timeout=0.2).__aenter__())
    await until(lambda: bool(peers.children() - before))
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await until(lambda: not peers.children() - before)


def test_windows_is_told_which_file_a_command_is(monkeypatch: Patch) -> None:
    """There ``npx`` is ``npx.cmd``, which only a shell would find by that name."""
    monkeypatch.setattr("operad_mcp.wire.stdio.shutil.which", {"npx": r"C:\nodejs\npx.CMD"}.get)
    assert _found("npx") == "npx", "elsewhere the system looks it up itself, in the folder of the server"
    monkeypatch.setattr("operad_mcp.wire.stdio.sys.platform", "win32")
    assert _found("npx") == r"C:\nodejs\npx.CMD"
    assert _found("nothing") == "nothing", "so that the error peers.names what was asked for"


@pytest.mark.skipif(sys.platform == "win32", reason="counts descriptors")
@pytest.mark.parametrize("times", [1, 2])
async def test_a_start_that_is_cancelled_at_any_step_ends_and_leaves_no_pipe_open(times: int) -> None:
    code = "import sys; sys.stdin.read()"
    config = MCPClientConfig(command=sys.executable, args=["-c", code], shutdown_timeout=0.2)

    async def start(seconds: float = 10) -> None:
        async with stdio_link(config, ServerLogger("s"), mock.Mock(crowded=False)):
            await asyncio.sleep(seconds)

    await start(0)  # an event loop may open descriptors of its own with its first child
    me = psutil.Process()
    before, others = me.num_fds(), set(me.children())  # whatever other tests of this process keep
    for turns in range(12):
        starting = asyncio.create_task(start())
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(times):
            starting.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(starting, 10)
    await until(lambda: me.num_fds() <= before and set(me.children()) <= others)


async def test_a_program_that_does_not_read_does_not_hold_the_deadline_up() -> None:
    async with impatient(0.5, shutdown_timeout=0.2) as registry:
        stuck = [fails(registry.execute("h.slow", {"seconds": 20, "pad": "x" * 100_000})) for _ in range(10)]
        assert {error.code for error in await asyncio.gather(*stuck)} == {ErrorCode.TIMEOUT}  # and no result


async def test_an_older_protocol_of_the_handshake_is_spoken() -> None:
    async with hostile("older") as registry:
        assert (await registry.execute("h.echo", {"a": 1})).meta.protocol_version == "2025-06-18"


async def test_a_thousand_concurrent_calls_each_end_in_their_own_result_or_aborted() -> None:
    chance = random.Random(7)
    async with hostile() as registry:
        calls = (registry.execute("h.echo", {"n": number}, timeout=60) for number in range(1000))
        tasks = [asyncio.create_task(each) for each in calls]
        cancelled = set(chance.sample(range(1000), 200))
        await asyncio.sleep(0.01)
        for number in sorted(cancelled):
            tasks[number].cancel()
            if chance.random() < 0.1:
                await asyncio.sleep(0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for number, result in enumerate(results):
            if not (number in cancelled and isinstance(result, asyncio.CancelledError)):
                assert result.data == {"n": number}  # type: ignore[union-attr]  # or it is an error
        assert any(isinstance(result, asyncio.CancelledError) for result in results)
        await works(registry)


async def test_a_server_that_asks_without_end_has_64_questions_with_the_application_and_the_rest_refused() -> None:
    asked, answer = 0, asyncio.Event()

    async def elicitation(params: dict[str, Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        await answer.wait()
        return {"action": "decline"}

    async with hostile(elicitation=elicitation) as registry:
        assert (await registry.execute("h.ask_much", {"times": 500})).data == "asked"
        async with asyncio.timeout(10):
            while (await registry.execute("h.refused")).data != 436:
                await asyncio.sleep(0.01)
        assert asked == 64
        answer.set()
        await works(registry)


async def test_calls_go_on_while_thousands_of_tools_are_made_into_operations() -> None:
    offer = Offer(Connection("s", MCPClientConfig(command="none")), "s")
    tools = [{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(4_000)]
    with counted_turns() as turns:
        await offer.restore({"tools": {}}, {"tools": tools})
    assert len(offer.operations) == 4_000
    assert len(turns) > 25
