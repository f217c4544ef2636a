"""Requests of a client to an authorization server: endpoints and client authentication (RFC 6749)."""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote, urlencode

import attrs

from operad.errors import CallError, ConfigError, ErrorCode
from operad_auth.discovery import discover
from operad_auth.fetching import Fetch, FetchResponse, require_secure
from operad_auth.grants import RETRIED, OAuthError, refusal
from operad_auth.http.urls import shown_url
from operad_auth.store import TokenKey

ClientAuth = Literal["auto", "basic", "post", "none", "private_key_jwt"]
Grant = Literal["authorization_code", "device_code", "client_credentials"]


def _words(value: str | Sequence[str] | None) -> tuple[str, ...]:
    return tuple(value.split()) if isinstance(value, str) else tuple(value or ())


@attrs.frozen(kw_only=True)
class OAuthOptions:
    """The options of an OAuth 2.0 client, as in a table of a configuration.

    Args:
        client_id: the id of the client, as registered with the authorization server.
        client_secret: the secret of the client, if it has one.
        private_key: the private key of the client, instead of a secret (RFC 7523): a JWK, a PEM, or a path.
        refresh_token: a refresh token that the application already has, so that the user need not log in.
        grant: ``authorization_code`` (RFC 6749, 4.1, with PKCE; a browser), ``device_code`` (RFC 8628; any browser
            on any machine), or ``client_credentials`` (RFC 6749, 4.4; no user).
        issuer: the URL of the authorization server. Its metadata (RFC 8414) name the endpoints that are not set.
        token_url, authorization_url, device_url, revocation_url: the URLs of the endpoints.
        scopes: the scopes to request.
        audience: the name of the service that the token is for, if the server requires it (Auth0 and others).
        resource: the URLs of the services that the token is for (RFC 8707).
        extra: further fields of authorization and token requests.
        client_auth: how the client authenticates: ``basic``, ``post``, ``private_key_jwt``, ``none``; ``auto``:
            with the private key if there is one, else with the secret as the server's metadata state.
        redirect_uri: the URI on this machine to which the browser returns; port 0 is any free port.
        account: a name for the account, if the user has several.

    Raises:
        ConfigError: a required option is missing, or a URL is not secure.
    """

    client_id: str
    client_secret: str | None = attrs.field(default=None, repr=False)
    private_key: str | None = attrs.field(default=None, repr=False)
    refresh_token: str | None = attrs.field(default=None, repr=False)
    grant: Grant = "authorization_code"
    issuer: str | None = None
    token_url: str | None = None
    authorization_url: str | None = None
    device_url: str | None = None
    revocation_url: str | None = None
    scopes: tuple[str, ...] = attrs.field(default=(), converter=_words)
    audience: str | None = None
    resource: tuple[str, ...] = attrs.field(default=(), converter=_words)
    extra: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    client_auth: ClientAuth = "auto"
    redirect_uri: str = "http://127.0.0.1:0/callback"
    account: str = ""

    def __attrs_post_init__(self) -> None:
        if self.issuer is None and self.token_url is None:
            raise ConfigError("oauth: expected an issuer or a token_url, got neither; set one of them")
        has_own = self.client_secret is not None or self.private_key is not None
        if self.grant == "client_credentials" and not has_own and self.client_auth != "none":
            raise ConfigError(
                'oauth: grant "client_credentials" requires client_secret or private_key; set one of them'
            )
        if self.client_auth == "private_key_jwt" and self.private_key is None:
            raise ConfigError('oauth: client_auth "private_key_jwt" requires private_key; set it')
        for name in ("issuer", "token_url", "authorization_url", "device_url", "revocation_url"):
            if (url := getattr(self, name)) is not None:
                require_secure(url, f"oauth: {name}")

    @property
    def key(self) -> TokenKey:
        """The key of the token in a `TokenStore`."""
        return TokenKey(self.issuer or self.token_url or "", self.client_id, self.account)


