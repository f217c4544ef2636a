"""A login server (port 9000) and an API of notes (port 9001), to try the gateway on one machine.

The login server issues tokens to users, and exchanges them for the gateway (RFC 8693). The API accepts tokens of
the login server for the audience "notes" and no others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import jwt
from aiohttp import encode_basic_auth, web
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

# These secrets are used only in this example.
SECRETS = {"gateway": "gateway-secret", "ann": "ann-secret", "bob": "bob-secret"}
CLIENTS = {encode_basic_auth(name, secret): name for name, secret in SECRETS.items()}
SCOPES = {"ann": "operad:admin", "bob": ""}
CLAIMS = web.RequestKey("claims", dict)
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a type of token


class LoginServer:
    """The authorization server."""

    def __init__(self, issuer: str = "") -> None:
        self.issuer = issuer
        self.key = ec.generate_private_key(ec.SECP256R1())

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application()
        app.router.add_get("/.well-known/oauth-authorization-server", self.metadata)
        app.router.add_get("/jwks", self.jwks)
        app.router.add_post("/token", self.token)
        return app

    async def metadata(self, request: web.Request) -> web.Response:
        """Describe the server (RFC 8414)."""
        return web.json_response({
            "issuer": self.issuer,
            "token_endpoint": f"{self.issuer}/token",
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "jwks_uri": f"{self.issuer}/jwks",
        })  # fmt: skip

    async def jwks(self, request: web.Request) -> web.Response:
        """Publish the key that verifies tokens."""
        public = ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return web.json_response({"keys": [{**public, "alg": "ES256", "use": "sig"}]})

    async def token(self, request: web.Request) -> web.Response:
        """Issue a token to a user, or exchange the token of a user for the gateway."""
        form = await request.post()
        client = CLIENTS.get(request.headers.get("Authorization", ""))
        if client is None:
            return web.json_response({"error": "invalid_client"}, status=401)
        if client == "gateway" and form.get("grant_type") == EXCHANGE:
            try:
                caller = self.verified(str(form.get("subject_token")), "gateway")
            except jwt.InvalidTokenError:
                return web.json_response({"error": "invalid_grant"}, status=400)
            if form.get("audience") != "notes":
                return web.json_response({"error": "invalid_target"}, status=400)
            token = self.issued({"sub": caller["sub"], "aud": "notes", "act": {"sub": client}})
            return granted(token, issued_token_type=ACCESS_TOKEN)
        if client not in SCOPES or form.get("grant_type") != "client_credentials":
            return web.json_response({"error": "unauthorized_client"}, status=400)
        return granted(self.issued({"sub": client, "aud": "gateway", "scope": SCOPES[client]}))

    def issued(self, claims: Mapping[str, Any]) -> str:
        """Return a signed token."""
        now = int(time.time())
        return jwt.encode({"iss": self.issuer, "iat": now, "exp": now + 600, **claims}, self.key, "ES256")

    def verified(self, token: str, audience: str) -> dict[str, Any]:
        """Return the claims of a token. Raises `jwt.InvalidTokenError` if it is not valid for the audience."""
        claims: dict[str, Any] = jwt.decode(
            token,
            self.key.public_key(),
            ["ES256"],
            audience=audience,
            issuer=self.issuer,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        return claims


def granted(token: str, **more: str) -> web.Response:
    """Return the response of the token endpoint."""
    return web.json_response({"access_token": token, "token_type": "Bearer", "expires_in": 600, **more})


class NotesAPI:
    """The API. It identifies its callers by their tokens."""

    def __init__(self, login: LoginServer) -> None:
        self.login = login
        self.requests: list[tuple[str, str]] = []
        """The user and the path of each request."""
        self.notes = [
            {"id": 1, "workspace": "acme", "owner": "ann", "email": "ann@example.com", "text": "Order tea"},
            {"id": 2, "workspace": "acme", "owner": "bob", "email": "bob@example.com", "text": "Call Zoe"},
            {"id": 3, "workspace": "other", "owner": "eve", "email": "eve@example.com", "text": "Not for acme"},
        ]

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self.authenticate])
        app.add_routes([
            web.get("/whoami", self.whoami), web.get("/users", self.users), web.get("/export", self.export),
            web.get("/notes", self.search), web.delete("/notes", self.delete_all),
            web.delete("/notes/{id}", self.delete),
        ])  # fmt: skip
        return app

    @web.middleware
    async def authenticate(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Check the token of the request."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            if scheme != "Bearer":
                raise jwt.InvalidTokenError("expected a bearer token")
            request[CLAIMS] = self.login.verified(token, "notes")
        except jwt.InvalidTokenError as error:
            return web.json_response({"error": str(error)}, status=401)
        self.requests.append((request[CLAIMS]["sub"], f"{request.method} {request.path}"))
        response: web.StreamResponse = await handler(request)
        return response

    def of_workspace(self, request: web.Request) -> list[dict[str, Any]]:
        """Return the notes of the workspace in the query."""
        return [note for note in self.notes if note["workspace"] == request.query.get("workspace")]

    async def whoami(self, request: web.Request) -> web.Response:
        """Return the user of the token, and the client that acts for the user."""
        claims = request[CLAIMS]
        return web.json_response({"user": claims["sub"], "via": claims["act"]["sub"]})

    async def search(self, request: web.Request) -> web.Response:
        """Return the notes with a text."""
        text = request.query.get("text", "").lower()
        return web.json_response([note for note in self.of_workspace(request) if text in note["text"].lower()])

    async def export(self, request: web.Request) -> web.Response:
        """Return every version of every note."""
        notes = self.of_workspace(request)
        return web.json_response([{**note, "version": n} for note in notes for n in range(50)])

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a note."""
        found = [note for note in self.of_workspace(request) if str(note["id"]) == request.match_info["id"]]
        self.notes = [note for note in self.notes if note not in found]
        return web.json_response({"deleted": len(found)}, status=200 if found else 404)

    async def delete_all(self, request: web.Request) -> web.Response:
        """Delete all notes."""
        self.notes = []
        return web.json_response({})

    async def users(self, request: web.Request) -> web.Response:
        """Return the users."""
        return web.json_response(sorted(SCOPES))


@asynccontextmanager
async def serving(login_port: int = 9000, api_port: int = 9001) -> AsyncIterator[tuple[NotesAPI, str, str]]:
    """Serve both. Yield the API, the URL of the login server and the URL of the API. Port 0 takes a free port."""
    login = LoginServer()
    api = NotesAPI(login)
    login_runner, api_runner = web.AppRunner(login.app()), web.AppRunner(api.app())
    try:
        urls = []
        for runner, port in ((login_runner, login_port), (api_runner, api_port)):
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        login.issuer = urls[0]
        yield api, urls[0], urls[1]
    finally:
        await api_runner.cleanup()
        await login_runner.cleanup()


async def main() -> None:
    """Serve until Ctrl+C."""
    async with serving() as (_, login, api):
        print(f"login server on {login}, API on {api}; Ctrl+C ends both", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
