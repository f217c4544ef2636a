"""What a server says is the server's, whatever numbers it uses; what this process saw is this process's alone."""

from __future__ import annotations

import asyncio
from typing import Any

import psutil
import pytest

from operad import ErrorCode
from operad_mcp.wire.messages import parse
from plugins.mcp.tests.peers import TABLES, alive, fails, hostile, line


async def test_no_error_of_a_server_restarts_it_runs_twice_ends_other_calls_or_changes_its_code() -> None:
    async with hostile() as registry:
        pid = (await registry.execute("h.pid")).data
        hanging = asyncio.create_task(registry.execute("h.hang"))
        for said in TABLES["errors_that_servers_chose"]:
            error = await fails(registry.execute("h.raw", line(error=said)))
            assert error.code == ErrorCode.EXECUTION_ERROR, said
            assert error.details.pop("jsonrpcCode") == said["code"]
            assert error.details == {key: value for key, value in said.items() if key != "code"}
        assert (await registry.execute("h.raws")).data == len(TABLES["errors_that_servers_chose"])
        assert (await registry.execute("h.pid")).data == pid
        assert not hanging.done()
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)


async def test_an_answer_that_cannot_be_read_is_said_to_be_so_and_not_taken_for_silence() -> None:
    async with hostile() as registry:
        for name, text, said in TABLES["unreadable"]:
            error = await fails(registry.execute("h.raw", {"text": text}, timeout=5))
            assert error.code == ErrorCode.EXECUTION_ERROR, name
            assert said in error.message, name
            assert (await registry.execute("h.echo", {"a": 1})).data == {"a": 1}, name


LONG = [
    ["of 100,000 lines", '{\n "jsonrpc": "2.0",\n "id": ID,' + '\n "x": 0,' * 100_000 + '\n "result": {"structuredContent": 3}\n}\n'],
    ["after a log of 60,000 lines", "{\n" + "a line\n" * 60_000 + '{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":3}}\n'],
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in [*TABLES["readable"], *LONG]])
async def test_an_unusual_form_of_a_good_answer_is_understood(text: str) -> None:
    async with hostile() as registry:
        assert (await registry.execute("h.raw", {"text": text}, timeout=20)).data == 3


async def test_of_a_huge_batch_the_first_thousand_messages_are_read() -> None:
    logged: list[Any] = []
    note = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'
    text = f"[{','.join([note] * 100_000)}]\n" + '{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":3}}\n'
    async with hostile(on_log=logged.append) as registry:
        assert (await registry.execute("h.raw", {"text": text}, timeout=20)).data == 3
    assert 0 < len(logged) <= 1_000


async def test_a_byte_that_is_no_utf8_loses_no_answer_beside_it_nor_its_own() -> None:
    async with hostile() as registry:
        text = (
            'log: caf\xe9\n{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"\xff"}}\n'
            '{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":{"name":"caf\xe9"}}}\n'
        )
        answers = await asyncio.gather(
            registry.execute("h.raw", {"text": text}, timeout=5),
            *(registry.execute("h.echo", {"n": n}, timeout=5) for n in range(5)),
        )
        assert answers[0].data == {"name": "caf\ufffd"}
        assert [answer.data for answer in answers[1:]] == [{"n": n} for n in range(5)]


def test_a_malformed_request_of_a_server_fails_no_call_of_ours() -> None:
    assert parse(b'{"jsonrpc":"2.0","id":3,"method":5}') == []
    assert parse(b'{"jsonrpc":"2.0","id":3,"method":"a","params":{"result":' + b"[" * 20_000) == []


async def test_a_call_made_in_the_moment_of_the_programs_end_starts_it_again() -> None:
    async with hostile() as registry:
        for _ in range(3):
            pid = (await registry.execute("h.pid")).data[0]
            psutil.Process(pid).kill()
            while alive(pid):
                pass  # without an await: the event loop must not learn of it before the call
            assert (await registry.execute("h.pid")).data[0] != pid
