"""Servers that other people wrote, over stdio: everything they offer is listed, called, and answered losslessly."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from operad import CallError, ErrorCode, OperationRegistry, load_plugins
from tests.kit import listening, output_of
from tests.peers.mcp.installed import HERE, NODE, NPM, in_node

RECORDER = """
import subprocess, sys, threading
log = open(sys.argv[1], "ab", buffering=0)
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def pump():
    for line in sys.stdin.buffer:
        child.stdin.write(line); child.stdin.flush()
    child.stdin.close()
threading.Thread(target=pump, daemon=True).start()
for line in child.stdout:
    log.write(line)
    sys.stdout.buffer.write(line); sys.stdout.buffer.flush()
"""
"""Stands between operad and the server, and keeps what the server said."""


TABLE = json.loads((HERE / "real_servers.json").read_text())
"""By server: how many tools it has, calls with what they show, calls that are refused, and what every tool refuses."""


class Peer:
    """A registry with one real server as namespace ``s``, and everything that the server wrote."""

    def __init__(self, registry: OperationRegistry, log: Path) -> None:
        self.registry = registry
        self._log = log

    @property
    def tools(self) -> dict[str, Any]:
        return {
            spec.name: spec for spec in self.registry.specs() if spec.metadata.get("mcp", {}).get("kind") == "tool"
        }

    def said(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_bytes().splitlines() if line.startswith(b"{")]

    async def call(self, name: str, input: dict[str, Any] | None = None) -> Any:
        """Call; the envelope's content is what the server sent, and its data fit the output schema."""
        envelope = await self.registry.execute(f"s.{name}", input or {}, timeout=60)
        raw = next(
            message["result"] for message in reversed(self.said()) if "content" in message.get("result", {})
        )
        meta = envelope.to_wire()["meta"]
        assert meta["content"] == raw["content"]
        assert meta["isError"] == raw.get("isError", False)
        assert meta.get("structuredContent", "absent") == raw.get("structuredContent", "absent")
        spec = self.tools[name]
        if not envelope.meta.is_error and not spec.output_schema.is_unknown:
            assert spec.output_schema.errors(envelope.data) == []
        return envelope

    async def works(self, server: str, root: str = "") -> None:
        """Make the calls of the table: each shows what it says, or is refused."""
        table = json.loads(json.dumps(TABLE[server]).replace("ROOT", root))
        assert len(self.tools) == table.get("tools", len(self.tools))
        for name, input, *shown in table["calls"]:
            seen = await self.call(name, input)
            texts = [json.dumps(seen.data), *(getattr(block, "text", "") for block in seen.meta.content)]
            assert all(any(part in text for text in texts) for part in shown), (name, texts)
        everywhere = self.tools if "everywhere" in table else ()
        for name in sorted({*everywhere} - {"list_allowed_directories", "read_graph"}):
            await self.refused(name, table["everywhere"])
        for name, input in table.get("refused", ()):
            await self.refused(name, input)

    async def refused(self, name: str, input: dict[str, Any]) -> None:
        """The input is refused: here, or by the server."""
        try:
            envelope = await self.registry.execute(f"s.{name}", input, timeout=60)
        except CallError as error:
            assert error.code in (ErrorCode.VALIDATION_ERROR, ErrorCode.EXECUTION_ERROR)  # noqa: PT017  # one of two
        else:
            assert envelope.meta.is_error


@asynccontextmanager
async def peer(tmp_path: Path, command: str, *arguments: str, **options: Any) -> AsyncIterator[Peer]:
    log = tmp_path / "said.jsonl"
    async with OperationRegistry(load_plugins(only=["mcp"])) as registry:
        recorded = ["-c", RECORDER, str(log), command, *arguments]
        options = {"args": recorded, "connect_timeout": 120, **options}
        await registry.load("mcp", namespace="s", command=sys.executable, **options)
        found = Peer(registry, log)
        listed = [message["result"]["tools"] for message in found.said() if "tools" in message.get("result", {})]
        assert set(found.tools) == {tool["name"] for tool in listed[0]}
        yield found


def npm(name: str) -> tuple[str, str]:
    return str(NODE), str(NPM / name / "dist/index.js")


def pypi(module: str, venv: str = ".venv") -> str:
    """The Python that has a server; the test is skipped without one."""
    own = HERE / venv / "bin/python"
    if own.exists():
        return str(own)
    import importlib.util

    if venv != ".venv" or importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: see tests/peers/mcp/requirements*.txt")
    return sys.executable


