"""Calls that become tasks of their server, in the extension of 2026-07-28, and that are resumed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from operad import ErrorCode, Identity, OperationContext, OperationRegistry
from operad_mcp import MCPCall, MCPTask
from plugins.mcp.tests import peers
from plugins.mcp.tests.peers import fails, table, until

SERVER = Path(__file__).with_name("mcp_task_server.py")
WORKING = {"status": "working"}
DONE = {"status": "completed", "result": {"content": [], "structuredContent": {"n": 3}}}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: peers.Patch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def loaded(folder: Path, **options: Any) -> AbstractAsyncContextManager[OperationRegistry]:
    return peers.loaded("t", command=sys.executable, args=[str(SERVER), str(folder)], **options)


async def play(registry: OperationRegistry, *states: Any, **context: Any) -> Any:
    given = OperationContext(**context)
    return (await registry.execute("t.play", {"states": list(states)}, context=given, timeout=10)).data


async def heard(registry: OperationRegistry) -> list[str]:
    data = (await registry.execute("t.heard")).data
    assert isinstance(data, list)
    return data


async def test_a_call_that_a_server_answers_with_a_task_answers_with_its_result(tmp_path: Path) -> None:
    told: list[MCPTask] = []
    async with loaded(tmp_path, on_task=told.append) as registry:
        assert await play(registry, WORKING, {**WORKING, "statusMessage": "half"}, DONE) == {"n": 3}
    states = [(task.status, task.message) for task in told]
    assert states == [("working", None), ("working", "half"), ("completed", None)]
    assert {task.call.operation_id for task in told} == {"t.play"}
    assert "task0" not in repr(told)


async def test_a_task_asks_once_for_what_it_wants_to_know(tmp_path: Path) -> None:
    asked: list[str | None] = []

    async def elicitation(params: dict[str, Any], call: MCPCall) -> dict[str, Any]:
        asked.append(call.operation_id)
        return {"action": "accept", "content": {"name": "Ada"}}

    form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
    question = {"method": "elicitation/create", "params": form}
    waiting = {"status": "input_required", "inputRequests": {"q1": question}}
    async with loaded(tmp_path, elicitation=elicitation) as registry:
        assert await play(registry, waiting, waiting, WORKING, DONE) == {"n": 3}
        answers = [line for line in await heard(registry) if line.startswith("tasks/update")]
    assert asked == ["t.play"]
    assert len(answers) == 1
    assert '"q1": {"action": "accept"' in answers[0]


@table("states_of_tasks")
async def test_a_task_without_a_result_is_an_error_that_says_why(
    tmp_path: Path, state: Any, words: str, details: dict[str, Any]
) -> None:
    async with loaded(tmp_path) as registry:
        error = await fails(play(registry, WORKING, state))
    assert error.code == ErrorCode.EXECUTION_ERROR
    assert words in error.message
    assert details.items() <= error.details.items()


@pytest.mark.parametrize(("keep", "cancelled"), [(False, 1), (True, 0)])
async def test_a_call_that_runs_out_of_time_cancels_its_task_unless_it_is_to_be_kept(
    tmp_path: Path, keep: bool, cancelled: int
) -> None:
    told: list[MCPTask] = []
    async with loaded(tmp_path, keep_tasks=keep, on_task=told.append) as registry:
        for timeout in (0.3, 3, 15):
            error = await fails(registry.execute("t.play", {"states": [WORKING]}, timeout=timeout))
            assert error.code == ErrorCode.TIMEOUT
            if told:  # there was a task by then
                break
        assert len({task.task_id for task in told}) == 1
        assert sum(line.startswith("tasks/cancel") for line in await heard(registry)) == cancelled


async def test_a_task_outlives_the_end_of_its_server(tmp_path: Path) -> None:
    async with loaded(tmp_path) as registry:
        assert await play(registry, WORKING, "die", "die", "die", DONE) == {"n": 3}
        assert await heard(registry) == ["play"]


ELSEWHERE = """
import asyncio, sys
from operad import OperationContext, OperationRegistry, load_plugins
async def main():
    begun = asyncio.Event()
    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        command = {"command": sys.executable, "args": sys.argv[1:3]}
        await registry.load("mcp", namespace="t", on_task=lambda task: begun.set(), **command)
        states = [{"status": "working"}] * 30
        context = OperationContext(idempotency_key="k")
        call = asyncio.create_task(registry.execute("t.play", {"states": [*states, {"status": "completed", "result":
            {"content": [], "structuredContent": {"n": 3}}}]}, context=context))
        await begun.wait()
        call.cancel()
        await asyncio.wait({call})
        print(call.cancelled())
asyncio.run(main())
"""


async def test_the_same_call_in_another_process_resumes_the_task_by_its_key(tmp_path: Path) -> None:
    first = subprocess.run([sys.executable, "-c", ELSEWHERE, str(SERVER), str(tmp_path)], capture_output=True)
    assert first.stdout == b"True\n", first.stderr
    states = [*[WORKING] * 30, DONE]
    async with loaded(tmp_path) as registry:
        assert await play(registry, *states, idempotency_key="k") == {"n": 3}
        assert await play(registry, *states, idempotency_key="k") == {"n": 3}
        assert await heard(registry) == ["play"]
        error = await fails(play(registry, DONE, idempotency_key="k"))
        assert error.code == ErrorCode.VALIDATION_ERROR
        await play(registry, DONE, idempotency_key="k", identity=Identity("somebody else"))
        assert await heard(registry) == ["play", "play"]


async def test_a_task_that_the_server_forgot_is_not_begun_again(tmp_path: Path) -> None:
    async with loaded(tmp_path) as registry:
        await play(registry, DONE, idempotency_key="k")
        (tmp_path / "task0").unlink()
        error = await fails(play(registry, DONE, idempotency_key="k"))
        assert error.code == ErrorCode.EXECUTION_ERROR
        assert await heard(registry) == ["play"]


async def test_a_task_is_resumed_by_its_id(tmp_path: Path) -> None:
    told: list[MCPTask] = []
    async with loaded(tmp_path, on_task=told.append, keep_tasks=True) as registry:
        going = asyncio.create_task(play(registry, *[WORKING] * 1_000, DONE))
        await until(lambda: bool(told))
        going.cancel()
        await asyncio.wait({going})
    (tmp_path / told[0].task_id).write_text(json.dumps([WORKING, DONE]))
    async with loaded(tmp_path) as registry:
        assert await play(registry, metadata={"mcp": {"task": told[0].task_id}}) == {"n": 3}
        error = await fails(play(registry, metadata={"mcp": {"task": "nonsense"}}))
        assert "no such task" in error.message
        assert await heard(registry) == ["play"]


async def test_what_is_remembered_of_a_task_is_readable_by_its_user_alone(tmp_path: Path) -> None:
    async with loaded(tmp_path) as registry:
        await play(registry, DONE, idempotency_key="k")
    (file,) = (tmp_path / "cache/operad").glob("mcp-task-*")
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(b"\xff not ours")
    async with loaded(tmp_path) as registry:
        assert await play(registry, DONE, idempotency_key="k") == {"n": 3}
