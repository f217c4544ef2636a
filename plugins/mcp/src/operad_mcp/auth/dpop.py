"""Tokens that are bound to a key (DPoP, RFC 9449): who steals one cannot use it.

Imported with the first connection that logs in: it needs the SDK.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any, Protocol

import httpx2
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

_ALGORITHM = "ES256"
_NONCES = 100


class KeyHolder(Protocol):
    """What keeps the key beside the tokens that are bound to it."""

    dpop_key: str | None


class OwnKey:
    """A key for as long as the process lives."""

    dpop_key: str | None = None


class DPoPAuth(httpx2.Auth):
    """An OAuth flow whose tokens are bound to a key.

    Args:
        inner: the flow, which knows bearer tokens only.
        holder: keeps the key.
    """

    def __init__(self, inner: httpx2.Auth, holder: KeyHolder) -> None:
        self._inner = inner
        self._holder = holder
        self._nonces: dict[str, str] = {}

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The requests that lead to an answer to this one, each with its proof."""
        flow = self._inner.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                self._prove(outgoing, request)
                response = yield outgoing
                if await self._learn(response):  # the server wants its nonce in the proof (RFC 9449, 8 and 9)
                    self._prove(outgoing, request)
                    response = yield outgoing
                    await self._learn(response)
                if outgoing is not request:
                    response = await _as_bearer(response)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _learn(self, response: httpx2.Response) -> bool:
        """Take the nonce of an answer; whether the request was refused for want of it."""
        nonce = response.headers.get("dpop-nonce")
        if nonce is None:
            return False
        if len(self._nonces) >= _NONCES:
            self._nonces.clear()
        self._nonces[_origin(response.request.url)] = nonce
        if response.status_code == 401:
            return "use_dpop_nonce" in response.headers.get("www-authenticate", "")
        return response.status_code == 400 and b"use_dpop_nonce" in await response.aread()

    def _prove(self, outgoing: httpx2.Request, main: httpx2.Request) -> None:
        """Put a new proof on a request for a token, or on one with a token."""
        if outgoing is main:
            scheme, _, token = outgoing.headers.get("authorization", "").partition(" ")
            if scheme.lower() not in ("bearer", "dpop"):
                return
            outgoing.headers["authorization"] = f"DPoP {token}"
            outgoing.headers["dpop"] = self._proof(outgoing, token)
        elif outgoing.method == "POST" and b"grant_type=" in outgoing.content:
            outgoing.headers["dpop"] = self._proof(outgoing, None)

    def _proof(self, request: httpx2.Request, token: str | None) -> str:
        key = self._key()
        url = request.url
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": request.method,
            "htu": str(url.copy_with(query=None, fragment=None)),
            "iat": int(time.time()),
        }
        if token is not None:
            digest = hashlib.sha256(token.encode("ascii")).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        nonce = self._nonces.get(_origin(url))
        if nonce is not None:
            claims["nonce"] = nonce
        public: Any = jwt.get_algorithm_by_name(_ALGORITHM).to_jwk(key.public_key(), as_dict=True)
        return jwt.encode(claims, key, _ALGORITHM, headers={"typ": "dpop+jwt", "jwk": public})

    def _key(self) -> ec.EllipticCurvePrivateKey:
        if self._holder.dpop_key is None:
            made = ec.generate_private_key(ec.SECP256R1())
            self._holder.dpop_key = made.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode()
            return made
        key = serialization.load_pem_private_key(self._holder.dpop_key.encode(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.host}:{url.port}"


async def _as_bearer(response: httpx2.Response) -> httpx2.Response:
    """A token's answer as the flow knows it; another one as it is."""
    body = await response.aread()
    if response.status_code not in (200, 201) or b"token_type" not in body:
        return response
    try:
        answer = json.loads(body)
    except ValueError:
        return response
    if not isinstance(answer, dict) or str(answer.get("token_type")).lower() != "dpop":
        return response
    return httpx2.Response(response.status_code, json={**answer, "token_type": "Bearer"}, request=response.request)
