"""Which credentials a request carries: security requirements of the document met with the configured ones.

A requirement is a list of alternatives, each a set of schemes that are needed together; ``{}`` is anonymous, an
empty list switches security off. Credentials are bound to origins: the caller applies nothing to other ones.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urljoin, urlsplit

import attrs

from operad.errors import CallError, ErrorCode
from operad_openapi._document import Document, Json, PointerError
from operad_openapi._normalize import RawOperation
from operad_openapi._serialize import check_cookie_text, check_header_value, percent_encode
from operad_openapi._urls import is_private_host, origin_of
from operad_openapi.config import HTTPAuth, HTTPOptions


@attrs.define
class Credentials:
    """What authentication adds to a request."""

    headers: dict[str, str] = attrs.field(factory=dict, repr=False)
    query: list[str] = attrs.field(factory=list, repr=False)
    """``name=value``, encoded."""
    cookies: list[str] = attrs.field(factory=list, repr=False)
    refresh: Callable[[], None] | None = None
    """Forgets a fetched token: the server refused it."""


Applier = Callable[[Credentials], Awaitable[None]]
TokenFetch = Callable[[str, HTTPAuth], Awaitable[Json]]


def scheme_of(document: Document, name: str) -> Json:
    """The security scheme ``name``, Swagger 2.0's in the words of 3.x; ``{}`` if it is missing."""
    if document.version == "2.0":
        schemes = document.root.get("securityDefinitions")
    else:
        components = document.root.get("components")
        schemes = components.get("securitySchemes") if isinstance(components, dict) else None
    try:
        scheme = document.resolve(schemes.get(name)) if isinstance(schemes, dict) else None
    except PointerError:
        return {}
    if not isinstance(scheme, dict):
        return {}
    if scheme.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    if scheme.get("type") == "oauth2" and "flow" in scheme:
        flow = {"application": "clientCredentials", "accessCode": "authorizationCode"}.get(
            str(scheme["flow"]), str(scheme["flow"])
        )
        urls = {key: scheme[key] for key in ("tokenUrl", "authorizationUrl", "scopes") if key in scheme}
        return {"type": "oauth2", "flows": {flow: urls}}
    return scheme


def key_parameters(document: Document, operation: RawOperation) -> set[tuple[str, str]]:
    """``(place, name)`` of the API keys that the operation's security asks for; headers in lower case."""
    security = operation.node.get("security", document.root.get("security"))
    found = set()
    for alternative in security if isinstance(security, list) else ():
        for name in alternative if isinstance(alternative, Mapping) else ():
            scheme = scheme_of(document, name)
            if scheme.get("type") == "apiKey":
                place, key = str(scheme.get("in")), str(scheme.get("name"))
                found.add((place, key.lower() if place == "header" else key))
    return found


