"""The example of a gateway: `operad serve` with its `operad.toml`, before a login server and an API on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import httpx2
import jwt
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.kit import ROOT, operad

EXAMPLE = ROOT / "examples" / "gateway"


@attrs.define
class Gateway:
    """The running example: its URL, the tokens of its users, and what the API behind it received."""

    url: str
    folder: Path
    api: Any
    tokens: dict[str, str]
    http: aiohttp.ClientSession

    async def call(self, user: str | None, operation: str, **input: Any) -> tuple[int, Any]:
        """Status and body of a call over HTTP."""
        headers = {"authorization": f"Bearer {self.tokens[user]}"} if user else {}
        url = f"{self.url}/operations/{operation}"
        async with self.http.post(url, json=input, headers=headers) as response:
            return response.status, await response.json(content_type=None)

    @asynccontextmanager
    async def host(self, user: str, **options: Any) -> AsyncIterator[Client]:
        """A session of an MCP host."""
        headers = {"authorization": f"Bearer {self.tokens[user]}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as client,
            Client(streamable_http_client(f"{self.url}/mcp", http_client=client), **options) as session,
        ):
            yield session

    async def listed(self, user: str) -> set[str]:
        """The operations in the document of a user."""
        headers = {"authorization": f"Bearer {self.tokens[user]}"}
        async with self.http.get(f"{self.url}/openapi.json", headers=headers) as response:
            return {path.rpartition("/")[2] for path in (await response.json())["paths"]}

    def audited(self) -> list[dict[str, Any]]:
        """The lines of the audit log."""
        return [json.loads(line) for line in (self.folder / "audit.jsonl").read_text().splitlines()]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    folder = shutil.copytree(
        EXAMPLE, tmp_path / "gateway", ignore=shutil.ignore_patterns("__pycache__", "*.jsonl")
    )
    upstream = runpy.run_path(str(EXAMPLE / "upstream.py"))
    async with upstream["serving"](0, 0) as (api, login, url), aiohttp.ClientSession() as http:
        text = (folder / "operad.toml").read_text().replace("http://127.0.0.1:9000", login)
        text = text.replace("http://127.0.0.1:9001", url).replace('"127.0.0.1:8000"', '"127.0.0.1:0"')
        (folder / "operad.toml").write_text(text)
        tokens = {}
        for user in upstream["SCOPES"]:
            headers = {"authorization": aiohttp.encode_basic_auth(user, upstream["SECRETS"][user])}
            form = {"grant_type": "client_credentials"}
            async with http.post(f"{login}/token", data=form, headers=headers) as response:
                tokens[user] = (await response.json())["access_token"]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # of the MCP servers' Python
        serves, secret = r"MCP +(http://\S+)/mcp", "gateway-secret"
        async with operad(folder, "serve", until=serves, PATH=path, GATEWAY_SECRET=secret) as (_, said):
            yield Gateway(re.findall(serves, said)[0], folder, api, tokens, http)


async def test_the_gateway_of_the_example_does_what_its_readme_promises(gateway: Gateway) -> None:
    await each_call_has_the_credential_of_its_caller(gateway)
    await requests_without_a_valid_token_are_refused(gateway)
    await what_is_hidden_is_not_listed_and_what_is_denied_is_not_sent(gateway)
    await results_are_redacted_and_large_ones_are_kept_for_their_caller(gateway)
    await one_caller_at_the_limit_does_not_stop_the_other(gateway)
    await a_deletion_waits_for_the_approval_of_an_administrator(gateway)
    await a_mail_is_sent_if_the_user_of_the_host_agrees(gateway)
    the_audit_log_has_every_call_and_no_secret(gateway)


async def each_call_has_the_credential_of_its_caller(gateway: Gateway) -> None:
    async with gateway.host("ann") as ann, gateway.host("bob") as bob:
        hosts = {"ann": ann, "bob": bob}

        async def over_http(user: str) -> Any:
            return await gateway.call(user, "notes.whoami")

        async def over_mcp(user: str) -> Any:
            return 200, (await hosts[user].call_tool("notes_whoami", {})).structured_content

        users = ("ann", "bob") * 3
        found = await asyncio.gather(*(ask(user) for ask in (over_http, over_mcp) for user in users))
        assert found == [(200, {"user": user, "via": "gateway"}) for _ in range(2) for user in users]
        time = (await ann.call_tool("clock_now", {"utc_offset": 2})).structured_content
        assert time["result"].endswith("+02:00")
    assert sorted(gateway.api.requests) == [(user, "GET /whoami") for user in ("ann", "bob") for _ in range(6)]
    with pytest.raises(jwt.InvalidAudienceError):  # the API would refuse the tokens of the users themselves
        gateway.api.login.verified(gateway.tokens["ann"], "notes")
    status, sentence = await gateway.call("bob", "team.digest")
    assert (status, sentence) == (200, "bob: 2 notes, the last one by bob")
    assert gateway.api.requests[-2:] == [("bob", "GET /whoami"), ("bob", "GET /notes")]


async def requests_without_a_valid_token_are_refused(gateway: Gateway) -> None:
    before = list(gateway.api.requests)
    gateway.tokens["eve"] = gateway.api.login.issued({"sub": "ann", "aud": "notes"})  # not for the gateway
    for user in (None, "eve"):
        status, problem = await gateway.call(user, "notes.whoami")
        assert (status, problem["code"]) == (401, "ACCESS_DENIED")
    async with gateway.http.post(f"{gateway.url}/mcp", json={}) as response:
        assert response.status == 401
    assert gateway.api.requests == before


async def what_is_hidden_is_not_listed_and_what_is_denied_is_not_sent(gateway: Gateway) -> None:
    own = {"clock.now", "mail.send", "mail.sent", "team.digest", "operad.results.read"}
    api = {f"notes.{name}" for name in ("whoami", "search", "export", "delete", "deleteAll")}
    assert await gateway.listed("bob") == own | api
    administration = {"operad.approvals.list", "operad.approvals.decide", "operad.rules.explain"}
    assert await gateway.listed("ann") == own | api | administration
    async with gateway.host("ann") as host:
        assert "notes_users" not in {tool.name for tool in (await host.list_tools()).tools}
    assert (await gateway.call("ann", "notes.users"))[0] == 404
    status, problem = await gateway.call("ann", "notes.deleteAll")
    assert (status, problem["detail"]) == (403, "Delete notes one at a time, with notes.delete.")
    assert {path for _, path in gateway.api.requests} == {"GET /whoami", "GET /notes"}


async def results_are_redacted_and_large_ones_are_kept_for_their_caller(gateway: Gateway) -> None:
    status, notes = await gateway.call("ann", "notes.search", text="tea")
    assert status == 200
    assert notes == [{"id": 1, "workspace": "acme", "owner": "ann", "email": "[redacted]", "text": "Order tea"}]
    status, problem = await gateway.call("ann", "notes.search", text="tea", workspace="other")
    assert (status, problem["code"]) == (422, "VALIDATION_ERROR")
    _, large = await gateway.call("ann", "notes.export")
    assert large["bytes"] > 2_000
    status, part = await gateway.call("ann", "operad.results.read", handle=large["handle"])
    assert status == 200
    assert len(json.loads(part["text"])) == 100
    assert (await gateway.call("bob", "operad.results.read", handle=large["handle"]))[0] == 404


async def one_caller_at_the_limit_does_not_stop_the_other(gateway: Gateway) -> None:
    answers = [await gateway.call("bob", "notes.search") for _ in range(6)]
    assert (answers[0][0], answers[-1][0]) == (200, 429)
    assert answers[-1][1]["details"]["bound"] == "rate"
    assert (await gateway.call("ann", "notes.search"))[0] == 200


async def a_deletion_waits_for_the_approval_of_an_administrator(gateway: Gateway) -> None:
    for allow, status in ((False, 403), (True, 200)):
        deletion = asyncio.create_task(gateway.call("bob", "notes.delete", id=1))
        async with asyncio.timeout(60):
            while not (waiting := (await gateway.call("ann", "operad.approvals.list"))[1]):
                assert not deletion.done()
                await asyncio.sleep(0.01)
        assert [(one["operation"], one["caller"]) for one in waiting] == [("notes.delete", "bob")]
        assert (await gateway.call("bob", "operad.approvals.list"))[0] == 403
        await gateway.call("ann", "operad.approvals.decide", id=waiting[0]["id"], allow=allow)
        assert (await deletion)[0] == status
    decision = {"id": waiting[0]["id"], "allow": True}
    assert (await gateway.call("ann", "operad.approvals.decide", **decision))[0] == 404
    assert [request for request in gateway.api.requests if "DELETE" in request[1]] == [("bob", "DELETE /notes/1")]
    assert [note["id"] for note in gateway.api.notes] == [2, 3]


async def a_mail_is_sent_if_the_user_of_the_host_agrees(gateway: Gateway) -> None:
    mail = {"to": "zoe@example.com", "subject": "Tea"}
    asked: list[str] = []

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept" if len(asked) > 1 else "decline", content={})

    assert (await gateway.call("ann", "mail.send", **mail))[0] == 403
    async with gateway.host("ann", elicitation_callback=answer) as host:
        assert (await host.call_tool("mail_send", mail)).is_error
        assert not (await host.call_tool("mail_send", mail)).is_error
    assert '"ann" to call "mail.send"' in asked[0]
    _, sent = await gateway.call("bob", "mail.sent")
    assert sent["result"] == ["from team@example.com to zoe@example.com: Tea"]


def the_audit_log_has_every_call_and_no_secret(gateway: Gateway) -> None:
    lines = gateway.audited()
    found = {(line["caller"], line["operation"], line["outcome"]) for line in lines}
    assert found >= {
        ("ann", "notes.whoami", "ok"), ("bob", "notes.whoami", "ok"), ("bob", "team.digest", "ok"),
        ("ann", "notes.deleteAll", "ACCESS_DENIED"), ("bob", "notes.search", "OVERLOADED"),
        ("bob", "notes.delete", "ACCESS_DENIED"), ("bob", "notes.delete", "ok"), ("ann", "mail.send", "ok"),
    }  # fmt: skip
    text = (gateway.folder / "audit.jsonl").read_text()
    secrets = [*gateway.tokens.values(), "gateway-secret", "ann-secret", "@example.com", "Order tea"]
    assert [secret for secret in secrets if secret in text] == []
