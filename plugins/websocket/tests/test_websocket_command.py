"""``operad hub``: what its flags and its table say, and how it ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives import serialization as pem

from operad import CallHandler, ConfigError, Identity, OperadError, PendingRequestMap, operation
from operad.config import load_configuration
from operad.plugin import TransportError
from operad_auth.http import until_stopped
from operad_testing import Participant
from operad_websocket import HubConfig, WebSocketTransport
from operad_websocket._served import ServedHub
from plugins.websocket.tests.kit import TABLES, code_of, error_of, registry_of
from plugins.websocket.tests.test_websocket_switch import Spoke
from tests.kit import OPERAD

TABLE = """
[hub]
listen = "127.0.0.1:0"
tokens_file = "tokens.toml"
drain = 30
[[hub.tokens]]
token = "of a worker"
id = "worker"
[hub.names]
worker = ["shop.*"]
[hub.limits]
links = 5
"""


def hub_table(folder: Path, text: str) -> HubConfig:
    (folder / "operad.toml").write_text(text)
    return load_configuration(folder / "operad.toml").table("hub", HubConfig)


def shop(gate: asyncio.Event, transport: WebSocketTransport, **options: Any) -> CallHandler:
    @operation(namespace="shop", type="mutation")
    async def buy() -> str:
        await gate.wait()
        return "bought"

    return CallHandler(registry_of(buy), transport, **options)


@asynccontextmanager
async def running(folder: Path, *arguments: str, **environment: str) -> AsyncIterator[tuple[Any, str]]:
    process = await asyncio.create_subprocess_exec(
        OPERAD, "hub", *arguments, cwd=folder, stderr=asyncio.subprocess.PIPE, env={**os.environ, **environment}
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            line = (await process.stderr.readline()).decode()
        found = re.search(r"wss?://127\.0\.0\.1:\d+", line)
        assert found is not None, line + (await asyncio.wait_for(process.stderr.read(2_000), 5)).decode()
        yield process, found[0]
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), 30)


async def test_a_hub_of_a_configuration_asks_for_tokens_and_finishes_what_is_under_way(tmp_path: Path) -> None:
    hub_table(tmp_path, TABLE)
    (tmp_path / "tokens.toml").write_text('"of a client" = "client"\n')
    manager, gate = tmp_path / "notify", asyncio.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(manager))
        told.setblocking(False)
        async with running(tmp_path, NOTIFY_SOCKET=str(manager)) as (process, url):
            worker, client = (WebSocketTransport(url, token=f"of a {name}") for name in ("worker", "client"))
            async with shop(gate, worker), PendingRequestMap(client) as calls:
                with pytest.raises(TransportError, match="401"):
                    await PendingRequestMap(WebSocketTransport(url)).open()
                async with Participant.open(client) as other:
                    with pytest.raises(TransportError, match="may not serve"):
                        await other.link.register("op:shop.buy", "operad")
                call = asyncio.create_task(calls.call("shop.buy"))
                await _pending(url)
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(30):
                    await process.stderr.readuntil(b"draining\n")
                error: Any = await error_of(calls.call("shop.buy"))
                assert (error.code, error.details["sent"]) == ("UNAVAILABLE", False)
                gate.set()
                assert (await call).data == "bought"
            assert await asyncio.wait_for(process.wait(), 30) == 0
            assert [told.recv(100), told.recv(100)] == [b"READY=1", b"STOPPING=1"]


async def _pending(url: str) -> None:
    """Until a request is under way."""
    text, headers = "", {"Authorization": "Bearer of a client"}
    async with (
        aiohttp.ClientSession(url.replace("ws", "http", 1), headers=headers) as session,
        asyncio.timeout(30),
    ):
        while "operad_hub_pending 1\n" not in text:
            async with session.get("/metrics") as response:
                text = await response.text()


@pytest.mark.parametrize(("table", "flag"), [("[hub]\ncheck_frames = true\n", ()), ("", ("--check-frames",))])
async def test_a_hub_checks_frames_if_asked(tmp_path: Path, table: str, flag: tuple[str, ...]) -> None:
    (tmp_path / "operad.toml").write_text(table)
    async with (
        running(tmp_path, "--listen", "127.0.0.1:0", *flag) as (_, url),
        aiohttp.ClientSession() as session,
        session.ws_connect(url) as socket,
    ):
        await socket.send_str('{"type":"call.completed","payload":{"requestId":"1"}}')
        assert "must contain" in (await socket.receive(timeout=30)).data


async def test_a_second_signal_ends_a_hub_that_drains(tmp_path: Path) -> None:
    async with running(tmp_path, "--listen", "127.0.0.1:0", "--drain", "600") as (process, url):
        transport = WebSocketTransport(url)
        async with shop(asyncio.Event(), transport, drain_timeout=0.1), PendingRequestMap(transport) as calls:
            call = asyncio.create_task(calls.call("shop.buy", timeout=300))
            await _pending(url)
            process.send_signal(signal.SIGINT)
            assert (await process.stderr.readline()).decode() == "draining\n"
            process.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(process.wait(), 30) == 1
            assert b"a second signal" in await process.stderr.read()
            assert await code_of(call) == "UNAVAILABLE"


def test_what_cannot_be_a_hub_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "junk.pem").write_text("junk")
    for text, words in TABLES["no hub"]:
        with pytest.raises(ConfigError, match=words):
            ServedHub(hub_table(tmp_path, f"[hub]\n{text}\n"), tmp_path)
    assert ServedHub(HubConfig(listen="127.0.0.1:65535", drain=0), tmp_path).url == "ws://127.0.0.1:65535"
    assert ServedHub(HubConfig(listen="[::1]:1"), tmp_path).url == "ws://[::1]:1"


@pytest.mark.parametrize(
    ("files", "reported"),
    [
        ('cert = "hub.pem"\nkey = "key.pem"', "^key: .* got an encrypted one in .*key.pem; decrypt it"),
        ('cert = "both.pem"', "^cert: .* got an encrypted one in .*both.pem; decrypt it"),
    ],
)
def test_an_encrypted_key_is_reported_with_its_option_and_file(
    tmp_path: Path, authority: Any, files: str, reported: str
) -> None:
    issued = authority.issue_cert("127.0.0.1")
    key = pem.load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
        pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"secret")
    )
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    for name, data in (("hub.pem", chain), ("key.pem", key), ("both.pem", key + chain)):
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError, match=reported):
        ServedHub(hub_table(tmp_path, f"[hub]\n{files}\n"), tmp_path)


def test_names_are_given_to_identities_by_pattern(tmp_path: Path) -> None:
    names = '[hub.names]\nworker = ["shop.*"]\n"*" = ["echo.*"]\n'
    for who, address, may in (
        (Identity("worker"), "op:shop.buy", True),
        (Identity("worker"), "op:bank.pay", False),
        (Identity("other"), "op:shop.buy", False),
        (None, "op:echo.x", True),
        (Identity("other"), "op:operad.list.abc", True),
        (Identity("other"), "all:operad.discover", True),
    ):
        spoke = Spoke(ServedHub(hub_table(tmp_path, names), tmp_path).switch, who)
        assert spoke.serves(address)["topics"] == [address] * may, (who, address)


async def test_a_hub_with_certificates_of_files_asks_spokes_for_theirs(tmp_path: Path, authority: Any) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "hub.pem")
    authority.issue_cert("spoke").private_key_and_cert_chain_pem.write_to_path(tmp_path / "spoke.pem")
    table = '[hub]\nlisten = "127.0.0.1:0"\ncert = "hub.pem"\nclient_ca = "ca.pem"\n'
    async with ServedHub(hub_table(tmp_path, table), tmp_path) as hub:
        ca, cert = str(tmp_path / "ca.pem"), str(tmp_path / "spoke.pem")
        async with PendingRequestMap(WebSocketTransport(hub.url, tls_ca=ca, tls_cert=cert)) as calls:
            assert await code_of(calls.call("a.b")) == "OPERATION_NOT_FOUND"
        (tmp_path / "junk.pem").write_text("junk")
        with pytest.raises(ConfigError, match="^client_ca: .*junk.pem cannot be used"):
            ServedHub(hub_table(tmp_path, table.replace("ca.pem", "junk.pem")), tmp_path)


@pytest.mark.parametrize("flags", [("--jwks",), ("--jwks", "--issuer"), ("--audience",), ("--jwks", "--audience")])
def test_the_command_says_what_its_flags_need(flags: tuple[str, ...]) -> None:
    from click.testing import CliRunner

    from operad_websocket._command import hub

    answer = CliRunner().invoke(hub, [word for flag in flags for word in (flag, "https://issuer.example/keys")])
    assert answer.exit_code == 2
    assert "--jwks requires --issuer and --audience" in answer.output


async def test_a_second_signal_ends_what_runs_in_the_context_and_nothing_else() -> None:
    for signals in (1, 2):
        ended: list[str] = []
        try:
            with until_stopped() as stopped:
                os.kill(os.getpid(), signal.SIGTERM)
                await stopped.wait()
                if signals == 2:
                    os.kill(os.getpid(), signal.SIGINT)
                    await asyncio.sleep(10)
                ended.append("drained")
        except OperadError as error:
            ended.append(str(error))
        assert ended[0].startswith("drained" if signals == 1 else "a second signal")
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