class Authenticator:
    """Applies the configured credentials to the requests of one source."""

    def __init__(self, document: Document, options: HTTPOptions, fetch_token: TokenFetch) -> None:
        self._document = document
        self._options = options
        self._fetch_token = fetch_token
        self._tokens: dict[tuple[str, str, str], _Token] = {}

    def plan(self, operation: RawOperation, server: str, auth: HTTPAuth | None) -> list[Applier]:
        """What to apply to requests of ``operation`` to ``server``: the first alternative that can be met.

        Args:
            operation: the operation.
            server: its base URL.
            auth: the general credential, ``HTTPOptions.auth`` or the caller's own.
        """
        security = operation.node.get("security", self._document.root.get("security"))
        if security == []:
            return []
        if isinstance(security, list):
            # Anonymous is the last resort of who has a credential: most such servers answer more to it.
            for alternative in sorted(security, key=lambda item: not item):
                if not isinstance(alternative, Mapping):
                    continue
                appliers = [self._scheme(name, server, auth) for name in alternative]
                found = [applier for applier in appliers if applier is not None]
                if alternative and len(found) == len(appliers):
                    return found
        # No alternative can be met. A credential that was configured for the whole API is sent all the same.
        fallback = self._general(auth, server) if auth is not None else None
        return [] if fallback is None else [fallback]

    def _scheme(self, name: str, server: str, auth: HTTPAuth | None) -> Applier | None:
        scheme = scheme_of(self._document, name)
        own = self._options.credentials.get(name)
        kind = scheme.get("type")
        if kind == "mutualTLS":
            return _nothing if self._options.ssl is not None else None
        credential = own or auth
        if credential is None:
            return None
        http = str(scheme.get("scheme", "")).lower()
        if kind == "apiKey":
            if own is None and credential.type != "apiKey":
                return None
            return self._api_key(credential, scheme)
        if kind == "http" and http == "basic":
            return authorization(credential) if credential.type == "basic" else None
        if kind in ("oauth2", "openIdConnect") or (kind == "http" and http == "bearer"):
            if credential.type == "bearer":
                return authorization(credential)
            return self._oauth2(credential, scheme, server) if credential.type == "oauth2" else None
        return authorization(own) if own is not None else None

    def _general(self, auth: HTTPAuth, server: str) -> Applier | None:
        if auth.type == "apiKey":
            return self._api_key(auth, {"in": "header", "name": "X-API-Key"})
        if auth.type == "oauth2":
            return self._oauth2(auth, {}, server)
        return authorization(auth)

    def _api_key(self, auth: HTTPAuth, scheme: Json) -> Applier | None:
        token = auth.token
        if token is None:
            return None
        value = f"{auth.prefix} {token}" if auth.prefix else token
        place, name = scheme.get("in", "header"), str(scheme.get("name", "X-API-Key"))
        if auth.header_name:
            place, name = "header", auth.header_name

        async def apply(credentials: Credentials) -> None:
            if place == "query":
                credentials.query.append(f"{percent_encode(name)}={percent_encode(value)}")
            elif place == "cookie":
                credentials.cookies.append(f"{check_cookie_text(name)}={check_cookie_text(value)}")
            else:
                credentials.headers[name] = check_header_value(value)

        return apply

    def _oauth2(self, auth: HTTPAuth, scheme: Json, server: str) -> Applier | None:
        flows = scheme.get("flows")
        flow = flows.get("clientCredentials") if isinstance(flows, dict) else None
        declared = flow.get("tokenUrl") if isinstance(flow, dict) else None
        url = auth.token_url
        if url is None:
            if not isinstance(declared, str):
                return None
            url = urljoin(server, declared)
            # A document could name a token URL of its author's: the secret goes there only if we know it.
            allowed = {origin_of(server), *map(origin_of, self._options.origins)}
            if origin_of(url) not in allowed:
                refused = (
                    f"the document's token URL {origin_of(url)} is not of the API's own origin; "
                    "set token_url, or add the origin to origins"
                )
                return _refusing(refused)
            if urlsplit(url).scheme != "https" and not is_private_host(urlsplit(url).hostname):
                return _refusing(
                    f"the document's token URL {origin_of(url)} is not https; set token_url to use it"
                )
        key = (url, auth.client_id or "", " ".join(auth.scopes))
        token = self._tokens.setdefault(key, _Token(url, auth, self._fetch_token))

        async def apply(credentials: Credentials) -> None:
            name = auth.header_name or "Authorization"
            credentials.headers[name] = f"{auth.prefix or 'Bearer'} {await token.get()}"
            credentials.refresh = token.forget

        return apply


async def _nothing(_: Credentials) -> None:
    """Mutual TLS: the connection authenticates."""


def _refusing(message: str) -> Applier:
    async def refuse(_: Credentials) -> None:
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})

    return refuse


def authorization(auth: HTTPAuth) -> Applier | None:
    """Puts a bearer or basic credential into its header; ``None`` if the credential is incomplete."""
    prefix = auth.prefix
    if auth.type == "basic":
        prefix = prefix or "Basic"
        token = auth.token
        if token is None and auth.username is not None:
            pair = f"{auth.username}:{auth.password or ''}"
            token = base64.b64encode(pair.encode()).decode("ascii")
        elif token is not None and ":" in token:
            token = base64.b64encode(token.encode()).decode("ascii")
    else:
        prefix, token = ("Bearer" if prefix is None else prefix), auth.token
    if token is None:
        return None
    value = check_header_value(f"{prefix} {token}" if prefix else token)
    name = auth.header_name or "Authorization"

    async def apply(credentials: Credentials) -> None:
        credentials.headers[name] = value

    return apply


class _Token:
    """An access token, fetched when it is needed and shared by all calls."""

    def __init__(self, url: str, auth: HTTPAuth, fetch: TokenFetch) -> None:
        self._url = url
        self._auth = auth
        self._fetch = fetch
        self._value: str | None = None
        self._expires = 0.0  # of the monotonic clock
        self._lock: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def forget(self) -> None:
        self._value = None

    async def get(self) -> str:
        if self._value is not None and time.monotonic() < self._expires:
            return self._value
        loop = asyncio.get_running_loop()
        if self._lock is None or self._loop is not loop:
            self._lock, self._loop = asyncio.Lock(), loop
        async with self._lock:
            if self._value is None or time.monotonic() >= self._expires:
                answer = await self._fetch(self._url, self._auth)
                value = answer.get("access_token")
                if not isinstance(value, str):
                    raise CallError(
                        ErrorCode.EXECUTION_ERROR,
                        f"the token endpoint {origin_of(self._url)} gave no access_token",
                    )
                lifetime = answer.get("expires_in")
                seconds = float(lifetime) if isinstance(lifetime, (int, float)) else 300.0
                # Half a minute early, so that a token does not expire on its way.
                self._expires = time.monotonic() + max(1.0, seconds - 30)
                self._value = check_header_value(value)
            return self._value
