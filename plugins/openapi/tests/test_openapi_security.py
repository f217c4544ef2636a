"""Credentials: which are chosen, where they are put, and where they must not go."""

import base64
import json

import pytest
from aiohttp import web

from operad import CallError, Identity, OperationContext
from operad_openapi import HTTPAuth, HTTPServiceConfig

SCHEMES = {
    "bearer": {"type": "http", "scheme": "Bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "api key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "oauth": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "/token", "scopes": {}}}},
    "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://id.example.test"},
}
BEARER = {"type": "bearer", "token": "t0ken"}
KEY = {"type": "apiKey", "token": "k3y"}
BASIC = {"type": "basic", "username": "u", "password": "p:w"}
ENCODED = "Basic " + base64.b64encode(b"u:p:w").decode()


async def echo(request):
    return web.json_response(
        {
            "Authorization": request.headers.get("Authorization"),
            "X-Key": request.headers.get("X-Key"),
            "Cookie": request.headers.get("Cookie"),
            "query": request.rel_url.raw_query_string,
        }
    )


async def sent(serve, operations, api, security, **config):
    operation = {"operationId": "x"}
    if security is not None:
        operation["security"] = security
    document = api({"get /x": operation}, components={"securitySchemes": SCHEMES})
    envelope = await operations(document, await serve(echo), **config)["x"].handler({}, None)
    return {key: value for key, value in envelope.data.items() if value}, envelope


@pytest.mark.parametrize(
    ("security", "config", "expected"),
    [
        ([{"bearer": []}], {"auth": BEARER}, {"Authorization": "Bearer t0ken"}),
        ([{"oidc": []}], {"auth": BEARER}, {"Authorization": "Bearer t0ken"}),
        ([{"basic": []}], {"auth": BASIC}, {"Authorization": ENCODED}),
        ([{"header": []}], {"auth": KEY}, {"X-Key": "k3y"}),
        ([{"query": []}], {"auth": KEY}, {"query": "api%20key=k3y"}),
        ([{"cookie": []}], {"auth": KEY}, {"Cookie": "sid=k3y"}),
        ([{"header": []}], {"auth": {**KEY, "prefix": "Token"}}, {"X-Key": "Token k3y"}),
        # OR of ANDs: the first alternative that is met completely.
        (
            [{"header": [], "bearer": []}, {"bearer": []}],
            {"credentials": {"bearer": BEARER}},
            {"Authorization": "Bearer t0ken"},
        ),
        (
            [{"header": [], "bearer": []}, {"bearer": []}],
            {"credentials": {"bearer": BEARER, "header": KEY}},
            {"Authorization": "Bearer t0ken", "X-Key": "k3y"},
        ),
        ([{}, {"bearer": []}], {"auth": BEARER}, {"Authorization": "Bearer t0ken"}),
        ([{}, {"bearer": []}], {}, {}),
        ([], {"auth": BEARER}, {}),
        # Nothing declared, or nothing that fits: what was configured for the whole API is sent.
        (None, {"auth": BEARER}, {"Authorization": "Bearer t0ken"}),
        ([{"cookie": []}], {"auth": BEARER}, {"Authorization": "Bearer t0ken"}),
        (None, {"auth": {"type": "bearer", "token": "t", "headerName": "X-Key", "prefix": ""}}, {"X-Key": "t"}),
    ],
)
async def test_security(serve, operations, api, security, config, expected):
    assert (await sent(serve, operations, api, security, **config))[0] == expected


async def test_root_security_is_the_default(serve, operations, api):
    document = api({"get /x": {}}, components={"securitySchemes": SCHEMES}, security=[{"header": []}])
    found = operations(document, await serve(echo), auth=KEY)
    assert (await found["get_x"].handler({}, None)).data["X-Key"] == "k3y"


