"""OAuth 2.0 for credentials, with clients of `operad.auth`; a document may name the endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from operad import CallError, ConfigError, ErrorCode
from operad_openapi._document.origins import is_private_host, origin_of
from operad_openapi._http.reading import read_body
from operad_openapi._request.request import Applier, Credentials, EncodedBody, Request
from operad_openapi._request.text import check_header_value
from operad_openapi.config import HTTPAuth

if TYPE_CHECKING:
    from operad_auth import FetchResponse, OAuthClient, OAuthOptions
    from operad_openapi._http.client import HTTPClient

_FLOWS = {
    "client_credentials": "clientCredentials",
    "authorization_code": "authorizationCode",
    "device_code": "deviceAuthorization",
}
_ENDPOINTS = {
    "token_url": "tokenUrl",
    "authorization_url": "authorizationUrl",
    "device_url": "deviceAuthorizationUrl",
}
_DISCOVERY = "/.well-known/openid-configuration"
_MAX_BODY = 1 << 20
_MAX_CLIENTS = 1_000


def grant_of(auth: HTTPAuth) -> str:
    """Return the OAuth grant of a credential: ``grant``, or its default as `HTTPAuth` describes it."""
    if auth.grant is not None:
        return auth.grant
    is_alone = auth.refresh_token is None and (auth.client_secret or auth.private_key) is not None
    return "client_credentials" if is_alone else "authorization_code"


def endpoints_of(auth: HTTPAuth, scheme: Mapping[str, object], server: str) -> dict[str, str]:
    """Return the absolute URLs in a security scheme, keyed by the option that each replaces.

    The keys are ``issuer`` for OpenID Connect, else ``token_url``, ``authorization_url`` and ``device_url``, if
    the scheme has these for the grant of ``auth``. ``server`` is the base of relative URLs.
    """
    if scheme.get("type") == "openIdConnect" and isinstance(url := scheme.get("openIdConnectUrl"), str):
        return {name: found.removesuffix(_DISCOVERY) for name, found in _absolute(server, {"issuer": url})}
    flows = scheme.get("flows")
    flow = flows.get(_FLOWS[grant_of(auth)]) if isinstance(flows, Mapping) else None
    if not isinstance(flow, Mapping):
        return {}
    return dict(_absolute(server, {name: flow.get(key) for name, key in _ENDPOINTS.items()}))


def _absolute(server: str, urls: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the names and the absolute forms of the valid URLs in ``urls``."""
    for name, url in urls.items():
        if isinstance(url, str):
            with suppress(ValueError):
                urlsplit(url)  # which urljoin does not do where there is nothing to join
                yield name, urljoin(server, url)


def oauth_options(auth: HTTPAuth, declared: Mapping[str, str], origins: Collection[str]) -> OAuthOptions:
    """Return the OAuth options of a credential.

    Args:
        auth: the credential; its fields take precedence over the document.
        declared: the endpoints that the document names (`endpoints_of`). Each must be at one of ``origins``,
            because secrets are sent there and the document's author could name any server.
        origins: the API's own origins, and the configured ones.

    Raises:
        ConfigError: no token endpoint and no issuer is known, or an endpoint that the document names is not at one
            of ``origins``, or is not https.
    """
    from operad_auth import OAuthOptions

    urls = {name: getattr(auth, name) for name in (*_ENDPOINTS, "issuer")}
    if urls["token_url"] is None and urls["issuer"] is None:
        if not declared.keys() & {"token_url", "issuer"}:
            raise ConfigError(
                f"auth: oauth2 needs token_url or issuer, because the document has no URL for {grant_of(auth)}"
            )
        for name, url in declared.items():
            if origin_of(url) not in origins:
                raise ConfigError(
                    f"the document's {name} is at {origin_of(url)}, which is not an origin of the API; "
                    "set token_url, or add the origin to origins"
                )
            if urlsplit(url).scheme != "https" and not is_private_host(urlsplit(url).hostname):
                raise ConfigError(
                    f"the document's {name} at {origin_of(url)} is not https; set token_url to use it"
                )
            urls[name] = urls[name] or url
    return OAuthOptions(
        client_id=auth.client_id or "",
        client_secret=auth.client_secret,
        private_key=auth.private_key,
        refresh_token=auth.refresh_token,
        grant=grant_of(auth),  # type: ignore[arg-type]  # one of its literals: HTTPAuth's are the same
        scopes=tuple(auth.scopes),
        audience=auth.audience,
        resource=tuple(auth.resource),
        extra=auth.extra,
        client_auth=auth.client_auth,
        redirect_uri=auth.redirect_uri,
        account=auth.account,
        revocation_url=auth.revocation_url,
        **urls,
    )


class Tokens:
    """The OAuth clients of one source: one for each credential, shared by all calls.

    Args:
        client: returns the HTTP client of the source, which sends the token requests.
        name: the name of the source, for ``operad login``.
    """

    def __init__(self, client: Callable[[], HTTPClient], name: str) -> None:
        self._client = client
        self._name = name
        self._clients: dict[tuple[object, ...], OAuthClient] = {}

    def applier(self, auth: HTTPAuth, options: OAuthOptions) -> Applier:
        """Return a function that gets an access token and adds it to the headers of the credentials."""
        client = self._of(options)

        async def apply(credentials: Credentials) -> None:
            token = await client.token()
            value = check_header_value(token.access_token)
            kind = "Bearer" if token.token_type.lower() == "bearer" else token.token_type
            credentials.headers[auth.header_name or "Authorization"] = f"{auth.prefix or kind} {value}"
            credentials.refresh = partial(client.refused, token.access_token)

        return apply

    def _of(self, options: OAuthOptions) -> OAuthClient:
        from operad_auth import OAuthClient

        key = (
            options.key,
            options.client_secret,
            options.private_key,
            options.refresh_token,
            options.scopes,
            options.grant,
            options.audience,
            options.resource,
        )
        if key not in self._clients:
            if len(self._clients) >= _MAX_CLIENTS:
                del self._clients[next(iter(self._clients))]
            self._clients[key] = OAuthClient(options, fetch=self._fetch, name=self._name)
        return self._clients[key]

    async def _fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: float = 10.0,
    ) -> FetchResponse:
        """Send a request with the source's own HTTP client; see `operad.auth.Fetch`."""
        from multidict import CIMultiDict

        from operad_auth import FetchResponse

        sent: CIMultiDict[str] = CIMultiDict(headers or {})
        content = None if body is None else EncodedBody(sent.pop("Content-Type", "text/plain"), body)
        where = f"{method} {origin_of(url)}"
        try:
            async with asyncio.timeout(timeout):
                response = await self._client().send(Request(method, url, sent, [], content, may_redirect=False))
                try:
                    read = await read_body(response, _MAX_BODY, "for authorization servers")
                finally:
                    response.release()
        except TimeoutError as error:
            raise CallError(ErrorCode.UNAVAILABLE, f"{where} did not respond within {timeout} s") from error
        except CallError as error:
            raise CallError(ErrorCode.UNAVAILABLE, error.message, error.details) from error
        return FetchResponse(response.status, {k.lower(): v for k, v in response.headers.items()}, read)