def client_of(table: Any, **more: Any) -> OAuthOptions:
    """Return the client of a table of a configuration.

    Args:
        table: the table, with ``client_id``, ``client_secret``, ``private_key``, ``client_auth`` and ``issuer``.
        more: further arguments of `OAuthOptions`.

    Raises:
        ConfigError: see `OAuthOptions`.
    """
    names = ("client_id", "client_secret", "private_key", "client_auth", "issuer")
    return OAuthOptions(**{name: getattr(table, name) for name in names}, **more)


_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ATTEMPTS = 3
_LONGEST_WAIT = 5.0

Fields = Mapping[str, str | list[str]]
_OPTIONS = {
    "device_authorization_endpoint": "device_url",
    "introspection_endpoint": "url in [serve.introspection]",
}
"""The options that set endpoints, if they have another name than the endpoint."""


class AuthorizationServer:
    """The requests of one client to one authorization server."""

    def __init__(self, options: OAuthOptions, fetch: Fetch) -> None:
        self.options = options
        self._fetch = fetch
        self._metadata: dict[str, Any] | None = None

    async def metadata(self) -> Mapping[str, Any]:
        """Return the metadata of the issuer, loaded once; an empty mapping if ``issuer`` is not set.

        Raises:
            ConfigError: the metadata cannot be used, and ``token_url`` is not set.
            CallError: ``UNAVAILABLE`` if the server does not respond.
        """
        if self._metadata is None:
            self._metadata = await self._discover()
        return self._metadata

    async def _discover(self) -> dict[str, Any]:
        if self.options.issuer is None:
            return {}
        try:
            return await discover(self.options.issuer, self._fetch)
        except ConfigError:
            if self.options.token_url is None:
                raise
            return {}  # it publishes nothing, and need not

    async def endpoint(self, name: str, configured: str | None) -> str:
        """Return the URL of an endpoint.

        Args:
            name: the name of the endpoint in the metadata (RFC 8414, 2), such as ``token_endpoint``.
            configured: the URL in the options, which takes precedence over the metadata.

        Raises:
            ConfigError: the endpoint is unknown, or its URL does not use https and is not on this machine.
            CallError: ``UNAVAILABLE`` if the server of the metadata does not respond.
        """
        url = configured or (await self.metadata()).get(name)
        if not isinstance(url, str) or not url:
            option = _OPTIONS.get(name, name.replace("_endpoint", "_url"))
            if self.options.issuer is None:
                raise ConfigError(
                    f"oauth: the {name} of the authorization server is unknown; set {option} or issuer"
                )
            where = shown_url(self.options.issuer)
            raise ConfigError(f"{where}: the metadata of the authorization server have no {name}; set {option}")
        require_secure(url, name)
        return url

    def fields(self, *, scope: bool = True) -> dict[str, str | list[str]]:
        """Return the form fields ``scope``, ``audience`` and ``resource``, if they are set, and the extra fields.

        Args:
            scope: whether to add the scopes. A code and a refresh token already have scopes (RFC 6749, 6).
        """
        fields: dict[str, str | list[str]] = dict(self.options.extra)
        if self.options.scopes and scope:
            fields["scope"] = " ".join(self.options.scopes)
        if self.options.audience:
            fields["audience"] = self.options.audience
        if self.options.resource:
            fields["resource"] = list(self.options.resource)
        return fields

    async def token(self, fields: Fields, *, retry: bool = False) -> dict[str, Any]:
        """Request a token. Return the JSON object of the token endpoint, with an ``access_token``.

        ``fields`` and ``retry`` are the arguments of `post`.

        Raises:
            OAuthError: the server refused, or its token is not a bearer token.
            CallError: ``UNAVAILABLE`` if the server does not respond.
            ConfigError: the endpoint is unknown.
        """
        url = await self.endpoint("token_endpoint", self.options.token_url)
        response = await self.post(url, fields, retry=retry)
        answer = response.json()
        if not isinstance(answer, dict):
            raise refusal(url, response.status, {})
        token = answer.get("access_token")
        # Some answer 200 with an error in it.
        if not 200 <= response.status < 300 or not isinstance(token, str) or not token:
            raise refusal(url, response.status, answer)
        kind = answer.get("token_type")
        if isinstance(kind, str) and kind.lower() not in ("bearer", ""):
            raise OAuthError(
                ErrorCode.EXECUTION_ERROR,
                f'expected a bearer token from {shown_url(url)}, got a token of type "{kind[:40]}"',
                {"error": "unsupported_token_type", "statusCode": response.status},
            )
        return answer

    async def post(self, url: str, fields: Fields, *, retry: bool = False) -> FetchResponse:
        """Send a form to an endpoint, authenticated as the client, and return the response, whatever its status.

        Args:
            url: the endpoint.
            fields: the fields of the form.
            retry: whether to send the form again, at most twice, if there is no response. After a status in
                `RETRIED` the form is always sent again.

        Raises:
            CallError: ``UNAVAILABLE`` if the server does not respond.
            ConfigError: the URL does not use https and is not on this machine, or the private key cannot be used.
        """
        require_secure(url, "endpoint of the authorization server")
        metadata = await self.metadata()
        for attempt in range(1, _ATTEMPTS + 1):
            wait = 0.2 * 2**attempt
            # For each attempt, because an assertion is valid once.
            headers, own = self._authorization(metadata, url)
            headers |= {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
            body = urlencode({**fields, **own}, doseq=True).encode()
            try:
                response = await self._fetch("POST", url, headers=headers, body=body)
            except CallError:
                if not retry or attempt == _ATTEMPTS:
                    raise
            else:
                if response.status not in RETRIED or attempt == _ATTEMPTS:
                    return response
                asked = response.headers.get("retry-after", "")
                wait = min(float(asked), _LONGEST_WAIT) if asked.isdecimal() else wait
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    # --- client authentication --------------------------------------------------------------------------------

    def _authorization(self, metadata: Mapping[str, Any], url: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the headers and form fields that authenticate the client at an endpoint (RFC 6749, 2.3.1)."""
        options = self.options
        named = {"client_id": options.client_id} if options.client_id else {}
        if options.private_key is not None and options.client_auth in ("auto", "private_key_jwt"):
            assertion = self._assertion(options.private_key, str(metadata.get("issuer") or url))
            return {}, {**named, "client_assertion_type": _ASSERTION, "client_assertion": assertion}
        if options.client_secret is None or options.client_auth == "none":
            return {}, named
        supported = metadata.get("token_endpoint_auth_methods_supported")
        listed = supported if isinstance(supported, list) else ["client_secret_basic"]
        by_post = "client_secret_basic" not in listed and "client_secret_post" in listed
        if options.client_auth == "post" or (options.client_auth == "auto" and by_post):
            return {}, {**named, "client_secret": options.client_secret}
        pair = f"{quote(options.client_id, safe='')}:{quote(options.client_secret, safe='')}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}, {}

    def _assertion(self, key: str, audience: str) -> str:
        """Return the signed assertion that replaces a secret (RFC 7523, 2.2)."""
        from operad_auth.delegation import signing_key
        from operad_auth.keys import pyjwt

        try:
            jwk, now, client = signing_key(key), int(time.time()), self.options.client_id
        except ConfigError as error:
            raise ConfigError(f"private_key: {error}") from None
        claims = {"iss": client, "sub": client, "aud": audience, "iat": now, "exp": now + 60}
        headers = {"kid": jwk.key_id} if jwk.key_id else None
        signed: str = pyjwt().encode(
            {**claims, "jti": uuid.uuid4().hex}, jwk.key, jwk.algorithm_name, headers=headers
        )
        return signed
