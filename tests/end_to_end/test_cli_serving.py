"""`operad hub` and `operad serve`, and a call from another process."""

from __future__ import annotations

import base64
import socket
from pathlib import Path

import attrs
import pytest
from aiohttp import web

from operad import CallError, Identity, OperationRegistry, PendingRequestMap, load_plugins
from operad_websocket import Hub
from tests.kit import LOCAL, OPERAD, operad, output_of, url_in

OPERATIONS = """
from operad import operation

@operation(namespace="math", type="query")
async def add(a: int, b: int) -> int:
    return a + b
"""
FILES = """
from dataclasses import dataclass
from pathlib import Path

from operad import operation

@dataclass
class Cover:
    name: str
    image: bytes

@operation(namespace="files", type="query")
async def flip(data: bytes) -> bytes:
    assert isinstance(data, bytes)
    return data[::-1]

@operation(namespace="files", type="query")
async def parent(path: Path) -> Path:
    return path.parent

@operation(namespace="files")
async def publish(cover: Cover, folder: Path) -> Cover:
    return Cover(str(folder / cover.name), cover.image)
"""


@attrs.frozen
class Cover:
    """A class of the caller with the fields of the worker's class."""

    name: str
    image: bytes


def calls_over(url: str) -> PendingRequestMap:
    return PendingRequestMap(load_plugins(only=["websocket"]).transport(url))


async def test_what_one_process_serves_through_a_hub_another_one_calls(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(OPERATIONS)
    async with operad(tmp_path, "hub", "--listen", "127.0.0.1:0", until="hub on") as (_, said):
        url = url_in(said)
        (tmp_path / "operad.toml").write_text(f'{LOCAL}[transport]\nurl = "{url}"\n')
        async with operad(tmp_path, "serve", until="serving 1 operation"), calls_over(url) as calls:
            assert (await calls.call("math.add", {"a": 1, "b": 2}, timeout=30)).data == 3
            with pytest.raises(CallError, match="VALIDATION_ERROR"):
                await calls.call("math.add", {"a": "x"}, timeout=30)
        async with calls_over(url) as calls:
            with pytest.raises(CallError, match="OPERATION_NOT_FOUND"):
                await calls.call("math.add", {"a": 1, "b": 2}, timeout=30)


async def test_bytes_and_paths_pass_through_a_hub(tmp_path: Path) -> None:
    worker, caller, content = tmp_path / "worker", tmp_path / "caller", bytes(range(256)) * 20
    for folder in (worker, caller):
        folder.mkdir()
    (worker / "ops.py").write_text(FILES)
    (caller / "cover.png").write_bytes(content)
    async with operad(tmp_path, "hub", "--listen", "127.0.0.1:0", until="hub on") as (_, said):
        url = url_in(said)
        (worker / "operad.toml").write_text(LOCAL)
        (caller / "operad.toml").write_text(f'[sources.far]\ntype = "remote"\nurl = "{url}"\nnamespace = ""\n')

        async def command(*arguments: str) -> bytes:
            return (await output_of(OPERAD, "call", *arguments, cwd=caller, encoding="latin-1")).encode("latin-1")

        async with (
            operad(worker, "serve", "--transport", url, until="serving 3 operations"),
            calls_over(url) as calls,
            OperationRegistry.from_config(caller / "operad.toml") as registry,
        ):
            files = registry.client("files")
            for flip in (
                calls.call("files.flip", {"data": content}, timeout=30),
                registry.execute("files.flip", {"data": content}, timeout=30),
            ):
                assert base64.b64decode((await flip).data) == content[::-1]
            assert base64.b64decode(await files.flip(data=content)) == content[::-1]
            assert await files.parent(path=Path("a/b")) == "a"
            made = await files.publish(cover=Cover("x.png", content), folder=Path("a"))
            assert (made["name"], base64.b64decode(made["image"])) == ("a/x.png", content)

            assert await command("files.flip", "data@cover.png", "--output", "flipped.png") == b""
            assert (caller / "flipped.png").read_bytes() == content[::-1]
            assert await command("files.flip", "data@flipped.png", "--data") == content
            assert await command("files.parent", "path=a/b", "--data") == b"a\n"


@pytest.mark.parametrize(
    ("host", "complaint"),
    [
        ("127.0.0.1", "Address already in use; use another address with --listen"),
        ("0.0.0.0", "expected a loopback address"),
    ],
)
async def test_a_hub_that_cannot_listen_says_why_and_what_to_do(tmp_path: Path, host: str, complaint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"{host}:{taken.getsockname()[1]}"
        said = await output_of(OPERAD, "hub", "--listen", address, code=1, cwd=tmp_path)
    assert complaint in " ".join(said.split())


@pytest.mark.parametrize("is_configured", [True, False])
async def test_a_token_goes_to_the_hub_that_it_was_configured_for_and_to_no_other(
    tmp_path: Path, is_configured: bool
) -> None:
    seen: list[str | None] = []

    def authenticate(request: web.Request) -> Identity:
        seen.append(request.headers.get("Authorization"))
        return Identity("somebody")

    (tmp_path / "ops.py").write_text(OPERATIONS)
    async with Hub(authenticate, port=0) as hub:
        configured = hub.url if is_configured else "ws://127.0.0.1:1"
        table = f'[transport]\nurl = "{configured}"\ntoken = "of one hub"\n'
        (tmp_path / "operad.toml").write_text(LOCAL + table)
        async with operad(tmp_path, "serve", "--transport", hub.url, until="serving 1 operation") as (_, said):
            warning = f"warning: [transport] is for {configured}; its options are not used here: token"
            assert (warning in " ".join(said.split())) is not is_configured
    assert seen == (["Bearer of one hub"] if is_configured else [None])
