"""A small OpenID provider on this machine that agrees by itself and can be told to send something wrong.

What a correct provider sends is tested with oidc-provider, in tests/peers/oauth.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import jwt
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

CLIENT = {"client_id": "gateway", "client_secret": "s3cret"}


class Provider:
    """The provider. Its attributes say what it sends."""

    def __init__(self) -> None:
        self.issuer = ""
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.user: dict[str, Any] = {"sub": "ann"}
        self.claims: dict[str, Any] = {}
        """Claims of ID tokens that replace the right ones; None leaves one out."""
        self.algorithm = "ES256"
        self.has_id_token = True
        self.callback: dict[str, str] = {}
        """Parameters of the redirect that replace the right ones."""
        self.codes: dict[str, dict[str, str]] = {}
        self.queries: list[dict[str, str]] = []
        self.access_tokens: list[str] = []
        self.refresh_tokens: list[str] = []
        """Those that were issued; the last one is valid."""
        self.has_refresh_tokens = False
        self.refusal: tuple[int, str] | None = None
        """The status and error with which refresh tokens are refused."""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._metadata)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_get("/userinfo", self._userinfo)
        app.router.add_get("/jwks", self._jwks)
        return app

    async def _metadata(self, request: web.Request) -> web.Response:
        paths = {f"{name}_endpoint": name for name in ("token", "userinfo")}
        paths |= {"authorization_endpoint": "authorize", "jwks_uri": "jwks"}
        urls = {name: f"{self.issuer}/{path}" for name, path in paths.items()}
        more = {"authorization_response_iss_parameter_supported": True}
        return web.json_response({"issuer": self.issuer, **urls, **more})

    async def _jwks(self, request: web.Request) -> web.Response:
        public = ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return web.json_response({"keys": [{**public, "alg": "ES256", "use": "sig"}]})

    async def _authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        self.queries.append(query)
        code = secrets.token_hex(8)
        self.codes[code] = query
        sent = {"code": code, "state": query["state"], "iss": self.issuer, **self.callback}
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(sent)}")

    async def _token(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        if form.get("grant_type") == "refresh_token":
            return self._refreshed(str(form.get("refresh_token")))
        query = self.codes.pop(str(form.get("code")), None)
        basic = base64.b64encode(b"gateway:s3cret").decode()
        verifier = hashlib.sha256(str(form.get("code_verifier")).encode()).digest()
        if (
            query is None
            or request.headers.get("Authorization") != f"Basic {basic}"
            or base64.urlsafe_b64encode(verifier).decode().rstrip("=") != query["code_challenge"]
            or form.get("redirect_uri") != query["redirect_uri"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now, token = int(time.time()), secrets.token_hex(16)
        self.access_tokens.append(token)
        right = {"iss": self.issuer, "aud": "gateway", "iat": now, "exp": now + 300, "nonce": query["nonce"]}
        claims = {**right, **self.user, **self.claims}
        key: Any = {"ES256": self.key, "none": None, "HS256": "s3cret" * 10}[self.algorithm]
        kept = {name: value for name, value in claims.items() if value is not None}
        signed = jwt.encode(kept, key, self.algorithm)
        extra = {"id_token": signed} if self.has_id_token else {}
        extra |= self._refresh_token()
        return web.json_response({"access_token": token, "token_type": "Bearer", "expires_in": 60, **extra})

    def _refresh_token(self) -> dict[str, str]:
        if not self.has_refresh_tokens:
            return {}
        self.refresh_tokens.append(secrets.token_hex(16))
        return {"refresh_token": self.refresh_tokens[-1]}

    def _refreshed(self, token: str) -> web.Response:
        if self.refusal is not None:
            return web.json_response({"error": self.refusal[1]}, status=self.refusal[0])
        if token != self.refresh_tokens[-1]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"access_token": "x", "token_type": "Bearer", **self._refresh_token()})

    async def _userinfo(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.access_tokens:
            return web.Response(status=401)
        return web.json_response(self.user)


@asynccontextmanager
async def running() -> AsyncIterator[Provider]:
    """Run a provider."""
    provider = Provider()
    async with TestServer(provider.app()) as server:
        provider.issuer = str(server.make_url("")).rstrip("/")
        yield provider
