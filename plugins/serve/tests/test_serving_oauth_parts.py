"""The authorization server without a provider: its endpoints, clients, documents and store."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from operad import CallError, ConfigError
from operad_serve.asgi import Gate
from operad_serve.oauth import clients as bounds
from operad_serve.oauth import store as limits
from operad_serve.oauth.application import OAuthApplication
from operad_serve.oauth.clients import Client, Clients, RefusedClient
from operad_serve.oauth.documents import fetch_document
from operad_serve.oauth.options import OAuthServerOptions
from operad_serve.oauth.pages import consent
from operad_serve.oauth.store import Grant, Store
from operad_serve.oauth.tokens import new_grant_id, new_token
from operad_testing import free_port
from plugins.serve.tests import front_door
from plugins.serve.tests.front_door import TABLES
from plugins.serve.tests.oidc_server import CLIENT

URL = "https://gw.example.com/tools"
HOST = "http://127.0.0.1:7777/callback"
FORM = "application/x-www-form-urlencoded"


def options(folder: Path, **changed: Any) -> OAuthServerOptions:
    """The options of a server whose provider does not respond."""
    known = {"url": URL, "issuer": "http://127.0.0.1:9", "users": {"ann": ["read"]}, **CLIENT, **changed}
    return OAuthServerOptions(store=str(folder / "o.db"), **known)


class Server:
    """The application of an authorization server, in this process."""

    def __init__(self, folder: Path, **changed: Any) -> None:
        self.options = options(folder, **changed)
        self.app = OAuthApplication(self.options, Gate(allowed_origins=["https://app.example"]), folder)

    async def __call__(self, method: str, path: str, form: Any = None, **headers: str) -> front_door.Answer:
        body = b"" if form is None else form if isinstance(form, bytes) else urlencode(form).encode()
        path, _, query = path.partition("?")
        sent = {"content_type": FORM, **headers}
        return await front_door.asked(self.app, method, path, body, query.encode(), "/tools", **sent)

    async def register(self, **metadata: Any) -> dict[str, Any]:
        body = json.dumps({"redirect_uris": [HOST], **metadata}).encode()
        answer = await self("POST", "/oauth/register", body)
        assert answer.status == 201, answer.body
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


# --- endpoints -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("POST", "/oauth/authorize", 405, "GET"),
        ("GET", "/oauth/consent", 405, "POST"),
        ("GET", "/oauth/token", 405, "POST"),
        ("GET", "/tools/oauth/token", 405, "POST"),
        ("OPTIONS", "/oauth/token", 405, "POST"),
        ("GET", "/oauth/revoke", 405, "POST"),
        ("GET", "/oauth/other", 404, None),
        ("GET", "/oauth/", 404, None),
        ("GET", "/.well-known/other", 404, None),
        ("POST", "/.well-known/oauth-authorization-server/tools", 405, "GET, HEAD"),
        ("HEAD", "/.well-known/oauth-authorization-server/tools", 200, None),
        ("GET", "/oauth/callback", 400, None),
        ("GET", "/oauth/callback?state=x", 400, None),
        ("GET", "/oauth/authorize?" + "&".join(f"n{n}=1" for n in range(41)), 400, None),
        ("GET", "/oauth/authorize?client_id=%FF", 400, None),
        ("GET", f"/oauth/authorize?client_id={'x' * 8_192}", 400, None),
    ],
)
async def test_each_path_has_its_methods(
    server: Server, method: str, path: str, status: int, allow: str | None
) -> None:
    answer = await server(method, path)
    assert (answer.status, answer.headers.get("allow")) == (status, allow)


async def test_pages_of_an_allowed_origin_may_use_the_endpoints(server: Server) -> None:
    asks = {"origin": "https://app.example", "access_control_request_method": "POST"}
    answer = await server("OPTIONS", "/oauth/token", **asks)
    assert (answer.status, answer.headers["allow"]) == (204, "POST")
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert answer.headers["access-control-allow-methods"] == "GET, POST"
    answer = await server("GET", "/.well-known/oauth-authorization-server/tools", origin="https://evil.example")
    assert answer.headers["access-control-allow-origin"] == "*"


async def test_metadata_name_every_endpoint_below_the_issuer(server: Server, tmp_path: Path) -> None:
    found = (await server("GET", "/.well-known/oauth-authorization-server/tools")).json()
    for name, path in (
        ("authorization", "authorize"), ("token", "token"), ("revocation", "revoke"), ("registration", "register"),
    ):  # fmt: skip
        assert found[f"{name}_endpoint"] == f"{URL}/oauth/{path}"
    assert found["client_id_metadata_document_supported"] is True
    assert found["authorization_response_iss_parameter_supported"] is True
    resource = (await server("GET", "/.well-known/oauth-protected-resource/tools")).json()
    assert resource == {
        "resource": URL, "authorization_servers": [URL], "bearer_methods_supported": ["header"],
        "scopes_supported": ["read"],
    }  # fmt: skip
    bare = Server(tmp_path, client_hosts=[], registration=False)
    found = (await bare("GET", "/.well-known/oauth-authorization-server/tools")).json()
    assert found["client_id_metadata_document_supported"] is False
    assert "registration_endpoint" not in found


def basic(*parts: str) -> str:
    return "Basic " + base64.b64encode(":".join(parts).encode()).decode()


@pytest.mark.parametrize(
    ("form", "header", "status", "error", "text"),
    [
        (b"a=1&a=2", None, 400, "invalid_request", "expected each parameter once, got 2 parameters with 1 names"),
        (b"a=1&a=", None, 400, "invalid_request", "expected each parameter once, got 2 parameters with 1 names"),
        (b"a=%FF", None, 400, "invalid_request", "expected at most 40 parameters"),
        ({}, None, 401, "invalid_client", "expected client_id in the form, or HTTP Basic, got neither"),
        ({"client_id": "x"}, None, 401, "invalid_client", "not registered here"),
        ({"client_id": "ID"}, None, 401, "invalid_client", "its secret is wrong"),
        ({}, "Bearer x", 401, "invalid_client", "a header of the scheme 'bearer'"),
        ({}, basic("nocolon"), 401, "invalid_client", "got a malformed header"),
        ({"client_secret": "SECRET"}, basic("ID", "SECRET"), 401, "invalid_client", "got both"),
        ({"client_id": "x"}, basic("ID", "SECRET"), 401, "invalid_client", "name two clients"),
        ({"client_id": "ID"}, basic("ID", "SECRET"), 400, "unsupported_grant_type", "got None"),
        ({"client_id": "ID", "client_secret": "SECRET"}, None, 400, "unsupported_grant_type", "got None"),
        ({"grant_type": "password"}, basic("ID", "SECRET"), 400, "unsupported_grant_type", "got 'password'"),
        ({"resource": URL + "x"}, basic("ID", "SECRET"), 400, "invalid_target", f"expected {URL}/mcp or {URL}"),
        (
            {"grant_type": "refresh_token"},
            basic("ID", "SECRET"),
            400,
            "invalid_grant",
            "refresh token is not valid",
        ),
        ({"grant_type": "authorization_code"}, basic("ID", "SECRET"), 400, "invalid_grant", "code is not valid"),
    ],
)
async def test_a_request_for_tokens_that_cannot_be_served_has_a_code_and_a_reason(
    server: Server, form: Any, header: str | None, status: int, error: str, text: str
) -> None:
    client = await server.register()

    def filled(word: str) -> str:
        return word.replace("ID", client["client_id"]).replace("SECRET", client["client_secret"])

    if isinstance(form, dict):
        form = {name: filled(value) for name, value in form.items()}
    headers = {}
    if header is not None:
        scheme, _, rest = header.partition(" ")
        pair = base64.b64decode(rest).decode() if scheme == "Basic" else ""
        headers["authorization"] = basic(filled(pair)) if pair else header
    answer = await server("POST", "/oauth/token", form, **headers)
    assert (answer.status, answer.json()["error"]) == (status, error)
    assert text in answer.json()["error_description"]
    assert answer.headers.get("www-authenticate") == ('Basic realm="operad"' if status == 401 else None)


async def test_a_form_of_another_type_is_refused(server: Server) -> None:
    for kind, named in (("application/json", "application/json"), ("", "no type")):
        answer = await server("POST", "/oauth/token", {"client_id": "x"}, content_type=kind)
        assert (answer.status, answer.json()["error"]) == (400, "invalid_request")
        assert answer.json()["error_description"] == f"expected a form of {FORM}, got {named}"


async def test_a_client_that_is_refused_is_told_why(server: Server) -> None:
    for metadata, error, text in TABLES["complaints of clients"]:
        answer = await server("POST", "/oauth/register", json.dumps(metadata).encode())
        found = answer.json()
        assert (answer.status, found["error"], found["error_description"]) == (400, error, text)


async def test_a_registration_is_answered_with_what_is_kept(server: Server) -> None:
    plain = await server.register(client_name=" A\n\u202eb" + "x" * 100)
    assert plain["client_name"] == "Ab" + "x" * 78
    assert plain["client_secret_expires_at"] == 0
    assert plain["redirect_uris"] == [HOST]
    assert (len(plain["client_id"]), len(plain["client_secret"])) == (32, 43)  # 128 and 256 bits
    assert plain["response_types"] == ["code"]
    assert plain["grant_types"] == ["authorization_code", "refresh_token"]
    assert plain["token_endpoint_auth_method"] == "client_secret_basic"
    assert abs(plain["client_id_issued_at"] - time.time()) < 1_000
    public = await server.register(token_endpoint_auth_method="none", grant_types=["authorization_code"])
    assert public["grant_types"] == ["authorization_code"]
    assert "client_secret" not in public
    assert public["client_name"] == ""


async def test_forms_metadata_and_queries_are_read_up_to_their_bounds(server: Server) -> None:
    empty = len(json.dumps({"redirect_uris": [HOST], "x": ""}))
    for size, status in ((16_384, 201), (16_385, 413)):
        body = json.dumps({"redirect_uris": [HOST], "x": "y" * (size - empty)}).encode()
        assert (await server("POST", "/oauth/register", body)).status == status
    for count, text in ((8_192, b"is not accepted"), (8_193, b"at most 8192 bytes, got 8193")):
        page = await server("GET", "/oauth/authorize?client_id=" + "x" * (count - 10))
        assert (page.status, text in page.body) == (400, True)
    for count, error in ((40, "invalid_client"), (41, "invalid_request")):
        fields = {f"n{number}": "1" for number in range(count)}
        assert (await server("POST", "/oauth/token", fields)).json()["error"] == error
        answer = await server("POST", "/oauth/token", urlencode({**fields, "n0": b"\xff"}).encode())
        got = "text in another encoding" if count == 40 else "41 parameters"
        assert answer.json()["error_description"].endswith(f"percent-encoded UTF-8, got {got}")
    for count, status in ((10, 201), (11, 400)):
        body = json.dumps({"redirect_uris": [f"{HOST}/{number}" for number in range(count)]}).encode()
        assert (await server("POST", "/oauth/register", body)).status == status


async def test_a_login_whose_provider_does_not_respond_goes_back_to_the_host(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = await server.register()
    query = urlencode(
        {
            "response_type": "code", "client_id": client["client_id"], "redirect_uri": HOST + "?a=1",
            "code_challenge": "x" * 43, "code_challenge_method": "S256", "scope": "none read",
        }
    )  # fmt: skip
    refused = await server("GET", f"/oauth/authorize?{query}")
    assert (refused.status, b"expected a registered one" in refused.body) == (400, True)
    page = await server("GET", f"/oauth/authorize?{query.replace('%3Fa%3D1', '')}")
    assert page.status == 200
    cookie, _, flags = page.headers["set-cookie"].partition("; ")
    assert cookie.startswith("__Host-operad-login=")
    assert flags == "Path=/; HttpOnly; SameSite=Lax; Max-Age=3600; Secure"
    assert b"<li>read</li></ul>" in page.body
    form = {"login": page.body.partition(b'name="login" value="')[2][:43].decode(), "answer": "allow"}
    answer = await server("POST", "/oauth/consent", form, cookie=cookie, origin="https://GW.example.com")
    fields = urlencode({"error": "temporarily_unavailable", "iss": URL})
    assert (answer.status, answer.headers["location"]) == (303, f"{HOST}?{fields}")
    assert "cannot find the login page of the provider: " in caplog.text
    assert (await server("POST", "/oauth/consent", form, cookie="=")).status == 400


async def test_a_store_that_cannot_be_used_is_503(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "o.db").mkdir()
    answer = await server("POST", "/oauth/register", json.dumps({"redirect_uris": [HOST]}).encode())
    assert (answer.status, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert "a login cannot be stored or renewed: " in caplog.text


@pytest.mark.parametrize(
    ("redirect_uri", "shown"),
    [
        ("https://a.example:8443/cb", "a.example:8443"),
        ("http://127.0.0.1:1/cb", "an application on this computer (127.0.0.1:1)"),
        ("https://localhost/cb", "an application on this computer (localhost)"),
        ("cursor://a.example/cb", "an application on this computer (cursor:)"),
    ],
)
def test_the_consent_page_says_where_access_goes(redirect_uri: str, shown: str) -> None:
    for id, source in (("x", False), ("https://a.example/client", True)):
        client = Client(id=id, name="", redirect_uris=[])
        _, page = consent(client, redirect_uri, [], action="/a", login="l", server="gw")
        assert f'id="target">{shown}<' in page
        assert ("Described by" in page) is source
        assert "(no name)" in page
        assert "call operations that need no scope" in page


# --- clients -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "given", "allowed"),
    [
        ("http://127.0.0.1:1/cb", "http://127.0.0.1:2/cb", True),
        ("http://127.0.0.1/cb", "http://127.0.0.1:2/cb", True),
        ("http://127.0.0.1:1/cb", "http://127.0.0.1:2/cb/", False),
        ("http://127.0.0.1:1/cb", "http://127.0.0.1:2/cb?a=1", False),
        ("http://127.0.0.1:1/cb", "http://127.0.0.1:2/cb#", False),
        ("http://127.0.0.1:1/cb", "http://a@127.0.0.1:2/cb", False),
        ("http://127.0.0.1:1/cb", "https://127.0.0.1:2/cb", False),
        ("https://127.0.0.1:1/cb", "https://127.0.0.1:2/cb", False),
        ("http://127.0.0.1:1/cb", "http://127.0.0.2:1/cb", False),
        ("http://a.example:1/cb", "http://a.example:2/cb", False),
        ("http://127.0.0.1:1/cb", "http://127.0.0.1:x/cb", False),
        ("http://127.0.0.1:1/" + "x" * 1_981, "http://127.0.0.1:2/" + "x" * 1_981, True),
        ("http://127.0.0.1:1/" + "x" * 1_982, "http://127.0.0.1:2/" + "x" * 1_982, False),
        ("cursor://cb", "cursor://cb", True),
    ],
)
def test_a_redirect_uri_of_this_machine_may_differ_in_its_port_alone(
    known: str, given: str, allowed: bool
) -> None:
    assert Client(id="x", name="", redirect_uris=["https://other/", known]).allows(given) is allowed


async def test_the_document_of_a_client_is_kept_for_a_while_and_fetched_by_few_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    hold = asyncio.Event()

    async def fetch(url: str, *, is_private: bool) -> bytes:
        fetched.append(url)
        if "slow" in url:
            await hold.wait()
        if "broken" in url:
            raise CallError("UNAVAILABLE", "no document")
        return json.dumps({"client_id": url, "redirect_uris": [HOST], "client_name": "Host"}).encode()

    monkeypatch.setattr(bounds, "fetch_document", fetch)
    monkeypatch.setattr(bounds, "_DOCUMENTS", 2)
    made = Clients(options(tmp_path), Store(options(tmp_path), tmp_path))
    one, two, three = (f"https://a.example/{name}" for name in ("one", "two", "three"))
    for url in (one, one, two, one):
        client = await made.for_login(url)
        assert (client.id, client.name, client.redirect_uris, client.is_document) == (url, "Host", [HOST], True)
    assert fetched == [one, two]
    for url in (three, two, one):  # one more than is kept
        await made.for_login(url)
    assert fetched == [one, two, three, one]
    for _ in range(2):
        with pytest.raises(RefusedClient, match="the client's document cannot be read: no document"):
            await made.for_login("https://a.example/broken")
    assert fetched[4:] == ["https://a.example/broken"]
    monkeypatch.setattr(bounds, "_DOCUMENT_SECONDS", -1.0)
    for _ in range(2):
        await made.for_login("https://a.example/late")
    assert fetched[5:] == ["https://a.example/late"] * 2
    grant = made.of_grant("https://a.example/any")
    assert grant is not None
    assert (grant.proves(None), grant.proves("x")) == (True, False)
    monkeypatch.setattr(bounds, "_WAIT", 0.01)
    slow = [asyncio.create_task(made.for_login(f"https://a.example/slow{number}")) for number in range(4)]
    while sum("slow" in url for url in fetched) < 4:
        await asyncio.sleep(0)
    with pytest.raises(RefusedClient, match="too many documents"):
        await made.for_login("https://a.example/four")
    hold.set()
    assert len(await asyncio.gather(*slow)) == 4
    assert (await made.for_login("https://a.example/four")).name == "Host"


@pytest.mark.parametrize(
    ("hosts", "url", "accepted"),
    [
        (["*"], "https://a.example/c", True),
        (["*"], "https://a.example:8443/c", True),
        (["a.example"], "https://a.example:443/c", True),
        (["a.example"], "https://a.example:8443/c", False),
        (["a.example:8443"], "https://a.example:8443/c", True),
        (["a.example:8443"], "https://a.example/c", False),
        ([], "https://a.example/c", False),
        (["*"], "https://a.example/", False),
        (["*"], "https://a.example", False),
        (["*"], "https://a.example/./c", False),
        (["*"], "https://a.example/c#", False),
        (["*"], "https://u@a.example/c", False),
        (["*"], "https:///c", False),
    ],
)
async def test_documents_are_accepted_from_listed_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: list[str], url: str, accepted: bool
) -> None:
    private: list[bool] = []

    async def fetch(url: str, *, is_private: bool) -> bytes:
        private.append(is_private)
        return json.dumps({"client_id": url, "redirect_uris": [HOST]}).encode()

    monkeypatch.setattr(bounds, "fetch_document", fetch)
    given = options(tmp_path, client_hosts=hosts)
    made = Clients(given, Store(given, tmp_path))
    if accepted:
        assert (await made.for_login(url)).id == url
        assert private == ["*" not in hosts]
    else:
        with pytest.raises(RefusedClient):
            await made.for_login(url)
        assert private == []


@pytest.mark.parametrize(("document", "text"), TABLES["complaints of documents"])
async def test_a_document_that_is_refused_is_named_with_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Any, text: str
) -> None:
    async def fetch(url: str, *, is_private: bool) -> bytes:
        return json.dumps(document).encode()

    monkeypatch.setattr(bounds, "fetch_document", fetch)
    made = Clients(options(tmp_path), Store(options(tmp_path), tmp_path))
    with pytest.raises(RefusedClient) as caught:
        await made.for_login("https://a.example/c")
    assert str(caught.value) == f"the client's document: {text}"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "10.0.0.1", "169.254.169.254", "224.0.1.1", "[::1]", "[::ffff:10.0.0.1]", "[64:ff9b::7f00:1]",
        "[2002:7f00:1::1]", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "[fe80::1%25lo]",
    ],
)  # fmt: skip
async def test_no_document_is_fetched_from_an_address_that_is_not_public(host: str) -> None:
    with pytest.raises(CallError, match=r"its address is not public|its name cannot be resolved") as caught:
        await fetch_document(f"https://{host}/client", is_private=False)
    assert caught.value.code == "UNAVAILABLE"


async def test_a_document_is_fetched_from_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    async def resolve(*place: Any, **_: Any) -> list[Any]:
        seen.append(place)
        return [(0, 0, 0, "", ("93.184.215.14", place[1], 0))]

    def connect(address: Any, timeout: float) -> None:
        seen.append(address)
        raise TimeoutError

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    monkeypatch.setattr("socket.create_connection", connect)
    monkeypatch.setattr("ssl.create_default_context", lambda: None)  # reading all authorities takes long
    for port, given in ((443, ""), (8443, ":8443")):
        with pytest.raises(CallError, match="TimeoutError"):
            await fetch_document(f"https://host.example{given}/client", is_private=False)
        assert seen[-2:] == [("host.example", port), ("93.184.215.14", port)]


@pytest.mark.parametrize(
    "found", ["", "odd", "10.0.0.1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2002:7f00:1::1", "64:ff9b::7f00:1"]
)
async def test_a_document_of_a_host_whose_address_is_not_public_is_refused(
    found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(0, 0, 0, "", (found, 443))] if found else []

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    with pytest.raises(CallError, match="its address is not public"):
        await fetch_document("https://host.example/client", is_private=False)


async def test_a_document_whose_host_does_not_respond_cannot_be_read() -> None:
    port = free_port()
    with pytest.raises(CallError, match="ConnectionRefusedError"):
        await fetch_document(f"https://127.0.0.1:{port}/client", is_private=True)
    with pytest.raises(CallError, match="its name cannot be resolved"):
        await fetch_document("https://nowhere.invalid/client", is_private=True)


# --- the store -----------------------------------------------------------------------------------------


def rows(store: Store, query: str) -> list[Any]:
    with closing(sqlite3.connect(store.path)) as connection, connection:
        return connection.execute(query).fetchall()


async def granted(store: Store, expires: float = 1_000.0, user: str = "ann") -> tuple[str, str]:
    """A grant that ends so many seconds from now: its id and its code."""
    id = new_grant_id()
    code = new_token("ac", id)
    await store.add_grant(
        id, client="host", user=user, scopes=["read"], resource=URL, expires=time.time() + expires, code=code,
        record={"n": 1},
    )  # fmt: skip
    return id, code


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(options(tmp_path), tmp_path)


async def test_what_has_expired_is_removed_when_something_is_added(store: Store) -> None:
    id, _ = await granted(store, -1.0)
    assert store.grant(id) is None
    await granted(store)
    assert rows(store, "SELECT count(*) FROM grants") == [(1,)]
    for key in ("one", "two"):
        await store.add_login(key, "browser", {"key": key}, agreed=False)
        rows(store, "UPDATE logins SET expires = 1")
        assert await store.take_login(key, "browser", agreed=False) is None
    assert rows(store, "SELECT count(*) FROM logins") == [(1,)]


async def test_a_login_is_for_one_browser_and_one_step_and_counts_once(store: Store) -> None:
    await store.add_login("key", "browser", {"a": 1}, agreed=True)
    for key, browser, agreed in (("other", "browser", True), ("key", "other", True), ("key", "browser", False)):
        assert await store.take_login(key, browser, agreed=agreed) is None
    assert await store.take_login("key", "browser", agreed=True) == {"a": 1}
    assert await store.take_login("key", "browser", agreed=True) is None


async def test_the_grant_that_ends_first_and_the_oldest_client_go_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_GRANTS", 2)
    found = [(await granted(store, expires))[0] for expires in (50.0, 10.0, 30.0)]
    assert [store.grant(id) is not None for id in found] == [True, False, True]
    monkeypatch.setattr(limits, "MAX_CLIENTS", 2)
    for id in ("a", "b", "c"):
        assert await store.add_client(id, {"id": id})
    assert [store.client(id) for id in ("a", "b", "c")] == [None, {"id": "b"}, {"id": "c"}]


async def test_a_code_and_each_refresh_token_count_once(store: Store) -> None:
    id, code = await granted(store)
    assert await store.redeem(id, "other", code) is None
    grant = await store.redeem(id, "host", code)
    assert isinstance(grant, Grant)
    assert (grant.user, grant.scopes, grant.record, grant.resource) == ("ann", ["read"], {"n": 1}, URL)
    assert await store.issue(grant, "access", 5.0, "refresh", None)
    assert await store.issue(grant, "access 2", 6.0, "refresh 2", "refresh")
    kept = store.grant(id)
    assert kept is not None
    assert (kept.access_expires, kept.former_expires, kept.code) == (6.0, 5.0, None)
    assert not await store.issue(grant, "access 3", 7.0, "refresh 3", "refresh")
    assert store.grant(id) is None
    again, code = await granted(store)
    assert await store.redeem(again, "host", code) is not None
    assert await store.redeem(again, "host", code) is None
    assert store.grant(again) is None
    await store.end(again)


async def test_a_file_that_is_no_store_is_named(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    assert await store.add_client("a", {})
    assert caplog.text == ""
    store.close()
    assert store.client("a") == {}
    assert await store.add_client("c", {})
    rows(store, "DROP TABLE clients")
    with pytest.raises(CallError, match="SQLite cannot use .*o.db: .*clients; try again later") as caught:
        store.client("a")
    assert caught.value.code == "UNAVAILABLE"
    with pytest.raises(CallError, match="SQLite cannot use"):
        await store.add_client("b", {})
    store.close()
    store.path.write_bytes(b"no database" * 100)
    with pytest.raises(ConfigError, match="o.db: expected a SQLite file that this process can write: .*database"):
        store.client("a")


def test_without_a_path_the_file_is_in_the_users_folder_by_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    known: dict[str, Any] = {"issuer": "https://id.example.com", "users": {"a": []}, **CLIENT}
    paths = [Store(OAuthServerOptions(url=url, **known), tmp_path).path for url in (URL, URL + "/", URL + "/x")]
    assert paths[0] == paths[1] != paths[2]
    assert paths[0].parent.parent == tmp_path
    assert Store(OAuthServerOptions(url=URL, store="o.db", **known), tmp_path).path == tmp_path / "o.db"
