"""Cassettes: what calls answered is written down once, and played back without whoever answered."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, ConfigError, OperationRegistry, OperationSpec, ResponseEnvelope
from operad_testing import cassette

RUNS: list[Any] = []


async def pet(input: Any, context: Any) -> Any:
    RUNS.append(input)
    if input.get("id") == 404:
        raise CallError("NOT_FOUND", "no such pet", {"id": 404})
    return {"id": input.get("id"), "run": len(RUNS), "api_token": "t0p-s3cret", "note": f"key {input.get('key')}"}


async def feed(input: Any, context: Any) -> AsyncIterator[int]:
    RUNS.append(input)
    for number in range(input["n"]):
        yield number
    if input.get("breaks"):
        raise CallError("BROKEN", "the feed broke")


@pytest.fixture
def live() -> OperationRegistry:
    RUNS.clear()
    registry = OperationRegistry()
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    registry.register(OperationSpec(namespace="pets", name="get", type="query", input_schema=schema), pet)
    registry.register(OperationSpec(namespace="pets", name="feed", type="subscription"), feed)
    return registry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a cassette is written, in a folder that does not exist yet."""
    return tmp_path / "tapes" / "pets.json"


async def test_a_recording_is_played_back_without_calling_anything(live: OperationRegistry, path: Path) -> None:
    with cassette(path, live) as tape:
        first = await live.execute("pets.get", {"id": 1})
        items = [envelope.data async for envelope in live.subscribe("pets.feed", {"n": 3})]
        with pytest.raises(CallError):
            await live.execute("pets.get", {"id": 404})
        assert (tape.recorded, tape.played) == (3, 0)
    runs = len(RUNS)
    empty = OperationRegistry()  # no source, no server: the specs are on the cassette
    with cassette(path, empty) as tape:
        again = await empty.execute("pets.get", {"id": 1})
        assert isinstance(again, ResponseEnvelope)
        assert (again.data["id"], again.meta) == (1, first.meta)
        assert [envelope.data async for envelope in empty.subscribe("pets.feed", {"n": 3})] == items
        with pytest.raises(CallError, match="no such pet") as caught:
            await empty.execute("pets.get", {"id": 404})
        assert (caught.value.code, caught.value.details) == ("NOT_FOUND", {"id": 404})
        with pytest.raises(CallError) as caught:
            await empty.execute("pets.get", {"id": "one"})
        assert caught.value.code == "VALIDATION_ERROR"
        assert (tape.recorded, tape.played) == (0, 3)
    assert len(RUNS) == runs
    assert len(empty) == 0


async def test_a_call_that_is_not_recorded_shows_the_nearest_one(live: OperationRegistry, path: Path) -> None:
    with cassette(path, live):
        await live.execute("pets.get", {"id": 1, "name": "Rex", "tags": ["a"]})
        await live.execute("pets.get", {"id": 900})
    with cassette(path, live, mode="replay"):
        with pytest.raises(CallError) as caught:
            await live.execute("pets.get", {"id": 1, "name": "Max", "tags": ["a"]})
        with pytest.raises(CallError, match="recorded operations: pets.get"):
            await anext(live.subscribe("pets.feed", {"n": 1}))
    assert caught.value.code == "NOT_RECORDED"
    assert caught.value.details == {"operationId": "pets.get", "nearest": {"id": 1, "name": "Rex", "tags": ["a"]}}
    assert '- "name": "Rex"' in caught.value.message
    assert '+ "name": "Max"' in caught.value.message
    assert len(RUNS) == 2


async def test_repeated_calls_are_played_in_their_order_and_the_last_stays(
    live: OperationRegistry, path: Path
) -> None:
    with cassette(path, live):
        recorded = [(await live.execute("pets.get", {"id": 1})).data["run"] for _ in range(2)]
    with cassette(path, live):
        played = [(await live.execute("pets.get", {"id": 1})).data["run"] for _ in range(3)]
    assert played == [*recorded, recorded[-1]]


async def test_secrets_are_not_written_and_calls_are_found_all_the_same(
    live: OperationRegistry, path: Path
) -> None:
    call = {"id": 1, "Password": "hunter2", "key": "k-47-elf", "headers": {"Authorization": "Bearer x-47-elf-y"}}
    with cassette(path, live, secrets=["47-elf"]):
        await live.execute("pets.get", call)
    text = path.read_text()
    for secret in ("hunter2", "47-elf", "t0p-s3cret", "Bearer"):
        assert secret not in text
    with cassette(path, live, mode="replay", secrets=["47-elf"]):
        answer = await live.execute("pets.get", call)
    assert answer.data["api_token"] == "[redacted]"
    assert answer.data["note"] == "key k-[redacted]"