async def test_swagger_2_schemes(serve, operations, api):
    schemes = {"b": {"type": "basic"}, "k": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    document = api({"get /x": {"security": [{"b": [], "k": []}]}}, version="2.0", securityDefinitions=schemes)
    found = operations(document, await serve(echo), credentials={"b": BASIC, "k": KEY})
    data = (await found["get_x"].handler({}, None)).data
    assert (data["Authorization"], data["X-Key"]) == (ENCODED, "k3y")


async def test_a_credential_in_the_query_is_not_in_the_metadata(serve, operations, api):
    _, envelope = await sent(serve, operations, api, [{"query": []}], auth=KEY)
    assert "k3y" not in repr(envelope.meta)


async def test_a_credential_is_not_in_an_error(operations, api):
    document = api({"get /x": {"security": [{"query": []}]}}, components={"securitySchemes": SCHEMES})
    found = operations(document, "http://127.0.0.1:1", auth=KEY, retries=0)
    with pytest.raises(CallError) as caught:
        await found["get_x"].handler({}, None)
    assert "k3y" not in repr(caught.value) + str(caught.value.details)


def test_secrets_are_not_in_a_repr():
    config = HTTPServiceConfig(
        namespace="x",
        auth={**BASIC, "token": "t0ken", "client_secret": "s3cret"},
        headers={"X": "h3ader"},
        credentials={"a": KEY},
    )
    assert not any(secret in repr(config) for secret in ("t0ken", "p:w", "s3cret", "h3ader", "k3y"))


async def test_credentials_stay_with_the_origin_of_the_api(serve, operations, api):
    elsewhere = await serve(echo)
    paths = {"get /x": {"operationId": "x", "servers": [{"url": elsewhere}]}}
    base = await serve(echo)
    config = {"auth": BEARER, "headers": {"X-Key": "config"}}
    found = operations(api(paths), base, **config)
    data = (await found["x"].handler({}, None)).data
    assert (data["Authorization"], data["X-Key"]) == (None, None)
    found = operations(api(paths), base, **config, origins=[elsewhere])
    data = (await found["x"].handler({}, None)).data
    assert (data["Authorization"], data["X-Key"]) == ("Bearer t0ken", "config")


async def test_a_caller_can_have_a_credential_of_its_own(serve, operations, api):
    async def credential(context):
        return HTTPAuth(type="bearer", token=f"of-{context.identity.id}") if context else None

    found = operations(
        api({"get /x": {}}),
        await serve(echo),
        auth=BEARER,
        credentials_for=credential,
        request_headers=lambda context: {"X-Key": context.identity.id if context else "nobody"},
    )
    data = (await found["get_x"].handler({}, OperationContext(identity=Identity("ada")))).data
    assert (data["Authorization"], data["X-Key"]) == ("Bearer of-ada", "ada")
    data = (await found["get_x"].handler({}, None)).data
    assert (data["Authorization"], data["X-Key"]) == ("Bearer t0ken", "nobody")


# --- OAuth 2 client credentials ----------------------------------------------------------------------

OAUTH = {"type": "oauth2", "client_id": "id", "client_secret": "s3cret", "scopes": ["a", "b"]}


async def test_a_token_is_fetched_once_and_again_after_a_401(serve, operations, api):
    tokens, calls = [], []

    async def handler(request):
        if request.path == "/token":
            form = await request.post()
            assert dict(form) == {"grant_type": "client_credentials", "scope": "a b"}
            assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"id:s3cret").decode()
            tokens.append(f"t{len(tokens)}")
            return web.json_response({"access_token": tokens[-1], "expires_in": 3600})
        calls.append(request.headers.get("Authorization"))
        return web.json_response(None, status=401 if calls[-1] == "Bearer t0" and len(calls) > 1 else 200)

    document = api(
        {"get /x": {"security": [{"oauth": []}]}, "post /y": {"security": [{"oauth": []}]}},
        components={"securitySchemes": SCHEMES},
    )
    found = operations(document, await serve(handler), auth=OAUTH)
    await found["get_x"].handler({}, None)
    assert tokens == ["t0"]
    await found["post_y"].handler({}, None)
    assert tokens == ["t0", "t1"]
    assert calls == ["Bearer t0", "Bearer t0", "Bearer t1"]


async def test_a_document_that_forgot_to_ask_for_its_login_gets_the_token_all_the_same(serve, operations, api):
    async def handler(request):
        if request.path == "/token":
            return web.json_response({"access_token": "t0"})
        return web.json_response(request.headers.get("Authorization"))

    document = api({"get /x": {}, "get /open": {"security": []}}, components={"securitySchemes": SCHEMES})
    found = operations(document, await serve(handler), auth=OAUTH)
    assert (await found["get_x"].handler({}, None)).data == "Bearer t0"
    assert (await found["get_open"].handler({}, None)).data is None


@pytest.mark.parametrize("more", [{}, {"components": {"securitySchemes": {}}}])
async def test_an_empty_security_of_a_document_without_schemes_switches_no_credential_off(
    serve, operations, api, more
):
    async def handler(request):
        return web.json_response(request.headers.get("Authorization"))

    document = api({"get /x": {"security": []}}, **more)
    found = operations(document, await serve(handler), auth=HTTPAuth(type="bearer", token="t"))
    assert (await found["get_x"].handler({}, None)).data == "Bearer t"


