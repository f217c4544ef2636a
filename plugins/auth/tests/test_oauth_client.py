"""A client of OAuth 2.0 keeps a token that counts, with one person's login for as long as the server lets it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, ConfigError
from operad_auth import (
    FetchResponse,
    LoginRequired,
    OAuthClient,
    OAuthError,
    OAuthOptions,
    TokenStore,
    default_fetch,
)

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
MACHINE: Any = {"client_id": "machine", "client_secret": "s:e/c ret", "grant": "client_credentials"}


def browse(url: str) -> None:
    """What a browser does with somebody who agrees to everything: it follows redirects."""
    with urllib.request.urlopen(url, timeout=30) as page:
        page.read()


def client(server: Any, tmp_path: Path, *, fetch: Any = None, **options: Any) -> OAuthClient:
    chosen = {"client_id": "cli", "issuer": server.issuer, **options}
    return OAuthClient(OAuthOptions(**chosen), store=TokenStore(tmp_path, keyring=False), fetch=fetch, name="pets")


async def login(one: OAuthClient, **options: Any) -> list[str]:
    told: list[str] = []
    await one.login(tell=told.append, **{"open_url": browse, "timeout": 5.0, **options})
    return told


async def test_a_login_in_a_browser_brings_a_token_that_another_process_finds(server: Any, tmp_path: Path) -> None:
    told = await login(client(server, tmp_path, scopes="read write"))
    assert told[0].startswith(f"Log in at: {server.issuer}/authorize?")
    assert server.forms[0]["grant_type"] == "authorization_code"
    later = client(server, tmp_path)
    token = await later.token()
    assert token.scope is None
    assert token.expires_at is not None
    assert 3500 < token.expires_at - time.time() <= 3600
    assert (await later.token()).access_token == token.access_token
    assert server.seen["token"] == 1
    assert token.access_token not in repr(token) + repr(later)


async def test_without_a_login_the_error_says_which_command_to_run(server: Any, tmp_path: Path) -> None:
    with pytest.raises(LoginRequired, match="run: operad login pets --account work") as caught:
        await client(server, tmp_path, account="work").token()
    assert caught.value.code == "AUTHORIZATION_REQUIRED"
    assert caught.value.details == {"command": "operad login pets --account work"}


async def test_accounts_and_clients_at_one_server_have_tokens_of_their_own(server: Any, tmp_path: Path) -> None:
    server.clients["other"] = None
    await login(client(server, tmp_path))
    for options in ({"account": "work"}, {"client_id": "other"}):
        with pytest.raises(LoginRequired):
            await client(server, tmp_path, **options).token()
    await login(client(server, tmp_path, account="work"))
    first, second = await client(server, tmp_path).token(), await client(server, tmp_path, account="work").token()
    assert first.access_token != second.access_token


async def test_an_expired_token_is_renewed_once_for_all_who_wait(server: Any, tmp_path: Path) -> None:
    server.expires_in = 0
    await login(client(server, tmp_path))
    server.expires_in = 3600
    one = client(server, tmp_path)
    tokens = await asyncio.gather(*(one.token() for _ in range(20)))
    assert len({token.access_token for token in tokens}) == 1
    assert [form["grant_type"] for form in server.forms] == ["authorization_code", "refresh_token"]


async def test_a_token_that_the_service_refused_is_renewed_though_it_has_not_expired(
    server: Any, tmp_path: Path
) -> None:
    one = client(server, tmp_path)
    await login(one)
    before = await one.token()
    one.refused(before.access_token)
    assert (await one.token()).access_token != before.access_token
    one.refused("one that is long gone")
    again = await one.token()
    assert server.seen["token"] == 2
    assert (await client(server, tmp_path).token()).access_token == again.access_token


RENEW = """
import asyncio, sys
from operad_auth import OAuthClient, OAuthOptions, TokenStore
async def main(issuer, folder):
    options = OAuthOptions(client_id="cli", issuer=issuer)
    print((await OAuthClient(options, store=TokenStore(folder, keyring=False)).token()).access_token)
