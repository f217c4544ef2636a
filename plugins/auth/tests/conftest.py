"""A real authorization server on this machine, written for the tests: metadata, keys, all grants, revocation."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

import pytest

web = pytest.importorskip("aiohttp.web")
RawTestServer = pytest.importorskip("aiohttp.test_utils").RawTestServer
jwt = pytest.importorskip("jwt")


def key_pair(kid: str, algorithm: str = "ES256") -> tuple[dict[str, Any], dict[str, Any]]:
    """A new private JWK, and its public half."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    private: Any = {
        "ES": lambda: ec.generate_private_key(ec.SECP256R1()),
        "Ed": ed25519.Ed25519PrivateKey.generate,
        "RS": lambda: rsa.generate_private_key(65537, 2048),
    }[algorithm[:2]]()
    maker = jwt.get_algorithm_by_name(algorithm)
    extra = {"kid": kid, "alg": algorithm, "use": "sig"}
    return (
        {**maker.to_jwk(private, as_dict=True), **extra},
        {**maker.to_jwk(private.public_key(), as_dict=True), **extra, "key_ops": ["verify"]},
    )


class AuthorizationServer:
    """An issuer of JWT access tokens. Refresh tokens count once; a second use ends the login (RFC 9700, 4.14)."""

    key_pair = staticmethod(key_pair)

    def __init__(self) -> None:
        self.issuer = ""
        self.seen: Counter[str] = Counter()
        self.forms: list[dict[str, str]] = []
        self.clients: dict[str, str | None] = {"cli": None, "machine": "s:e/c ret"}
        self.expires_in: Any = 3600
        self.refuse: dict[str, str] | None = None
        self.failures: list[int] = []
        self.metadata: dict[str, Any] = {}
        self.authorization_iss: str | None = None
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh_tokens: dict[str, tuple[str, bool]] = {}
        self.revoked: list[str] = []
        self.client_key: dict[str, Any] = {}
        self.assertions: set[str] = set()
        self.devices: dict[str, dict[str, Any]] = {}
        self.device_interval: float = 0.01
        self.rotate()

    def rotate(self, kid: str | None = None) -> None:
        """Sign with a new key; the old one is published no longer."""
        self.kid = kid or secrets.token_hex(4)
        self.private, self.public = key_pair(self.kid)

    def sign(self, key: Any = None, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """An access token; claims that are ``None`` are left out."""
        now = int(time.time())
        base = {"iss": self.issuer, "aud": "operad", "sub": "ann", "iat": now, "exp": now + 300, "scope": "read"}
        kept = {name: value for name, value in {**base, **claims}.items() if value is not None}
        jwk = jwt.PyJWK(key or self.private)
        header = {"kid": (key or self.private).get("kid"), "typ": "at+jwt", **(headers or {})}
        return str(jwt.encode(kept, jwk.key, jwk.algorithm_name, headers=header))

    # --- the endpoints ---------------------------------------------------------------------------------

    async def handle(self, request: Any) -> Any:
        name = request.path.strip("/").replace("-", "_").replace("/", "_").replace(".", "")
        self.seen[name] += 1
        return await getattr(self, f"_{name}")(request)

    async def _well_known_oauth_authorization_server(self, request: Any) -> Any:
        endpoints = {"authorization": "authorize", "token": "token", "device_authorization": "device"}
        named = {f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in endpoints.items()}
        named |= {"revocation_endpoint": f"{self.issuer}/revoke", "jwks_uri": f"{self.issuer}/jwks"}
        return web.json_response({"issuer": self.issuer, **named, **self.metadata})

    async def _jwks(self, request: Any) -> Any:
        return web.json_response({"keys": [self.public]})

    async def _authorize(self, request: Any) -> Any:
        query = dict(request.query)
        answer = {"state": query["state"]}
        if self.authorization_iss:
            answer["iss"] = self.authorization_iss
        if self.refuse is not None:
            answer |= self.refuse
        else:
            code = answer["code"] = secrets.token_hex(8)
            self.codes[code] = query
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(answer)}")

    async def _device(self, request: Any) -> Any:
        code = secrets.token_hex(8)
        self.devices[code] = {"answers": ["authorization_pending", "authorization_pending"]}
        page, user_code = f"{self.issuer}/enter", "WDJB-MJHT"
        pages = {"verification_uri": page, "verification_uri_complete": f"{page}?c={user_code}"}
        codes = {"device_code": code, "user_code": user_code}
        return web.json_response({**codes, **pages, "expires_in": 60, "interval": self.device_interval})

    async def _enter(self, request: Any) -> Any:
        return web.Response(text="Enter the code")

    async def _revoke(self, request: Any) -> Any:
        self.revoked.append((await request.post())["token"])
        return web.Response()

    async def grants(self, form: Any) -> None:
        """Do nothing: a test may let the endpoint of tokens take its time."""

    async def _token(self, request: Any) -> Any:
        form = {key: values[-1] for key, values in parse_qs(await request.text()).items()}
        await self.grants(form)
        self.forms.append({**form, "authorization": request.headers.get("Authorization", "")})
        if self.failures:
            return web.Response(status=self.failures.pop(0), headers={"Retry-After": "0"})
        client = self._client(request, form)
        if client is None:
            return web.json_response({"error": "invalid_client"}, status=401)
        if self.refuse is not None:
            return web.json_response(self.refuse, status=400)
        grant = form["grant_type"].rpartition(":")[2]
        return getattr(self, f"_grant_{grant}")(client, form)

    def _client(self, request: Any, form: dict[str, str]) -> str | None:
        id, secret = form.get("client_id"), form.get("client_secret")
        if "client_assertion" in form:
            return self._asserted(form)
        scheme, _, pair = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            id, secret = map(unquote, base64.b64decode(pair).decode().split(":"))
        return id if id in self.clients and self.clients[id] == secret else None

    def _asserted(self, form: dict[str, str]) -> str | None:
        try:
            claims = jwt.decode(
                form["client_assertion"], jwt.PyJWK(self.client_key), audience=self.issuer, leeway=5
            )
        except jwt.PyJWTError:
            return None
        is_own = claims["sub"] == claims["iss"] == form["client_id"] == "signer"
        fresh = claims["exp"] - claims["iat"] <= 60 and claims["jti"] not in self.assertions
        self.assertions.add(claims["jti"])
        return "signer" if is_own and fresh else None

    def _answer(self, client: str, *, refresh: bool = True, **claims: Any) -> Any:
        answer = {
            "access_token": self.sign(sub=client, jti=secrets.token_hex(4), **claims),
            "token_type": "bearer",
        }
        if self.expires_in is not None:
            answer["expires_in"] = self.expires_in
        if refresh:
            answer["refresh_token"] = secrets.token_hex(8)
            self.refresh_tokens[answer["refresh_token"]] = (client, True)
        return web.json_response(answer, status=201, headers={"Cache-Control": "no-store"})

    def _grant_client_credentials(self, client: str, form: dict[str, str]) -> Any:
        return self._answer(client, refresh=False, scope=form.get("scope"), aud=form.get("audience", "operad"))

    def _grant_authorization_code(self, client: str, form: dict[str, str]) -> Any:
        asked = self.codes.pop(form["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if (
            asked is None
            or asked["code_challenge"] != challenge.decode()
            or asked["redirect_uri"] != form["redirect_uri"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        return self._answer(client, scope=asked.get("scope"))

    def _grant_device_code(self, client: str, form: dict[str, str]) -> Any:
        answers = self.devices[form["device_code"]]["answers"]
        if answers:
            return web.json_response({"error": answers.pop(0)}, status=400)
        return self._answer(client)

    def _grant_refresh_token(self, client: str, form: dict[str, str]) -> Any:
        owner, valid = self.refresh_tokens.get(form["refresh_token"], ("", False))
        if owner != client or not valid:
            self.refresh_tokens = {token: (who, False) for token, (who, _) in self.refresh_tokens.items()}
            error = {"error": "invalid_grant", "error_description": "used before"}
            return web.json_response(error, status=400)
        self.refresh_tokens[form["refresh_token"]] = (owner, False)
        return self._answer(client)


@pytest.fixture
async def server() -> AsyncIterator[AuthorizationServer]:
    """The authorization server, listening."""
    server = AuthorizationServer()
    async with RawTestServer(server.handle) as listening:
        server.issuer = f"http://127.0.0.1:{listening.port}"
        yield server


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the tokens of whoever runs it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("OPERAD_TOKEN_KEY", raising=False)
