"""Credentials: which are chosen, where they are put, and where they must not go."""

import base64
import urllib.request
from contextlib import nullcontext
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import attrs
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from operad import CallError, ConfigError, Identity, OperationContext, OperationRegistry, SourceError, load_plugins
from operad.plugin import hookimpl
from operad_auth import CredentialProvider, OAuthClient, TokenStore
from operad_openapi import HTTPAuth
from operad_openapi._login import login_of
from plugins.openapi.tests.data import GET, NOWHERE, TABLES, configured
from plugins.openapi.tests.handlers import redirect, replying, result_of
from plugins.openapi.tests.making import config, parameter

SCHEMES = {
    "bearer": {"type": "http", "scheme": "Bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "api key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "oauth": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "/token", "scopes": {}}}},
    "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://id.example.test"},
    "hoba": {"type": "http", "scheme": "hoba"},
    "lost": {"$ref": "#/nowhere"},
}
BEARER = {"type": "bearer", "token": "t0ken"}
KEY = {"type": "apiKey", "token": "k3y"}
BASIC = {"type": "basic", "username": "u", "password": "p:w"}
ENCODED = "Basic " + base64.b64encode(b"u:p:w").decode()
KEY_IN_QUERY = {"k": {"type": "apiKey", "in": "query", "name": "key"}}


async def echo(request):
    seen = {name: request.headers.get(name) for name in ("Authorization", "X-Key", "X-API-Key", "Cookie")}
    return web.json_response({**seen, "query": request.rel_url.raw_query_string})


@pytest.fixture
def secured(api):
    """A document whose operation has a security requirement, ``oauth`` if none is given."""

    def make(security=({"oauth": []},), schemes=SCHEMES, **operation):
        if security is not None:
            operation["security"] = list(security)
        return api({"get /x": {**GET["get /x"], **operation}}, components={"securitySchemes": schemes})

    return make


def issuing(form=None, status=200, **token):
    """A server with a token endpoint that sends a token, and appends each form that it gets to ``form``."""

    async def handler(request):
        if request.path != "/token":
            return await echo(request)
        if form is not None:
            form.append(dict(await request.post()))
        return web.json_response({"access_token": "t", **token}, status=status)

    return handler


@pytest.mark.parametrize(("security", "config", "expected"), TABLES["security"].values(), ids=TABLES["security"])
async def test_security(call, secured, security, config, expected):
    data = (await call(echo, secured(security), **config)).data
    assert {key: value for key, value in data.items() if value} == expected


async def test_root_security_is_the_default(api, call):
    document = api({"get /x": {}}, components={"securitySchemes": SCHEMES}, security=[{"header": []}])
    assert (await call(echo, document, auth=KEY)).data["X-Key"] == "k3y"