asyncio.run(main(*sys.argv[1:]))
"""


async def test_several_processes_use_a_refresh_token_once(server: Any, tmp_path: Path) -> None:
    server.expires_in = 0
    await login(client(server, tmp_path))
    server.expires_in = 3600
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", RENEW, server.issuer, str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        for _ in range(4)
    ]
    tokens = {(await process.communicate())[0] for process in processes}
    assert len(tokens) == 1
    assert len(tokens.pop()) > 100
    assert [form["grant_type"] for form in server.forms].count("refresh_token") == 1


async def test_a_login_that_the_server_ended_asks_for_another_one(server: Any, tmp_path: Path) -> None:
    one = client(server, tmp_path)
    await login(one)
    server.refresh_tokens.clear()
    one.refused((await one.token()).access_token)
    with pytest.raises(LoginRequired, match="the login has expired"):
        await one.token()
    with pytest.raises(LoginRequired, match="has not logged in"):
        await one.token()
    await login(one)
    assert (await one.token()).access_token


async def test_a_server_that_is_down_loses_no_login(server: Any, tmp_path: Path) -> None:
    server.expires_in = 0
    one = client(server, tmp_path)
    await login(one)
    server.expires_in = 3600
    server.failures = [503, 503, 503]
    with pytest.raises(CallError) as caught:
        await client(server, tmp_path).token()
    assert caught.value.code == "UNAVAILABLE"
    server.failures = [503, 429]
    assert (await client(server, tmp_path).token()).access_token
    assert server.seen["token"] == 1 + 3 + 3


async def test_a_device_without_a_browser_shows_a_code(server: Any, tmp_path: Path) -> None:
    one = client(server, tmp_path)
    told = await login(one, open_url=None)
    assert told == [f"Open {server.issuer}/enter and enter the code: WDJB-MJHT"]
    assert server.seen["token"] == 3
    assert (await client(server, tmp_path).token()).access_token


async def test_a_device_asks_on_while_the_browser_is_open(server: Any, tmp_path: Path) -> None:
    left, closed = threading.Event(), []

    def browse(url: str) -> None:
        closed.append(left.wait(10))

    try:
        told = await login(client(server, tmp_path, grant="device_code"), open_url=browse)
        assert (len(told), closed) == (1, [])
    finally:
        left.set()


async def test_a_device_that_is_refused_or_asks_too_often_is_told(server: Any, tmp_path: Path) -> None:
    one = client(server, tmp_path, grant="device_code")
    server.refuse = {"error": "access_denied", "error_description": "not\x1b[31m you"}
    with pytest.raises(OAuthError, match=r"access_denied \(not\[31m you\)"):
        await login(one)
    server.refuse = {"error": "slow_down"}
    with pytest.raises(CallError, match="was not completed within .* did not enter and approve the code"):
        await login(one, timeout=0.1)


async def test_client_credentials_bring_a_token_when_it_is_needed(server: Any, tmp_path: Path) -> None:
    one = client(server, tmp_path, **MACHINE, scopes=["read"], audience="pets", extra={"tenant": "7"})
    server.failures = [502]
    token = await one.token()
    assert (await one.token()) is token
    assert not list(tmp_path.glob("tokens*"))
    form = dict(server.forms[-1])
    assert form.pop("authorization").startswith("Basic ")
    assert form == {"grant_type": "client_credentials", "scope": "read", "audience": "pets", "tenant": "7"}
    one.refused(token.access_token)
    assert (await one.token()).access_token != token.access_token


async def test_the_secret_is_sent_as_the_server_or_the_configuration_wants(server: Any, tmp_path: Path) -> None:
    await client(server, tmp_path, **MACHINE, client_auth="post").token()
    assert server.forms[-1]["client_secret"] == "s:e/c ret"
    assert not server.forms[-1]["authorization"]
    server.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post", "none"]}
    await client(server, tmp_path, **MACHINE).token()
    assert server.forms[-1]["client_secret"] == "s:e/c ret"


async def test_a_client_may_prove_itself_by_its_key(server: Any, tmp_path: Path) -> None:
    private, server.client_key = server.key_pair("client")
    signer = {"client_id": "signer", "private_key": json.dumps(private), "grant": "client_credentials"}
    one = client(server, tmp_path, **signer, client_auth="private_key_jwt")
    first = await one.token()
    one.refused(first.access_token)
    assert (await one.token()).access_token != first.access_token
    assert "client_secret" not in server.forms[-1]
    assert private["d"] not in repr(one)
    other, _ = server.key_pair("client")
    with pytest.raises(OAuthError, match="invalid_client"):
        await client(server, tmp_path, **{**signer, "private_key": json.dumps(other)}).token()
    with pytest.raises(ConfigError, match="requires private_key"):
        OAuthOptions(client_id="c", issuer="https://id.example", client_auth="private_key_jwt")


async def test_a_wrong_secret_is_the_servers_word_without_the_secret(server: Any, tmp_path: Path) -> None:
    machine = {**MACHINE, "client_secret": "wr0ng-secret"}
    with pytest.raises(OAuthError, match="refused the request: invalid_client") as caught:
        await client(server, tmp_path, **machine).token()
    assert caught.value.error == "invalid_client"
    assert "wr0ng" not in str(caught.value) + repr(caught.value.details)


async def test_an_answer_in_the_name_of_another_server_is_not_used(server: Any, tmp_path: Path) -> None:
    server.authorization_iss = "https://evil.example"
    with pytest.raises(OAuthError, match="got https://evil.example; its code was not used"):
        await login(client(server, tmp_path))
    server.authorization_iss = None
    server.metadata = {"authorization_response_iss_parameter_supported": True}
    with pytest.raises(OAuthError, match="got none; its code was not used"):
        await login(client(server, tmp_path))
    assert server.seen["token"] == 0
    server.authorization_iss = server.issuer
    await login(client(server, tmp_path))


async def test_somebody_who_refuses_is_heard(server: Any, tmp_path: Path) -> None:
    server.refuse = {"error": "access_denied", "error_description": "no, thanks"}
    with pytest.raises(OAuthError, match=r"access_denied \(no, thanks\)"):
        await login(client(server, tmp_path))
    with pytest.raises(CallError, match="did not log in within"):
        await login(client(server, tmp_path), open_url=lambda url: None, timeout=0.05)


async def test_logging_out_forgets_and_revokes(server: Any, tmp_path: Path) -> None:
    one = client(server, tmp_path)
    assert await one.logout() == "there was no token"
    await login(one)
    (refresh,) = server.refresh_tokens
    assert "revoked" in await one.logout()
    assert server.revoked == [refresh]
    with pytest.raises(LoginRequired):
        await one.token()


async def test_an_issuer_that_speaks_for_another_one_is_not_believed(server: Any, tmp_path: Path) -> None:
    server.metadata = {"issuer": "https://other.example"}
    with pytest.raises(ConfigError, match="expected issuer .*, got"):
        await login(client(server, tmp_path))


async def test_endpoints_may_be_named_where_nothing_is_published(server: Any, tmp_path: Path) -> None:
    named = {"issuer": None, "token_url": server.issuer + "/token"}
    with pytest.raises(ConfigError, match="set authorization_url"):
        await login(client(server, tmp_path, **named))
    await login(client(server, tmp_path, **named, authorization_url=server.issuer + "/authorize?prompt=login"))
    assert server.seen["well_known_oauth_authorization_server"] == 0
    assert (await client(server, tmp_path, **named).token()).access_token


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"issuer": None}, "set one of them"),
        ({"issuer": "http://id.example"}, "expected an https URL"),
        ({"token_url": "ftp://id.example"}, "expected an https URL"),
        ({"grant": "client_credentials"}, "requires client_secret or private_key"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        OAuthOptions(**{"client_id": "cli", "issuer": "https://id.example", **options})


def answered(tmp_path: Path, status: int, body: str) -> OAuthClient:
    """A client whose requests have one response."""

    async def fetch(method: str, url: str, **_: Any) -> FetchResponse:
        return FetchResponse(status, {}, body.encode())

    options = OAuthOptions(**MACHINE, token_url="https://id.example/token")
    return OAuthClient(options, store=TokenStore(tmp_path), fetch=fetch)


@pytest.mark.parametrize(
    ("body", "status", "code"), [*TABLES["wrong answers"], ("[" * 100_000, 200, "EXECUTION_ERROR")]
)
async def test_an_answer_that_is_no_token_is_an_error_in_words(
    tmp_path: Path, body: str, status: int, code: str
) -> None:
    with pytest.raises(CallError, match=r"https://id\.example/token") as caught:
        await answered(tmp_path, status, body).token()
    assert caught.value.code == code


@pytest.mark.parametrize("lasts", ["3600", "soon", None, -5, [1], pytest.param(10**400, id="huge")])
async def test_any_word_on_expiry_is_survived(tmp_path: Path, lasts: Any) -> None:
    body = json.dumps({"access_token": "t", "expires_in": lasts})
    assert (await answered(tmp_path, 200, body).token()).access_token == "t"


async def test_the_standard_librarys_fetch_follows_no_redirect_and_bounds_what_it_reads(server: Any) -> None:
    url = f"{server.issuer}/authorize?state=s&redirect_uri={server.issuer}/jwks"
    answer = await default_fetch("GET", url)
    assert answer.status == 302
    assert server.seen["jwks"] == 0
    server.metadata = {"long": "x" * (1 << 20)}
    with pytest.raises(CallError, match="larger than 1048576 bytes"):
        await default_fetch("GET", server.issuer + "/.well-known/oauth-authorization-server")
    with pytest.raises(CallError) as caught:
        await default_fetch("GET", "http://127.0.0.1:9/")
    assert caught.value.code == "UNAVAILABLE"
    with pytest.raises(ConfigError, match="expected an http"):
        await default_fetch("GET", f"file://{os.devnull}")


@pytest.mark.parametrize(
    ("response", "summary"),
    [
        (FetchResponse(503), "HTTP 503"),
        (FetchResponse(200, {}, b"<html>"), "HTTP 200 with no JSON"),
        (FetchResponse(200, {}, b"[1]"), "HTTP 200 with a JSON array"),
        (FetchResponse(200, {}, b"7"), "HTTP 200 with a JSON value that is not an object"),
    ],
)
def test_a_response_that_cannot_be_used_is_summarized_for_messages(response: FetchResponse, summary: str) -> None:
    assert response.summary() == summary