async def test_a_401_that_stays_is_an_error(serve, operations, api):
    async def handler(request):
        if request.path == "/token":
            return web.json_response({"access_token": "t"})
        return web.json_response(None, status=401)

    document = api({"get /x": {"security": [{"oauth": []}]}}, components={"securitySchemes": SCHEMES})
    found = operations(document, await serve(handler), auth=OAUTH)
    with pytest.raises(CallError, match="401"):
        await found["get_x"].handler({}, None)


@pytest.mark.parametrize(
    ("options", "hinted"),
    [({}, True), ({"auth": HTTPAuth(type="bearer", token="t")}, False), ({"headers": {"k": "v"}}, False)],
)
async def test_a_401_without_credentials_says_where_to_set_them(serve, operations, api, options, hinted):
    async def handler(request):
        return web.json_response(None, status=401)

    found = operations(api({"get /x": {}}), await serve(handler), **options)
    with pytest.raises(CallError) as caught:
        await found["get_x"].handler({}, None)
    assert ("set auth" in str(caught.value)) is hinted
    assert "set auth" not in caught.value.message  # a remote caller has no say in it


async def test_a_client_secret_does_not_go_where_a_document_says(serve, operations, api):
    async def thief(request):
        raise AssertionError

    url = f"{await serve(thief)}/token"
    schemes = {"o": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": url, "scopes": {}}}}}
    document = api({"get /x": {"security": [{"o": []}]}}, components={"securitySchemes": schemes})
    found = operations(document, await serve(echo), auth=OAUTH)
    with pytest.raises(CallError, match="token URL"):
        await found["get_x"].handler({}, None)


async def test_a_client_secret_does_not_go_to_a_public_host_in_the_clear(operations, api):
    document = api({"get /x": {"security": [{"oauth": []}]}}, components={"securitySchemes": SCHEMES})
    found = operations(document, "http://api.example.com", auth=OAUTH)
    with pytest.raises(CallError, match="is not https"):
        await found["get_x"].handler({}, None)


async def test_an_answer_without_a_token_is_an_error(serve, operations, api):
    async def handler(request):
        return web.json_response({"error": "invalid_client"})

    document = api({"get /x": {"security": [{"oauth": []}]}}, components={"securitySchemes": SCHEMES})
    found = operations(document, await serve(handler), auth=OAUTH)
    with pytest.raises(CallError, match="invalid_client"):
        await found["get_x"].handler({}, None)


async def test_a_caller_cannot_make_a_key_in_the_query_disappear(serve, operations, api):
    """A parameter whose text holds that of the credential is not the credential."""
    schemes = {"k": {"type": "apiKey", "in": "query", "name": "key"}}
    parameters = [{"name": "apikey", "in": "query", "schema": {"type": "string"}}]
    document = api(
        {"get /x": {"operationId": "x", "parameters": parameters, "security": [{"k": []}]}},
        components={"securitySchemes": schemes},
    )
    found = operations(document, await serve(echo), auth={"type": "apiKey", "token": "abc"})
    envelope = await found["x"].handler({"apikey": "abcdef"}, None)
    assert envelope.data["query"] == "apikey=abcdef&key=abc"


async def test_a_redirect_that_repeats_the_key_gets_it_once(serve, operations, api):
    async def handler(request):
        if request.path == "/x":
            raise web.HTTPFound(f"/y?{request.rel_url.raw_query_string}&more=1")
        return await echo(request)

    schemes = {"k": {"type": "apiKey", "in": "query", "name": "key"}}
    document = api(
        {"get /x": {"operationId": "x", "security": [{"k": []}]}}, components={"securitySchemes": schemes}
    )
    found = operations(document, await serve(handler), auth={"type": "apiKey", "token": "abc"})
    assert (await found["x"].handler({}, None)).data["query"] == "key=abc&more=1"


async def test_the_client_shows_itself_as_the_server_wants_and_asks_again_after_a_passing_failure(
    serve, operations, api
):
    forms = []

    async def handler(request):
        if request.path != "/token":
            return await echo(request)
        forms.append(dict(await request.post()))
        if len(forms) == 1:
            return web.Response(status=503)
        return web.json_response({"access_token": "t", "token_type": "bearer"}, status=201)

    document = api({"get /x": {"security": [{"oauth": []}]}}, components={"securitySchemes": SCHEMES})
    auth = {**OAUTH, "clientAuth": "post", "audience": "https://a.example.com", "extra": {"organization": "o"}}
    found = operations(document, await serve(handler), auth=auth)
    envelope = await found["get_x"].handler({}, None)
    assert envelope.data["Authorization"] == "Bearer t"
    assert forms[1]["client_secret"] == "s3cret"
    assert (forms[1]["audience"], forms[1]["organization"]) == ("https://a.example.com", "o")


async def test_a_refresh_token_that_there_is_needs_no_login(serve, operations, api, tmp_path, monkeypatch):
    from operad_auth import TokenStore

    forms = []

    async def handler(request):
        if request.path != "/token":
            return await echo(request)
        forms.append(dict(await request.post()))
        if forms[-1]["refresh_token"] == "dead":
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"access_token": "t", "expires_in": 0, "refresh_token": f"r{len(forms)}"})

    monkeypatch.setattr("operad_auth.oauth.TokenStore", lambda: TokenStore(tmp_path, keyring=False))
    base = await serve(handler)
    document = api({"get /x": {"security": [{"oauth": []}]}}, components={"securitySchemes": SCHEMES})
    auth = {"type": "oauth2", "client_id": "id", "client_secret": "s", "token_url": f"{base}/token"}
    for _ in range(2):  # as two processes: what a server hands out instead of a refresh token counts from then on
        found = operations(document, base, auth={**auth, "refresh_token": "mine"})
        assert (await found["get_x"].handler({}, None)).data["Authorization"] == "Bearer t"
    assert [(form["grant_type"], form["refresh_token"]) for form in forms] == [
        ("refresh_token", "mine"),
        ("refresh_token", "r1"),
    ]
    found = operations(document, base, auth={**auth, "account": "other", "refresh_token": "dead"})
    with pytest.raises(CallError, match="the login has expired") as caught:
        await found["get_x"].handler({}, None)
    assert "dead" not in str(caught.value)
    assert "dead" not in repr(HTTPServiceConfig(namespace="a", auth={**auth, "refresh_token": "dead"}))


