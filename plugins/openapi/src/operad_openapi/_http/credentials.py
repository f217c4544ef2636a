"""Choose the configured credentials that meet a request's security requirements.

A requirement is a list of alternatives. Each alternative is a set of schemes that are needed together; ``{}``
allows anonymous requests. An empty list switches security off. Credentials are sent to the origins of the API and
to ``origins`` only.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from typing import Any

from operad import CallError, ConfigError, ErrorCode
from operad_openapi._document.document import Document, Json
from operad_openapi._document.listing import RawOperation
from operad_openapi._document.origins import origin_of
from operad_openapi._document.security import Key, key_of, scheme_of, schemes_of
from operad_openapi._http.tls import has_certificate
from operad_openapi._http.tokens import Tokens, endpoints_of, oauth_options
from operad_openapi._request.request import Applier, Credentials
from operad_openapi._request.text import check_cookie_text, check_header_value, percent_encode
from operad_openapi.config import HTTPAuth, HTTPOptions


class Authenticator:
    """The configured credentials of one source, and how they apply to its requests."""

    def __init__(self, document: Document, options: HTTPOptions, tokens: Tokens) -> None:
        self._document = document
        self._options = options
        self._tokens = tokens
        self._digests: dict[tuple[str, str], Any] = {}

    def plan(
        self, operation: RawOperation, server: str, auth: HTTPAuth | None, required: Collection[Key] = ()
    ) -> list[Applier]:
        """Return functions that apply credentials to the requests of an operation; empty if no credential fits.

        Args:
            operation: the operation.
            server: its base URL.
            auth: the general credential: ``HTTPOptions.auth`` or the caller's. If ``None``, only the option
                ``credentials`` is used.
            required: API keys that the operation also declares as required parameters.

        Raises:
            SerializationError: a credential contains a character that no header allows.
        """
        security = operation.node.get("security", self._document.root.get("security"))
        chosen = self._chosen(security, server, auth)
        chosen |= self._named(security, server, required)
        is_open = security == [] and bool(schemes_of(self._document))  # without schemes, a list is always empty
        if chosen or is_open or auth is None:
            return list(chosen.values())
        # No alternative can be met. A credential that was configured for the whole API is sent all the same.
        fallback = self._general(auth, server)
        return [] if fallback is None else [fallback]

    def keys(self, operation: RawOperation, required: Collection[Key]) -> set[Key]:
        """Return the `Key` of each API key that configured credentials add to the requests of an operation.

        ``required`` has the API keys that the operation also declares as required parameters.
        """
        security = operation.node.get("security", self._document.root.get("security"))
        names = [*self._chosen(security, "", self._options.auth), *self._named(security, "", required)]
        return {key for name in names if (key := self._key(name)) is not None}

    def _chosen(self, security: Any, server: str, auth: HTTPAuth | None) -> dict[str, Applier]:
        """Return the schemes of the first alternative that can be met, else of the one that lacks the fewest."""
        partial: dict[str, Applier] = {}
        # Anonymous comes last: with a credential, most such servers allow more.
        for alternative in sorted(security, key=lambda item: not item) if isinstance(security, list) else ():
            if not isinstance(alternative, Mapping):
                continue
            found = {name: made for name in alternative if (made := self._scheme(name, server, auth)) is not None}
            if alternative and len(found) == len(alternative):
                return found
            partial = max(partial, found, key=len)
        return partial

    def _named(self, security: Any, server: str, required: Collection[Key]) -> dict[str, Applier]:
        """Return the schemes in ``credentials`` that send an API key which is also a required parameter."""
        if not required or not isinstance(security, list):
            return {}
        names = [name for alternative in security if isinstance(alternative, Mapping) for name in alternative]
        wanted = [name for name in names if name in self._options.credentials and self._key(name) in required]
        return {name: made for name in wanted if (made := self._scheme(name, server, None)) is not None}

    def _key(self, name: str) -> Key | None:
        """Return the location and name of a scheme's API key, or ``None`` if it is not an API key."""
        scheme = scheme_of(self._document, name)
        credential = self._options.credentials.get(name) or self._options.auth
        if scheme.get("type") != "apiKey" or credential is None:
            return None
        if credential.header_name:
            return key_of("header", credential.header_name)
        return key_of(str(scheme.get("in")), str(scheme.get("name")))

    def meets(self, name: str) -> bool:
        """Return True if the configuration has a credential for the security scheme ``name``."""
        return self._scheme(name, "", self._options.auth) is not None

    def _scheme(self, name: str, server: str, auth: HTTPAuth | None) -> Applier | None:
        scheme = scheme_of(self._document, name)
        own = self._options.credentials.get(name)
        kind = scheme.get("type")
        if kind == "mutualTLS":
            return _nothing if has_certificate(self._options) else None
        credential = own or auth
        if credential is None:
            return None
        http = str(scheme.get("scheme", "")).lower()
        if kind == "apiKey":
            if own is None and credential.type != "apiKey":
                return None
            return _api_key(credential, scheme)
        if kind == "http" and http == "basic":
            return authorization(credential) if credential.type == "basic" else None
        if kind == "http" and http == "digest":
            return self._digest(credential)
        if kind in ("oauth2", "openIdConnect") or (kind == "http" and http == "bearer"):
            if credential.type == "bearer":
                return authorization(credential)
            return self._oauth2(credential, scheme, server) if credential.type == "oauth2" else None
        return self._general(own, server) if own is not None else None

    def _general(self, auth: HTTPAuth, server: str) -> Applier | None:
        if auth.type == "apiKey":
            return _api_key(auth, {"in": "header", "name": "X-API-Key"})
        if auth.type == "oauth2":
            schemes = (scheme_of(self._document, name) for name in schemes_of(self._document))
            naming = (scheme for scheme in schemes if endpoints_of(auth, scheme, server))
            return self._oauth2(auth, next(naming, {}), server)
        if auth.type == "digest":
            return self._digest(auth)
        return authorization(auth)

    def _digest(self, auth: HTTPAuth) -> Applier | None:
        """Return a function that adds a middleware for HTTP Digest (RFC 7616), which remembers the challenge."""
        if auth.type not in ("basic", "digest") or auth.username is None:
            return None
        username, password = auth.username, auth.password or ""

        async def apply(credentials: Credentials) -> None:
            from aiohttp import DigestAuthMiddleware

            key = (username, password)
            if key not in self._digests:
                self._digests[key] = DigestAuthMiddleware(username, password)
            credentials.middlewares = (self._digests[key],)

        return apply

    def _oauth2(self, auth: HTTPAuth, scheme: Json, server: str) -> Applier | None:
        declared = endpoints_of(auth, scheme, server)
        if not declared and auth.token_url is None and auth.issuer is None:
            return None
        allowed = {origin_of(server), *map(origin_of, self._options.origins)}
        try:
            options = oauth_options(auth, declared, allowed)
        except ConfigError as error:
            return _refusing(str(error))
        return self._tokens.applier(auth, options)


def _api_key(auth: HTTPAuth, scheme: Json) -> Applier | None:
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


async def _nothing(_: Credentials) -> None:
    """Add nothing: with mutual TLS, the connection itself authenticates the client."""


def _refusing(message: str) -> Applier:
    async def refuse(_: Credentials) -> None:
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})

    return refuse


def authorization(auth: HTTPAuth) -> Applier | None:
    """Return a function that puts a credential into its header; ``None`` if it has neither token nor user name.

    Raises `SerializationError` if the credential contains a character that no header allows.
    """
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
