"""The pages on which users connect their accounts, and disconnect them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs
import pytest
from aiohttp.test_utils import RawTestServer
from cryptography.fernet import Fernet
from yarl import URL

from operad import CallError, Identity, OperationContext, OperationRegistry, load_plugins
from operad_auth import TokenRecord
from operad_auth.connecting import UserTokens, user_tokens
from operad_serve import FrontDoor, Plan, ServeOptions
from operad_serve.oauth.options import OAuthServerOptions
from operad_testing import free_port
from plugins.auth.tests.conftest import AuthorizationServer
from plugins.serve.tests import oidc_server
from plugins.serve.tests.browser import Browser
from plugins.serve.tests.oidc_server import CLIENT, Provider

TOKENS = {name: f"gateway-token-of-{name}" for name in ("ann", "bob")}


@attrs.define
class Place:
    """A front door, and the authorization server at which users have their accounts."""

    accounts: AuthorizationServer
    users: UserTokens
    url: str

    async def link(self, name: str) -> str:
        """The link that a call of the user returns."""
        return self.users.link(name)

    async def is_connected(self, name: str) -> bool:
        """Whether calls of the user have a token."""
        try:
            return bool(await self.users.get(OperationContext(identity=Identity(name)), ""))
        except CallError:
            return False


@asynccontextmanager
async def placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: Provider | None = None, **options: Any
) -> AsyncIterator[Place]:
    monkeypatch.setenv("OPERAD_TOKEN_KEY", Fernet.generate_key().decode())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    accounts, port = AuthorizationServer(), free_port()
    url = f"http://127.0.0.1:{port}"
    async with RawTestServer(accounts.handle) as server:
        accounts.issuer = str(server.make_url("")).rstrip("/")
        (tmp_path / "operad.toml").write_text(
            f'[[credentials]]\nname = "users"\ntype = "oauth"\nissuer = "{accounts.issuer}"\nclient_id = "cli"\n'
            f'scopes = ["read"]\npublic_url = "{url}"\n'
        )
        if login is not None:
            given = {"users": {"ann": [], "bob": []}, "store": str(tmp_path / "oauth.db"), **CLIENT}
            options["oauth"] = OAuthServerOptions(url=url, issuer=login.issuer, **given)
        tokens = [TokenRecord(token=token, id=name) for name, token in TOKENS.items()]
        served = ServeOptions(tokens=tokens, allowed_origins=["https://app.example.com"], **options)
        plan = Plan(options=served, http=("127.0.0.1", port))
        async with (
            OperationRegistry.from_config(tmp_path, load_plugins(only=["serve", "auth"])) as registry,
            FrontDoor(registry, plan, asyncio.Event()).open(),
        ):
            yield Place(accounts, user_tokens(registry)["users"], url)


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    async with placed(tmp_path, monkeypatch) as made:
        yield made


async def test_the_link_of_another_user_connects_nothing(place: Place) -> None:
    """The attacker sends a link to a victim, whose account would belong to the attacker."""
    link = await place.link("ann")
    async with Browser() as victim:
        await victim.open(link)
        url, text = await victim.send(TOKENS["bob"])
        assert (victim.status, url) == (400, None)
        assert "made for another user" in text
    assert place.accounts.seen["authorize"] == 0
    async with Browser() as ann:  # the link was not used up
        await ann.open(link)
        assert await ann.agree(TOKENS["ann"])


async def test_a_login_that_another_browser_began_is_not_finished(place: Place) -> None:
    """The attacker begins, and sends the victim to the authorization server."""
    async with Browser() as attacker, Browser() as victim:
        await attacker.open(await place.link("ann"))
        page = await victim.open(await attacker.agree(TOKENS["ann"]))
        assert victim.status == 400
        assert "did not begin in this browser" in page
    assert place.accounts.seen["token"] == 0
    assert not await place.is_connected("ann")


async def test_the_code_of_another_login_is_not_accepted(place: Place) -> None:
    """The attacker agrees, and lets the victim's browser finish: the victim would use the attacker's account."""
    async with Browser() as attacker, Browser() as victim:
        await attacker.open(await place.link("ann"))
        url = await attacker.agree(TOKENS["ann"])
        async with attacker.session.get(URL(url, encoded=True), allow_redirects=False) as response:
            stolen = response.headers["location"]
        await victim.open(await place.link("bob"))
        await victim.agree(TOKENS["bob"])
        page = await victim.open(stolen)
        assert "belongs to another login" in page
    assert place.accounts.seen["token"] == 0


async def test_a_link_works_once_and_a_preview_does_not_use_it_up(place: Place) -> None:
    link = await place.link("ann")
    async with Browser() as browser:
        for _ in range(3):
            await browser.open(link)
        await browser.agree(TOKENS["ann"])
        url, text = await browser.send(TOKENS["ann"])
        assert (browser.status, url) == (400, None)
        assert "used already" in text


@pytest.mark.parametrize("ticket", ["", "x", "gAAAA" * 20, "x" * 10_000, "%00"])
async def test_a_link_that_this_server_did_not_make_is_refused(place: Place, ticket: str) -> None:
    async with Browser() as browser:
        page = await browser.open(f"{place.url}/connect/users?ticket={ticket}")
        assert browser.status == 400
        assert "has expired" in page


async def test_a_response_of_another_issuer_brings_no_code_to_anyone(place: Place) -> None:
    place.accounts.authorization_iss = "https://evil.example.com"
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        page = await browser.open(await browser.agree(TOKENS["ann"]))
        assert browser.status == 502
        assert "got https://evil.example.com; its code was not used" in page
    assert place.accounts.seen["token"] == 0


async def test_a_user_who_refuses_is_not_connected(place: Place) -> None:
    place.accounts.refuse = {"error": "access_denied", "error_description": "<b>no</b>"}
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        page = await browser.open(await browser.agree(TOKENS["ann"]))
        assert browser.status == 502
        assert "access_denied" in page
        assert "<b>no</b>" not in page
    assert not await place.is_connected("ann")


@pytest.mark.parametrize("origin", ["https://evil.example.com", "https://app.example.com", "null", ""])
async def test_a_form_of_another_page_is_refused(place: Place, origin: str) -> None:
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        url, _ = await browser.send(TOKENS["ann"], origin=origin)
        assert browser.status == 403
        assert url is None


async def test_a_wrong_token_in_the_form_is_refused(place: Place) -> None:
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        for token in ("wrong", "", None):
            url, text = await browser.send(token)
            assert (browser.status, url, "token is missing or not valid" in text) == (401, None, True)


@pytest.mark.parametrize(
    "path",
    [
        "connect/users//%0d%0aX-Evil:%201",
        "connect/users//more",
        "connect/users/callback/more",
        "disconnect/users/callback",
        "connect//users",
    ],
)
async def test_a_path_that_only_begins_as_that_of_a_page_is_unknown(place: Place, path: str) -> None:
    async with Browser() as browser:
        await browser.open(f"{place.url}/{path}")
        assert browser.status == 404
        await browser.open(f"{place.url}/connect/users/")
        assert browser.status == 400  # a page without a link


async def test_pages_run_no_script_and_cannot_be_framed(place: Place) -> None:
    async with Browser() as browser:
        page = await browser.open(await place.link("ann"))
        policy = browser.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert browser.headers["cache-control"] == "no-store"
        assert "ann" not in re.sub(r'value="[^"]*"', "", page)  # the link alone does not say whose it is


BEARER = {"Authorization": f"Bearer {TOKENS['ann']}"}


async def test_an_authenticated_browser_gets_its_own_link_and_is_named_on_the_page(place: Place) -> None:
    async with Browser() as browser:
        browser.session.headers.update(BEARER)
        page = await browser.open(f"{place.url}/connect/users")
        assert "ticket=" in browser.at
        assert (browser.status, "You are <b>ann</b> here." in page) == (200, True)
        assert f"account at <b>{urlsplit(place.accounts.issuer).netloc}</b>" in page
        assert 'name="token"' not in page
        foreign = await browser.open(await place.link("bob"))
        assert (browser.status, "made for another user" in foreign) == (400, True)
        await browser.open(f"{place.url}/connect/users")
        assert "users is connected" in await browser.open(await browser.agree(None))
        assert (browser.status, browser.headers["set-cookie"].split("; ")[::2]) == (
            200, ["operad-connect-users=", "Max-Age=0", "SameSite=Lax"],
        )  # fmt: skip
    assert await place.is_connected("ann")


async def test_a_program_with_a_token_disconnects_without_a_page(place: Place) -> None:
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        await browser.open(await browser.agree(TOKENS["ann"]))
        assert await place.is_connected("ann")
        page = await browser.open(f"{place.url}/disconnect/users")
        assert (browser.status, "Disconnect users" in page) == (200, True)
        assert "Log in" not in page  # this server has no logins
        for name, value in (("Authorization", "Basic eDp5"), ("Authorization", "Bearer wrong")):
            await browser.send(None, origin="", **{name: value})
            assert browser.status in (401, 403)
        _, text = await browser.send(None, origin="", **BEARER)
        assert (browser.status, "users is disconnected" in text) == (200, True)
    assert not await place.is_connected("ann")


async def test_the_redirect_of_the_login_is_for_the_user_who_began_it(place: Place) -> None:
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        agreed = URL(await browser.agree(TOKENS["ann"]), encoded=True)
        async with browser.session.get(agreed, allow_redirects=False) as response:
            back = response.headers["location"]
        browser.session.headers["Authorization"] = f"Bearer {TOKENS['bob']}"
        page = await browser.open(back)
        assert (browser.status, "Another user opened this link" in page) == (400, True)
    assert not await place.is_connected("ann")


async def test_the_state_of_a_login_is_in_a_cookie_for_this_server_alone(place: Place) -> None:
    for url, name, secure in (
        (place.url, "operad-connect-users", ""),
        ("https://app.example.com", "__Host-operad-connect-users", "; Secure"),
    ):
        place.users.public_url = url
        form = {"ticket": parse_qs(urlsplit(await place.link("ann")).query)["ticket"][0], "token": TOKENS["ann"]}
        async with (
            Browser() as browser,
            browser.session.post(
                f"{place.url}/connect/users", data=form, headers={"Origin": url}, allow_redirects=False
            ) as response,
        ):
            assert (response.status, await response.read()) == (303, b"")
            value, _, flags = response.headers["Set-Cookie"].partition("; ")
        assert value.startswith(f"{name}=")
        assert flags == f"Path=/; Max-Age=600; HttpOnly; SameSite=Lax{secure}"


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("PUT", "connect/users", 405, "does not accept this method"),
        ("POST", "connect/users/callback", 405, "does not accept this method"),
        ("GET", "connect/other", 404, "no such page"),
        ("GET", "connect/users?ticket=a&ticket=b", 400, "address of this page is damaged"),
        ("GET", "connect/users?ticket=a&ticket=", 400, "address of this page is damaged"),
        (
            "GET",
            "connect/users?ticket=a&ticket=b&" + "&".join(f"{n}=1" for n in range(49)),
            400,
            "link is not valid",
        ),
        ("GET", "connect/users/callback?state=x", 400, "did not begin in this browser"),
    ],
)
async def test_a_request_that_no_page_sends_is_refused(
    place: Place, method: str, path: str, status: int, text: str
) -> None:
    async with Browser() as browser, browser.session.request(method, f"{place.url}/{path}") as response:
        assert (response.status, text in await response.text()) == (status, True)


async def test_a_form_is_read_up_to_its_bound(place: Place) -> None:
    for size, status in ((65_536, 401), (65_537, 413)):
        body = b"ticket=" + b"x" * (size - 7)
        headers = {"Origin": place.url}
        async with (
            Browser() as browser,
            browser.session.post(f"{place.url}/connect/users", data=body, headers=headers) as response,
        ):
            assert response.status == status


async def test_invalid_credentials_are_refused_on_a_page(place: Place) -> None:
    async with Browser() as browser:
        browser.session.headers["Authorization"] = "Bearer wrong"
        page = await browser.open(await place.link("ann"))
        assert (browser.status, "credentials of this request are not valid" in page) == (401, True)


async def test_below_a_prefix_that_a_proxy_adds_the_pages_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with placed(tmp_path, monkeypatch, root_path="/tools") as place, Browser() as browser:
        assert "Connect users" in await browser.open(await place.link("ann"))


async def test_an_authorization_server_that_does_not_respond_is_named_in_the_log_and_on_the_page(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.accounts.metadata = {"authorization_endpoint": None}
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        _, page = await browser.send(TOKENS["ann"])
        assert (browser.status, "The account is not connected" in page) == (502, True)
    assert "/connect/users failed: " in caplog.text


# --- logins of this server ---------------------------------------------------------------------------


async def _logged_in(browser: Browser, login: Provider, name: str) -> str:
    """Send the form with the button that logs in; return the page to which the browser comes back."""
    login.user = {"sub": name}
    url, text = await browser.send(None, login="1")
    assert url is not None, text
    return await browser.open(url)


@pytest.fixture
async def logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Place, Provider]]:
    async with oidc_server.running() as login, placed(tmp_path, monkeypatch, login) as place:
        yield place, login


async def test_a_user_without_a_token_at_hand_logs_in_for_the_page(logins: tuple[Place, Provider]) -> None:
    place, login = logins
    async with Browser() as browser:
        await browser.open(await place.link("ann"))
        await _logged_in(browser, login, "ann")
        proven = browser.page, browser.at
        assert "is connected" in await browser.open(await browser.agree(None))
        browser.page, browser.at = proven  # a proof works once
        url, text = await browser.send(None)
        assert (browser.status, url, "login has expired, or was used" in text) == (401, None, True)
        assert [len(login.queries[0][name]) for name in ("state", "nonce")] == [48, 43]
        await browser.open(f"{place.url}/disconnect/users")
        await _logged_in(browser, login, "ann")
        _, text = await browser.send(None)
        assert "is disconnected" in text
    assert not await place.is_connected("ann")


async def test_who_logged_in_as_another_user_cannot_go_on(logins: tuple[Place, Provider]) -> None:
    place, login = logins
    link = await place.link("ann")
    async with Browser() as victim:
        await victim.open(link)
        await _logged_in(victim, login, "bob")
        url, text = await victim.send(None)
        assert (victim.status, url) == (400, None)
        assert "made for another user" in text
        await victim.open(link)
        await _logged_in(victim, login, "eve")  # not in users
        assert victim.status == 400


async def test_the_proof_of_one_browser_is_none_in_another(logins: tuple[Place, Provider]) -> None:
    place, login = logins
    link = await place.link("ann")
    async with Browser() as ann, Browser() as attacker:
        await ann.open(link)
        await _logged_in(ann, login, "ann")
        await attacker.open(link)
        await _logged_in(attacker, login, "bob")
        attacker.page, attacker.at = ann.page, ann.at
        url, _ = await attacker.send(None)
        assert (attacker.status, url) == (401, None)
        assert await ann.agree(None)
