"""The routes of the authorization server: metadata, registration, login, tokens and revocation.

A login takes three steps, bound to the browser by a cookie. The client sends the browser to ``authorize``, which
shows what the client asks for. The user's choice goes to ``consent``, which sends the browser to the provider. The
provider sends the browser to ``callback``, which sends it back to the client with a code.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from operad import CallError, ConfigError, ErrorCode
from operad.wire import to_json
from operad_auth import Credentials
from operad_auth.http.urls import shown_url
from operad_serve.asgi import (
    ClientGoneError,
    Exchange,
    Gate,
    Header,
    Receive,
    Scope,
    Send,
    is_preflight,
    run_lifespan,
)
from operad_serve.oauth import pages
from operad_serve.oauth.clients import Client, Clients, RefusedClient
from operad_serve.oauth.options import OAuthServerOptions
from operad_serve.oauth.store import Store
from operad_serve.oauth.tokens import CHALLENGE, TokenEndpoint, TokenError, new_grant_id, new_token
from operad_serve.oauth.upstream import FAILURES, Upstream, reason
from operad_serve.pages import show
from operad_serve.problems import Problem

logger = logging.getLogger("operad.serve")

MAX_BODY = 16 * 1024
"""The largest form, and the largest metadata of a client, in bytes."""
MAX_QUERY = 8 * 1024
"""The largest query string, in bytes."""
_BODY_SECONDS = 10.0
_OF_PAGE = "page-"
"""How ``state`` begins in a login for a page of this server."""
_FIELDS = 40
WELL_KNOWN = "/.well-known/oauth-protected-resource"
_COOKIE = re.compile(r"[\w-]{43}", re.ASCII)
_CORS = {
    "methods": "GET, POST",
    "headers": "Authorization, Content-Type, Mcp-Protocol-Version",
    "expose": "WWW-Authenticate",
}
_ANY_PAGE: tuple[Header, ...] = ((b"access-control-allow-origin", b"*"),)


class Refused(Exception):
    """The error for a request that is refused with a page. The page shows its message."""


class OAuthApplication:
    """The authorization server of a front door, an ASGI 3 application.

    Args:
        options: the table ``[serve.oauth]``.
        gate: the gate of the front door, whose ``allowed_origins`` may use the endpoints (CORS).
        base_dir: the folder from which relative paths start.

    Raises:
        ConfigError: the provider cannot be used, see `Upstream`.
    """

    def __init__(self, options: OAuthServerOptions, gate: Gate, base_dir: Path) -> None:
        self._options, self._gate = options, gate
        self._store = Store(options, base_dir)
        self._clients = Clients(options, self._store)
        self._upstream = Upstream(options)
        self._tokens = TokenEndpoint(options, self._store, self._clients, self._upstream)
        is_https = options.base.startswith("https:")
        self._cookie = "__Host-operad-login" if is_https else "operad-login"
        self._cookie_flags = "; Path=/; HttpOnly; SameSite=Lax; Max-Age=3600" + ("; Secure" if is_https else "")
        self._pages = {"authorize": self._authorize, "callback": self._callback, "consent": self._consent}
        self._endpoints = {"token": self._token, "revoke": self._revoke, "register": self._register}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await run_lifespan(receive, send, self._start, self._stop)
            return
        path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/"))
        exchange = Exchange(scope, receive, send, path)
        try:
            await self._route(exchange)
        except Problem as problem:
            await exchange.respond_problem(problem)
        except ClientGoneError:
            return

    async def _start(self) -> None:
        """Do nothing: the store is opened with the first request."""

    async def _stop(self) -> None:
        self._store.close()

    async def _route(self, exchange: Exchange) -> None:
        name = exchange.path.removeprefix("/oauth/")
        if exchange.path.startswith("/.well-known/"):
            await self._metadata(exchange)
        elif name in self._pages:
            expected = "POST" if name == "consent" else "GET"
            if exchange.method != expected:
                detail = f"expected {expected}, got {exchange.method}"
                raise Problem(405, detail, headers=[(b"allow", expected.encode())])
            try:
                await self._pages[name](exchange)
            except Refused as refused:
                await show(exchange, 400, *pages.failed(str(refused)))
        elif name in self._endpoints and (name != "register" or self._options.registration):
            await self._endpoint(exchange, name)
        else:
            raise Problem(404, f"no such path; {self._options.metadata_path} lists the endpoints")

    # --- metadata --------------------------------------------------------------------------------

    async def _metadata(self, exchange: Exchange) -> None:
        """Send the metadata of this authorization server (RFC 8414), or of the HTTP API (RFC 9728)."""
        is_resource = exchange.path.startswith(WELL_KNOWN)
        if not is_resource and exchange.path != self._options.metadata_path:
            raise Problem(404, f"no such path; the metadata are at {self._options.metadata_path}")
        if exchange.method not in ("GET", "HEAD"):
            raise Problem(405, f"expected GET, got {exchange.method}", headers=[(b"allow", b"GET, HEAD")])
        options, methods = self._options, ["none", "client_secret_post", "client_secret_basic"]
        document: dict[str, Any]
        if is_resource:
            document = {
                "resource": options.base,
                "authorization_servers": [options.base],
                "bearer_methods_supported": ["header"],
            }
        else:
            document = {
                "issuer": options.base,
                "authorization_endpoint": options.endpoint("authorize"),
                "token_endpoint": options.endpoint("token"),
                "revocation_endpoint": options.endpoint("revoke"),
                "response_types_supported": ["code"],
                "response_modes_supported": ["query"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": methods,
                "revocation_endpoint_auth_methods_supported": methods,
                "authorization_response_iss_parameter_supported": True,
                "client_id_metadata_document_supported": bool(options.client_hosts),
            }
            if options.registration:
                document["registration_endpoint"] = options.endpoint("register")
        document["scopes_supported"] = options.all_scopes
        await exchange.respond(200, to_json(document), "application/json", _ANY_PAGE)

    # --- the login -------------------------------------------------------------------------------

    async def _authorize(self, exchange: Exchange) -> None:
        """Show what a client asks for. Nothing goes to the provider before the user agrees."""
        query = self._query(exchange)
        try:
            client = await self._clients.for_login(_text(query, "client_id"))
        except RefusedClient as refused:
            raise Refused(f"The application is not accepted: {refused}.") from None
        redirect_uri = _text(query, "redirect_uri")
        if not client.allows(redirect_uri):
            raise Refused(f"redirect_uri: expected a registered one, got {shown_url(redirect_uri)[:200]}.")
        record = {"redirect_uri": redirect_uri, "state": query.get("state"), **self._request(query)}
        record |= {"client": client.id, "refreshes": client.refreshes}
        browser = self._known_browser(exchange)
        login = secrets.token_urlsafe(32)
        await self._saved(self._store.add_login(login, browser, record, agreed=False))
        page = pages.consent(
            client,
            redirect_uri,
            record["scopes"],
            action=self._options.endpoint("consent"),
            login=login,
            server=self._options.origin.partition("://")[2],
        )
        await show(exchange, 200, *page)

    def _request(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return what a client asks for. Raises `Refused` if a parameter is missing or not valid.

        A mistake is shown to the user and not sent to the client: any client can register itself, and a redirect
        before the user agrees would lead from this server to any address (RFC 9700, 4.11.2).
        """
        if query.get("response_type") != "code":
            raise Refused(f"response_type: expected code, got {query.get('response_type', 'nothing')[:50]}.")
        if query.get("response_mode", "query") != "query":
            raise Refused(f"response_mode: expected query, got {query['response_mode'][:50]}.")
        challenge, method = query.get("code_challenge", ""), query.get("code_challenge_method", "nothing")
        if method != "S256" or not CHALLENGE.fullmatch(challenge):
            got = f"{method[:50]} and {challenge!r:.60}"
            raise Refused(f"PKCE: expected the method S256 and a code_challenge of 43 characters, got {got}.")
        base, resource = self._options.base, query.get("resource", self._options.base)
        if resource not in self._options.resources:
            raise Refused(f"resource: expected {base} or {base}/mcp, got {resource[:200]}.")
        known, wanted = self._options.all_scopes, query.get("scope", "").split()
        scopes = [scope for scope in known if scope in wanted] if wanted else known
        return {"challenge": challenge, "resource": resource, "scopes": scopes}

    async def _consent(self, exchange: Exchange) -> None:
        """Read the user's choice, and send the browser to the provider or back to the client."""
        origin = exchange.header("origin")
        if origin is not None and origin.lower() != self._options.origin:
            raise Refused(f"Expected a form from a page of {self._options.origin}, got one from {origin[:100]}.")
        form = await self._form(exchange)
        record = await self._login_of(exchange, form.get("login", ""), agreed=False)
        if "client" not in record:
            raise Refused("This login was not started by an application.")
        if form.get("answer") != "allow":
            await self._return(exchange, record, {"error": "access_denied"})
            return
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        try:
            url = await self._upstream.login_url(state, nonce, verifier)
        except (CallError, ConfigError) as error:
            logger.error("cannot find the login page of the provider: %s", error)
            await self._return(exchange, record, {"error": "temporarily_unavailable"})
            return
        browser = self._browser(exchange) or ""
        kept = {**record, "nonce": nonce, "verifier": verifier}
        await self._saved(self._store.add_login(state, browser, kept, agreed=True))
        await self._redirect(exchange, url)

    async def _callback(self, exchange: Exchange) -> None:
        """Learn from the provider who logged in, and send the browser back to the client with a code."""
        query = self._query(exchange)
        state = _text(query, "state")
        if state.startswith(_OF_PAGE):
            await self._return_to_page(exchange, query, state)
            return
        record = await self._login_of(exchange, state, agreed=True)
        if "error" in query:
            logger.info("the provider refused a login: %r", query["error"][:100])
            denied = query["error"] in ("access_denied", "login_required", "consent_required")
            await self._return(exchange, record, {"error": "access_denied" if denied else "server_error"})
            return
        user, login = await self._user(query, record)
        granted = self._options.scopes_of(user)
        if granted is None:
            logger.info("a login was refused, because users in [serve.oauth] does not list the user %r", user)
            await self._return(exchange, record, {"error": "access_denied", "error_description": "unknown user"})
            return
        id = new_grant_id()
        code = new_token("ac", id)
        await self._saved(
            self._store.add_grant(
                id,
                client=record["client"],
                user=user,
                scopes=[scope for scope in record["scopes"] if scope in granted],
                resource=record["resource"],
                expires=time.time() + self._options.refresh_lifetime,
                code=code,
                record={name: record[name] for name in ("challenge", "redirect_uri", "refreshes")}
                | ({} if login is None else {"login": login}),
            )
        )
        await self._return(exchange, record, {"code": code})

    async def _user(self, query: Mapping[str, str], record: Mapping[str, Any]) -> tuple[str, str | None]:
        try:
            return await self._upstream.user(query, record["nonce"], record["verifier"])
        except (*FAILURES, ConfigError) as error:
            logger.warning("a login failed: %s", error)
            raise Refused(f"You are not logged in: {reason(error)}.") from None

    # --- logins for pages of this server ---------------------------------------------------------

    async def begin(self, exchange: Exchange, page: str) -> str:
        """Begin a login for a page of this server, and return the provider's URL to send the browser to.

        Args:
            exchange: the request. Its response sets the cookie of the browser.
            page: the path and query of the page. The browser returns there with a ``proof`` for `proven`.

        Raises:
            CallError: ``UNAVAILABLE`` if the provider does not respond.
            ConfigError: the provider's metadata have no login page.
            Problem: the login cannot be stored (503).
        """
        nonce, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        state, browser = _OF_PAGE + secrets.token_urlsafe(32), self._known_browser(exchange)
        url = await self._upstream.login_url(state, nonce, verifier)
        record = {"page": page, "nonce": nonce, "verifier": verifier}
        await self._saved(self._store.add_login(state, browser, record, agreed=False))
        return url

    async def _return_to_page(self, exchange: Exchange, query: Mapping[str, str], state: str) -> None:
        record = await self._login_of(exchange, state, agreed=False)
        user, _ = await self._user(query, record)
        if self._options.scopes_of(user) is None:
            raise Refused("This account may not log in here. Ask the operator of this server for access.")
        proof = secrets.token_urlsafe(32)
        browser = self._browser(exchange) or ""
        await self._saved(self._store.add_login(proof, browser, {"user": user}, agreed=False))
        page = record["page"]
        await self._redirect(exchange, f"{self._options.base}{page}{'&' if '?' in page else '?'}proof={proof}")

    async def proven(self, exchange: Exchange, proof: str) -> str | None:
        """Use up a proof; return its user's id, None if invalid. Raises `Problem` (503) if the store fails."""
        browser = self._browser(exchange)
        if browser is None:
            return None
        record = await self._saved(self._store.take_login(proof, browser, agreed=False))
        user: str | None = None if record is None else record.get("user")
        return user

    async def _login_of(self, exchange: Exchange, key: str, *, agreed: bool) -> dict[str, Any]:
        """Remove and return a login that this browser has begun. Raises `Refused` if there is none."""
        browser = self._browser(exchange)
        record: dict[str, Any] | None = None
        if browser is not None and key:
            record = await self._saved(self._store.take_login(key, browser, agreed=agreed))
        if record is None:
            raise Refused("This login was not started in this browser, was finished before, or took too long.")
        return record

    def _browser(self, exchange: Exchange) -> str | None:
        """Return the secret in the cookie of the browser, or None."""
        try:
            morsel = SimpleCookie(exchange.header("cookie") or "").get(self._cookie)
        except CookieError:
            return None
        return morsel.value if morsel is not None and _COOKIE.fullmatch(morsel.value) else None

    def _known_browser(self, exchange: Exchange) -> str:
        """Return the secret of the browser, the same for all its tabs, and set the cookie with it."""
        browser = self._browser(exchange) or secrets.token_urlsafe(32)
        exchange.add_header(b"set-cookie", f"{self._cookie}={browser}{self._cookie_flags}")
        return browser

    async def _return(self, exchange: Exchange, record: Mapping[str, Any], fields: Mapping[str, str]) -> None:
        """Send the browser back to the client, with the issuer (RFC 9207) and the client's own state."""
        uri = record["redirect_uri"]
        given = {**fields, "iss": self._options.base}
        if record.get("state") is not None:
            given["state"] = record["state"]
        await self._redirect(exchange, f"{uri}{'&' if '?' in uri else '?'}{urlencode(given)}")

    async def _redirect(self, exchange: Exchange, url: str) -> None:
        await exchange.respond(
            303, headers=[(b"location", url.encode("ascii")), (b"referrer-policy", b"no-referrer")]
        )

    @staticmethod
    async def _saved(change: Any) -> Any:
        """Await a change of the store. Raises `Problem` (503) if the store cannot be changed now."""
        try:
            return await change
        except (CallError, ConfigError) as error:
            logger.error("a login cannot be stored or renewed: %s", error)
            raise Problem(503, "logins cannot be kept now; try again", code=ErrorCode.UNAVAILABLE) from None

    # --- endpoints of clients --------------------------------------------------------------------

    async def _endpoint(self, exchange: Exchange, name: str) -> None:
        self._gate.allow_origin(exchange, **_CORS)
        if is_preflight(exchange):
            raise Problem(204, "", headers=[(b"allow", b"POST")])
        if exchange.method != "POST":
            raise Problem(405, f"expected POST, got {exchange.method}", headers=[(b"allow", b"POST")])
        try:
            status, document = await self._saved(self._endpoints[name](exchange))
        except (TokenError, RefusedClient) as refused:
            is_client = refused.error == "invalid_client"
            body = to_json({"error": refused.error, "error_description": str(refused)})
            challenge: list[Header] = [(b"www-authenticate", b'Basic realm="operad"')] if is_client else []
            await exchange.respond(401 if is_client else 400, body, "application/json", challenge)
            return
        await exchange.respond(status, to_json(document), "application/json")

    async def _register(self, exchange: Exchange) -> tuple[int, Any]:
        body = await exchange.body(MAX_BODY, _BODY_SECONDS, has_options=False)
        try:
            metadata = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise RefusedClient("expected a JSON object with redirect_uris, got text that is not JSON") from None
        return 201, await self._clients.register(metadata)

    async def _token(self, exchange: Exchange) -> tuple[int, Any]:
        form, client = await self._authenticated(exchange)
        return 200, await self._tokens.respond(form, client)

    async def _revoke(self, exchange: Exchange) -> tuple[int, Any]:
        form, client = await self._authenticated(exchange)
        await self._tokens.revoke(form, client)
        return 200, {}

    async def _authenticated(self, exchange: Exchange) -> tuple[dict[str, str], Client]:
        try:
            form = await self._form(exchange)
        except Refused as refused:
            detail = str(refused)  # a sentence for a page
            raise TokenError("invalid_request", detail[:1].lower() + detail[1:].removesuffix(".")) from None
        header = exchange.header("authorization")
        shown = Credentials.from_headers({} if header is None else {"authorization": header})
        return form, self._tokens.client(form, shown)

    # --- reading ---------------------------------------------------------------------------------

    async def _form(self, exchange: Exchange) -> dict[str, str]:
        kind = (exchange.header("content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise Refused(f"Expected a form of application/x-www-form-urlencoded, got {kind[:100] or 'no type'}.")
        return _fields(await exchange.body(MAX_BODY, _BODY_SECONDS, has_options=False))

    @staticmethod
    def _query(exchange: Exchange) -> dict[str, str]:
        query: bytes = exchange.scope.get("query_string", b"")
        if len(query) > MAX_QUERY:
            raise Refused(f"Expected a query of at most {MAX_QUERY} bytes, got {len(query)}.")
        return _fields(query)


def _fields(encoded: bytes) -> dict[str, str]:
    """Return the fields of a form or query. Raises `Refused` if one occurs twice (RFC 6749, 3.1)."""
    try:
        text = encoded.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)
    except ValueError:
        got = f"{n} parameters" if (n := encoded.count(b"&") + 1) > _FIELDS else "text in another encoding"
        raise Refused(f"Expected at most {_FIELDS} parameters in percent-encoded UTF-8, got {got}.") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refused(f"Expected each parameter once, got {len(pairs)} parameters with {len(found)} names.")
    return found


def _text(fields: Mapping[str, str], name: str) -> str:
    value = fields.get(name)
    if not value:
        raise Refused(f"Expected the parameter {name}, got none. Start the login again in the application.")
    return value