@in_node
async def test_everything(tmp_path: Path) -> None:
    async with peer(tmp_path, *npm("server-everything"), "stdio") as s:
        assert len(s.tools) >= 11
        await s.works("everything")
        image = await s.call("get-tiny-image")
        assert {block.type for block in image.meta.content} == {"text", "image"}
        annotated = await s.call("get-annotated-message", {"messageType": "error", "includeImage": True})
        annotations = annotated.meta.content[0].annotations
        assert (annotations.priority, {*annotations.audience}) == (1.0, {"user", "assistant"})
        links = await s.call("get-resource-links", {"count": 3})
        assert sum(block.type == "resource_link" for block in links.meta.content) == 3
        reference = await s.call("get-resource-reference", {"resourceType": "Text", "resourceId": 1})
        assert any(block.type == "resource" for block in reference.meta.content)
        structured = await s.call("get-structured-content", {"location": "Chicago"})
        assert structured.data == structured.meta.structured_content
        assert "temperature" in structured.data
        listed = (await s.registry.execute("s.resources.list")).data
        read = await s.registry.execute("s.resources.read", {"uri": listed[0]["uri"]})
        assert read.data[0]["text"]
        prompt = await s.registry.execute("s.prompts.get.args-prompt", {"city": "Rome"})
        assert "Rome" in prompt.meta.content[0].text


@in_node
async def test_everything_tells_of_resources_that_change(tmp_path: Path) -> None:
    async with peer(tmp_path, *npm("server-everything"), "stdio") as s:
        uri = "demo://resource/dynamic/text/1"
        async with s.registry.subscribe("s.resources.subscribe", {"uri": uri}) as updates:
            first = asyncio.ensure_future(anext(updates))
            while {} not in [message.get("result") for message in s.said()]:  # of resources/subscribe
                await asyncio.sleep(0.02)
            await s.call("toggle-subscriber-updates")
            async with asyncio.timeout(30):
                assert (await first).data["uri"] == uri
            await s.call("toggle-subscriber-updates")


@in_node
async def test_filesystem(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "p.png").write_bytes(b"\x89PNG")
    async with peer(tmp_path, *npm("server-filesystem"), str(folder)) as s:
        await s.works("filesystem", str(folder))
        media = await s.call("read_media_file", {"path": str(folder / "p.png")})
        assert media.meta.content[0].type == "image"
    assert (folder / "b.txt").read_text() == "1\ntwo\n"


@in_node
async def test_memory(tmp_path: Path) -> None:
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    async with peer(tmp_path, *npm("server-memory"), env=env) as s:
        await s.works("memory")


@in_node
async def test_sequential_thinking(tmp_path: Path) -> None:
    async with peer(tmp_path, *npm("server-sequential-thinking")) as s:
        await s.works("sequential-thinking")


async def test_time(tmp_path: Path) -> None:
    async with peer(tmp_path, pypi("mcp_server_time"), "-m", "mcp_server_time", "--local-timezone", "UTC") as s:
        await s.works("time")


async def test_git(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "a.txt").write_text("one\n")
    name, mail = "config user.name t", "config user.email t@t.invalid"
    for command in ("init -b main", name, mail, "add .", "commit -m first"):
        await output_of("git", "-C", repository, *command.split())
    (repository / "a.txt").write_text("two\n")
    async with peer(tmp_path, pypi("mcp_server_git"), "-m", "mcp_server_git", "-r", str(repository)) as s:
        await s.works("git", str(repository))


async def test_fetch(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="<h1>Hello</h1><p>operad</p>", content_type="text/html")

    arguments = ("-m", "mcp_server_fetch", "--ignore-robots-txt")
    async with listening(answer) as url, peer(tmp_path, pypi("mcp_server_fetch"), *arguments) as s:
        await s.works("fetch", url)


async def test_sqlite_on_the_sdks_first_major_version(tmp_path: Path) -> None:
    python = pypi("mcp_server_sqlite", ".venv-mcp1")
    script = Path(python).with_name("mcp-server-sqlite")
    async with peer(tmp_path, python, str(script), "--db-path", str(tmp_path / "t.db")) as s:
        await s.works("sqlite")
        memo = await s.registry.execute("s.resources.read", {"uri": "memo://insights"})
        assert "one is a number" in memo.data[0]["text"]