async def test_swagger_2_schemes(api, call):
    schemes = {"b": {"type": "basic"}, "k": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    document = api({"get /x": {"security": [{"b": [], "k": []}]}}, version="2.0", securityDefinitions=schemes)
    data = (await call(echo, document, credentials={"b": BASIC, "k": KEY})).data
    assert (data["Authorization"], data["X-Key"]) == (ENCODED, "k3y")


async def test_a_credential_in_the_query_is_not_in_the_metadata_and_in_no_error(call, fails, secured):
    assert "k3y" not in repr((await call(echo, secured([{"query": []}]), auth=KEY)).meta)
    error = await fails(NOWHERE, secured([{"query": []}]), auth=KEY, retries=0)
    assert "k3y" not in repr(error) + str(error.details)


def test_secrets_are_not_in_a_repr():
    auth = {**BASIC, "token": "t0ken", "client_secret": "s3cret"}
    shown = repr(config(auth=auth, headers={"X": "h3ader"}, credentials={"a": KEY}))
    assert not any(secret in shown for secret in ("t0ken", "p:w", "s3cret", "h3ader", "k3y"))


async def test_credentials_stay_with_the_origin_of_the_api(serve, call):
    elsewhere, base = await serve(echo), await serve(echo)
    paths = {"get /x": {"operationId": "x", "servers": [{"url": elsewhere}]}}
    for origins, expected in (([], (None, None)), ([elsewhere], ("Bearer t0ken", "config"))):
        data = (await call(base, paths, auth=BEARER, headers={"X-Key": "config"}, origins=origins)).data
        assert (data["Authorization"], data["X-Key"]) == expected


async def test_a_caller_can_have_a_credential_of_its_own(serve, operations, api):
    async def credential(context):
        return HTTPAuth(type="bearer", token=f"of-{context.identity.id}") if context else None

    def headers(context):
        return {"X-Key": context.identity.id if context else "nobody"}

    options = {"auth": BEARER, "credentials_for": credential, "request_headers": headers}
    found = operations(api(GET), await serve(echo), **options)
    for context, expected in (
        (OperationContext(identity=Identity("ada")), ("Bearer of-ada", "ada")),
        (None, ("Bearer t0ken", "nobody")),
    ):
        data = (await found["x"].handler({}, context)).data
        assert (data["Authorization"], data["X-Key"]) == expected


def unless_old(request):
    """Rejects one credential."""
    shown = request.headers.get("Authorization")
    return web.json_response(shown, status=401 if shown == "Bearer old" else 200)


def provider(*tokens, refused=True):
    """Gives these tokens in turn; of the first one it may say that it has another one."""
    left, asked = list(tokens), []

    async def get(context, origin):
        asked.append((context.identity and context.identity.id, origin))
        return {"type": "bearer", **left.pop(0)}

    return CredentialProvider("p", get, refused=lambda context, table: refused and table["token"] == "old"), asked


@pytest.mark.parametrize("context", [None, OperationContext(identity=Identity("ada"))])
async def test_a_provider_gives_the_credential_of_the_caller_and_another_one_after_a_401(
    serve, operations, api, context
):
    base, (caller, asked) = await serve(unless_old), provider({"token": "old"}, {"token": "new"})
    found = operations(api(GET), base, caller=caller)
    assert (await found["x"].handler({}, context)).data == "Bearer new"
    assert asked == [(context and "ada", base)] * 2


@pytest.mark.parametrize(("second", "asked_for"), [({"token": "new"}, 1), ({"token": "old"}, 2)])
async def test_a_credential_that_is_refused_again_is_an_error(fails, second, asked_for):
    caller, asked = provider({"token": "old"}, second, refused=asked_for == 2)
    assert "401" in (await fails(unless_old, caller=caller)).message
    assert len(asked) == asked_for


@pytest.mark.parametrize("table", [{}, {"token": ""}, {"nonsense": 1}, {"type": "caller", "provider": "p"}])
async def test_a_provider_that_gives_no_credential_is_an_error_without_its_values(fails, requests, table):
    error = await fails(echo, caller=provider(table)[0])
    assert error.message.startswith("the provider of the caller's credential: expected a table")
    assert not requests


async def test_a_source_names_the_provider_of_the_credentials_of_its_callers(serve, api):
    base, checked, (caller, asked) = await serve(echo), [], provider({"token": "t"})
    plugins = load_plugins(only=["openapi"])
    found = [attrs.evolve(caller, check=checked.append)]
    plugins.register(SimpleNamespace(__name__="p", operad_credentials=hookimpl(lambda registry: found)))
    options = {"spec": api(GET), "base_url": base, "auth": {"type": "caller", "provider": "p"}}
    async with OperationRegistry(plugins) as registry:
        await registry.load("openapi", namespace="api", **options)
        assert (await registry.execute("api.x")).data["Authorization"] == "Bearer t"
        assert (checked, len(asked)) == ([base], 1)
        with pytest.raises(ConfigError, match="credentials_for cannot be used together; remove one"):
            await registry.load("openapi", namespace="b", credentials_for=print, **options)


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

    schemes = {"securitySchemes": SCHEMES}
    document = api({"get /x": {}, "post /y": {}}, components=schemes, security=[{"oauth": []}])
    found = operations(document, await serve(handler), auth=OAUTH)
    for name, expected in (("get_x", ["t0"]), ("post_y", ["t0", "t1"])):
        await found[name].handler({}, None)
        assert tokens == expected
    assert calls == ["Bearer t0", "Bearer t0", "Bearer t1"]


@pytest.mark.parametrize(("security", "sent"), [(None, "Bearer t"), ([], None)])
async def test_a_document_that_forgot_to_ask_for_its_login_gets_the_token_all_the_same(
    call, secured, security, sent
):
    assert (await call(issuing(), secured(security), auth=OAUTH)).data["Authorization"] == sent


async def test_a_401_that_stays_is_an_error(fails, secured):
    def handler(request):
        return issuing()(request) if request.path == "/token" else web.Response(status=401)

    assert "401" in (await fails(handler, secured(), auth=OAUTH)).message


@pytest.mark.parametrize("more", [{}, {"components": {"securitySchemes": {}}}])
async def test_an_empty_security_of_a_document_without_schemes_switches_no_credential_off(call, api, more):
    envelope = await call(echo, api({"get /x": {"security": []}}, **more), auth=BEARER)
    assert envelope.data["Authorization"] == "Bearer t0ken"


async def test_a_client_secret_does_not_go_where_a_document_says(serve, fails, secured, requests):
    url = f"{await serve(issuing())}/token"
    schemes = {"oauth": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": url, "scopes": {}}}}}
    assert "the document's token_url" in (await fails(echo, secured(schemes=schemes), auth=OAUTH)).message
    assert not requests


@pytest.mark.parametrize(
    ("options", "hinted"), [({}, True), ({"auth": BEARER}, False), ({"headers": {"k": "v"}}, False)]
)
async def test_a_401_without_credentials_says_where_to_set_them(fails, options, hinted):
    error = await fails(replying(status=401), **options)
    assert ("set auth" in str(error)) is hinted
    assert "set auth" not in error.message  # a remote caller has no say in it


async def test_a_client_secret_does_not_go_to_a_public_host_in_the_clear(fails, secured):
    assert "is not https" in (await fails("http://api.example.com", secured(), auth=OAUTH)).message


async def test_an_answer_without_a_token_is_an_error(fails, secured):
    handler = result_of(lambda request: {"error": "invalid_client"})
    assert "invalid_client" in (await fails(handler, secured(), auth=OAUTH)).message


async def test_a_caller_cannot_make_a_key_in_the_query_disappear(call, secured):
    """A parameter whose text holds that of the credential is not the credential."""
    document = secured([{"k": []}], KEY_IN_QUERY, parameters=[parameter("apikey")])
    envelope = await call(echo, document, {"apikey": "abcdef"}, auth={"type": "apiKey", "token": "abc"})
    assert envelope.data["query"] == "apikey=abcdef&key=abc"


async def test_a_redirect_that_repeats_the_key_gets_it_once(call, secured):
    def handler(request):
        return redirect(f"/y?{request.query_string}&more=1") if request.path == "/x" else echo(request)

    envelope = await call(handler, secured([{"k": []}], KEY_IN_QUERY), auth={"type": "apiKey", "token": "abc"})
    assert envelope.data["query"] == "key=abc&more=1"


async def test_the_client_shows_itself_as_the_server_wants_and_asks_again_after_a_passing_failure(call, secured):
    forms = []

    async def handler(request):
        if request.path == "/token" and not forms:
            forms.append(None)
            return web.Response(status=503)
        return await issuing(forms, 201, token_type="bearer")(request)

    auth = {**OAUTH, "clientAuth": "post", "audience": "https://a.example.com", "extra": {"organization": "o"}}
    assert (await call(handler, secured(), auth=auth)).data["Authorization"] == "Bearer t"
    shown = [forms[1][key] for key in ("client_secret", "audience", "organization")]
    assert shown == ["s3cret", "https://a.example.com", "o"]


async def test_a_refresh_token_that_there_is_needs_no_login(serve, operations, secured, tmp_path, monkeypatch):
    forms = []

    async def handler(request):
        if request.path != "/token":
            return await echo(request)
        forms.append(dict(await request.post()))
        if forms[-1]["refresh_token"] == "dead":
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"access_token": "t", "expires_in": 0, "refresh_token": f"r{len(forms)}"})

    monkeypatch.setattr("operad_auth.oauth.TokenStore", lambda: TokenStore(tmp_path, keyring=False))
    base, document = await serve(handler), secured()
    auth = {"type": "oauth2", "client_id": "id", "client_secret": "s", "token_url": f"{base}/token"}
    for _ in range(2):  # as two processes: what a server hands out instead of a refresh token counts from then on
        found = operations(document, base, auth={**auth, "refresh_token": "mine"})
        assert (await found["x"].handler({}, None)).data["Authorization"] == "Bearer t"
    assert [form["refresh_token"] for form in forms] == ["mine", "r1"]
    assert {form["grant_type"] for form in forms} == {"refresh_token"}
    found = operations(document, base, auth={**auth, "account": "other", "refresh_token": "dead"})
    with pytest.raises(CallError, match="the login has expired") as caught:
        await found["x"].handler({}, None)
    assert "dead" not in str(caught.value) + repr(config(auth={**auth, "refresh_token": "dead"}))