async def test_what_is_written_for_a_secret_can_be_played_and_no_other_field_repeats_it(path: Path) -> None:
    key = "k-SECRET-1"
    wires: list[dict[str, Any]] = [
        {"set-cookie": ["a=1", "b=2"], "token_count": 7, "tokens": {"left": 1.5, "of": key, "is": True}},
        {"url": f"https://x.test/a?API_KEY={key}&city=Bonn#x", "link": '<https://x.test/?page=2&sig=1&x-amz-signature=abc>'},
        {"Proxy-Authorization": "Basic abc", "X-Access-Key": "abc", "x-auth": "abc", "X-Session-Id": "abc"},
        {"message": f"the key {key} is wrong"},
    ]  # fmt: skip
    schema = {
        "type": "object",
        "properties": {
            "tokens": {"type": "object", "additionalProperties": True},
            "token_count": {"type": "integer"},
        },
        "additionalProperties": True,
    }

    async def answer(input: Any, context: Any) -> Any:
        if input.get("fails"):
            raise CallError("DENIED", f"the key {key} is wrong", {"sent": key})
        return wires[input["n"]]

    def served() -> OperationRegistry:
        registry = OperationRegistry(on_mismatch="raise")
        spec = OperationSpec(namespace="s", name="get", output_schema=schema, description=f"as {key}")
        registry.register(spec, answer)
        return registry

    calls = [{"n": n, "api_key": key, "about": f"for {key}"} for n in range(len(wires))]
    live = served()
    with cassette(path, live, secrets=["as k-SECRET-1"]):
        for call in calls:
            await live.execute("s.get", call)
        with pytest.raises(CallError):
            await live.execute("s.get", {"fails": True, "api_key": key})
    text = path.read_text()
    assert key not in text
    assert "abc" not in text
    assert "page=2&sig=1" in text
    with cassette(path, live, mode="replay", secrets=["as k-SECRET-1"]):
        played = [(await live.execute("s.get", call)).data for call in calls]
        with pytest.raises(CallError, match=r"the key \[redacted\] is wrong"):
            await live.execute("s.get", {"fails": True, "api_key": key})
    assert played[0] == {
        "set-cookie": ["[redacted]"] * 2,
        "token_count": 0,
        "tokens": {"left": 0.0, "of": "[redacted]", "is": True},
    }
    assert played[1]["url"] == "https://x.test/a?API_KEY=[redacted]&city=Bonn#x"


async def test_modes_say_what_is_recorded(live: OperationRegistry, path: Path) -> None:
    with pytest.raises(ConfigError, match="the cassette does not exist"):
        cassette(path, live, mode="replay")
    with cassette(path, live):
        await live.execute("pets.get", {"id": 1})
    with cassette(path, live, mode="new") as tape:
        await live.execute("pets.get", {"id": 1})
        await live.execute("pets.get", {"id": 2})
        assert (tape.played, tape.recorded) == (1, 1)
    assert len(json.loads(path.read_text())["calls"]) == 2
    with cassette(path, live, mode="record"):
        await live.execute("pets.get", {"id": 3})
    assert [one["input"] for one in json.loads(path.read_text())["calls"]] == [{"id": 3}]
    with cassette(path, live, match="other.*"):
        await live.execute("pets.get", {"id": 9})
    for text in ('{"version": 2}', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(
            ConfigError, match=r"is not a readable cassette \((TypeError|RecursionError): .*record"
        ):
            cassette(path, live)
    with pytest.raises(ConfigError, match="is not a readable cassette: Is a directory"):
        cassette(path.parent, live)


async def test_a_cassette_that_is_put_in_twice_records_each_call_once(live: OperationRegistry, path: Path) -> None:
    with cassette(path, live) as tape, tape:
        await live.execute("pets.get", {"id": 1})
    assert len(json.loads(path.read_text())["calls"]) == tape.recorded == 1


async def test_a_stream_that_breaks_or_is_left_is_recorded_as_far_as_it_came(
    live: OperationRegistry, path: Path
) -> None:
    with cassette(path, live):
        with pytest.raises(CallError):
            [item async for item in live.subscribe("pets.feed", {"n": 2, "breaks": True})]
        stream = live.subscribe("pets.feed", {"n": 100})
        await anext(stream)
        await stream.aclose()
    with cassette(path, live, mode="replay"):
        broken = live.subscribe("pets.feed", {"n": 2, "breaks": True})
        assert [(await anext(broken)).data for _ in range(2)] == [0, 1]
        with pytest.raises(CallError, match="the feed broke"):
            await anext(broken)
        left = live.subscribe("pets.feed", {"n": 100})
        assert (await anext(left)).data == 0
        with pytest.raises(CallError, match="NOT_RECORDED: .* items, where its reader left it"):
            await anext(left)


def test_pytest_finds_the_fixtures_by_itself(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("""
import asyncio
from operad import CallError

def test_registry(operad_registry, operad_source, operad_operation):
    operad_source.change([operad_operation("pets.get", {"id": 1}), operad_operation("pets.bad", CallError("GONE"))])
    async def use():
        await operad_registry.load("fake")
        assert (await operad_registry.execute("pets.get")).data == {"id": 1}
        try:
            await operad_registry.execute("pets.bad")
        except CallError as error:
            assert error.code == "GONE"
    asyncio.run(use())

def test_tape(operad_registry, operad_cassette, operad_operation, request):
    operad_registry.register(operad_operation("pets.get", {"id": 1}))
    tape = operad_cassette(operad_registry)
    asyncio.run(operad_registry.execute("pets.get", {"a": 1}))
    assert tape.played + tape.recorded == 1
""")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    tape = json.loads((tmp_path / "cassettes" / "test_it.test_tape.json").read_text())
    assert len(tape["calls"]) == 1