async def test_a_client_can_prove_itself_by_its_key(serve, operations, api):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    async def handler(request):
        if request.path != "/token":
            return await echo(request)
        form = await request.post()
        assert (form["grant_type"], form["client_assertion"].count(".")) == ("client_credentials", 2)
        return web.json_response({"access_token": "t"})

    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    base = await serve(handler)
    document = api({"get /x": {"security": [{"oauth": []}]}}, components={"securitySchemes": SCHEMES})
    auth = {"type": "oauth2", "client_id": "id", "private_key": key.decode(), "token_url": f"{base}/token"}
    found = operations(document, base, auth=auth)
    assert (await found["get_x"].handler({}, None)).data["Authorization"] == "Bearer t"


async def test_a_person_logs_in_by_a_browser_and_calls_use_the_token(serve, api, tmp_path, monkeypatch):
    """Authorization code with PKCE over a loopback listener, endpoints from the document, one store for all."""
    from urllib.parse import parse_qs, urlsplit

    from operad import OperationRegistry, load_plugins
    from operad_auth import TokenStore

    async def handler(request):
        if request.path == "/token":
            form = await request.post()
            assert form["grant_type"] == "authorization_code"
            assert form["code"] == "c0de"
            return web.json_response({"access_token": "mine", "token_type": "Bearer", "refresh_token": "r"})
        return await echo(request)

    def browse(url):
        import urllib.request

        query = parse_qs(urlsplit(url).query)
        target = f"{query['redirect_uri'][0]}?code=c0de&state={query['state'][0]}"
        urllib.request.urlopen(target).read()

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("operad_auth.oauth.TokenStore", lambda: TokenStore(tmp_path / "operad", keyring=False))
    base = await serve(handler)
    flows = {"authorizationCode": {"authorizationUrl": "/authorize", "tokenUrl": "/token", "scopes": {}}}
    schemes = {"o": {"type": "oauth2", "flows": flows}}
    (tmp_path / "api.json").write_text(
        json.dumps(
            api({"get /x": {"operationId": "x", "security": [{"o": []}]}}, components={"securitySchemes": schemes})
        )
    )
    (tmp_path / "operad.toml").write_text(
        f'[sources.me]\ntype = "openapi"\nspec = "api.json"\nbase_url = "{base}"\n'
        'auth = { type = "oauth2", client_id = "id" }\n'
    )
    async with OperationRegistry.from_config(tmp_path, load_plugins(only=["openapi"]), strict=True) as registry:
        with pytest.raises(CallError, match="operad login me"):
            await registry.execute("me.x")
        login = await registry.source_login("me")
        await login.login(tell=lambda _: None, open_url=browse, timeout=5)
        assert (await registry.execute("me.x")).data["Authorization"] == "Bearer mine"