@pytest.mark.parametrize("flows", [{}, {"clientCredentials": 5}, {"clientCredentials": {"tokenUrl": "http://["}}])
async def test_a_token_url_of_the_configuration_needs_none_of_the_document(serve, call, secured, flows):
    base, schemes = await serve(issuing()), {"oauth": {"type": "oauth2", "flows": flows}}
    auth = {**OAUTH, "token_url": f"{base}/token", "grant": "client_credentials"}
    assert (await call(base, secured(schemes=schemes), auth=auth)).data["Authorization"] == "Bearer t"


async def test_the_login_of_openid_connect_is_found_by_its_url(call, secured):
    async def handler(request):
        issuer = str(request.url.origin())
        if request.path.startswith("/.well-known/"):
            return web.json_response({"issuer": issuer, "token_endpoint": f"{issuer}/token"})
        return await issuing()(request)

    schemes = {"oidc": {"type": "openIdConnect", "openIdConnectUrl": "/.well-known/openid-configuration"}}
    assert (await call(handler, secured([{"oidc": []}], schemes), auth=OAUTH)).data["Authorization"] == "Bearer t"


async def test_a_client_can_prove_itself_by_its_key(serve, call, secured):
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    forms = []
    base = await serve(issuing(forms))
    auth = {"type": "oauth2", "client_id": "id", "private_key": key.decode(), "token_url": f"{base}/token"}
    assert (await call(base, secured(), auth=auth)).data["Authorization"] == "Bearer t"
    assert (forms[0]["grant_type"], forms[0]["client_assertion"].count(".")) == ("client_credentials", 2)


@pytest.mark.parametrize("place", ["token_url", "issuer"])
@pytest.mark.parametrize("names", [{}, {"a": {"type": "bearer", "token": "t"}, "b": None}])
async def test_a_login_whose_server_is_configured_reads_no_document(place, names):
    auth = {"type": "oauth2", "client_id": "id", "account": "mine"}
    for given, error in (({place: "https://id.test"}, None), ({}, SourceError)):
        found = {**auth, **given}
        options = config(credentials={**names, "b": found}) if names else config(auth=found)
        with pytest.raises(error) if error else nullcontext():
            assert isinstance(await login_of("/nowhere.json", options, None, "other"), OAuthClient)
    with pytest.raises(ConfigError, match="api: this source needs no login"):
        await login_of("/nowhere.json", config(auth=BEARER), None, None)


async def test_a_person_logs_in_by_a_browser_and_calls_use_the_token(serve, secured, tmp_path, monkeypatch):
    """Authorization code with PKCE over a loopback listener, endpoints from the document, one store for all."""

    async def handler(request):
        if request.path == "/token":
            form = await request.post()
            assert (form["grant_type"], form["code"]) == ("authorization_code", "c0de")
            return web.json_response({"access_token": "mine", "token_type": "Bearer", "refresh_token": "r"})
        return await echo(request)

    def browse(url):
        query = parse_qs(urlsplit(url).query)
        target = f"{query['redirect_uri'][0]}?code=c0de&state={query['state'][0]}"
        urllib.request.urlopen(target).read()

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("operad_auth.oauth.TokenStore", lambda: TokenStore(tmp_path / "operad", keyring=False))
    base = await serve(handler)
    flows = {"authorizationCode": {"authorizationUrl": "/authorize", "tokenUrl": "/token", "scopes": {}}}
    schemes = {"o": {"type": "oauth2", "flows": flows}}
    options = (f'base_url = "{base}"', 'auth = { type = "oauth2", client_id = "id" }')
    configured(tmp_path, secured([{"o": []}], schemes), *options, name="me")
    async with OperationRegistry.from_config(tmp_path, load_plugins(only=["openapi"]), strict=True) as registry:
        with pytest.raises(CallError, match="operad login me"):
            await registry.execute("me.x")
        login = await registry.source_login("me")
        await login.login(tell=lambda _: None, open_url=browse, timeout=5)
        assert (await registry.execute("me.x")).data["Authorization"] == "Bearer mine"
