"""OAuth 2.0 for credentials: clients of `operad.auth`, with endpoints that a document may name."""

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
    """Return how the credential gets its tokens."""
    if auth.grant is not None:
        return auth.grant
    is_alone = auth.refresh_token is None and (auth.client_secret or auth.private_key) is not None
    return "client_credentials" if is_alone else "authorization_code"


def endpoints_of(auth: HTTPAuth, scheme: Mapping[str, object], server: str) -> dict[str, str]:
    """Return the absolute URLs of the endpoints, or of the ``issuer``, that a security scheme names."""
    if scheme.get("type") == "openIdConnect" and isinstance(url := scheme.get("openIdConnectUrl"), str):
        return {name: found.removesuffix(_DISCOVERY) for name, found in _absolute(server, {"issuer": url})}
    flows = scheme.get("flows")
    flow = flows.get(_FLOWS[grant_of(auth)]) if isinstance(flows, Mapping) else None
    if not isinstance(flow, Mapping):
        return {}
    return dict(_absolute(server, {name: flow.get(key) for name, key in _ENDPOINTS.items()}))


def _absolute(server: str, urls: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Those of the document's URLs that are some, absolute."""
    for name, url in urls.items():
        if isinstance(url, str):
            with suppress(ValueError):
                urlsplit(url)  # which urljoin does not do where there is nothing to join
                yield name, urljoin(server, url)


def oauth_options(auth: HTTPAuth, declared: Mapping[str, str], origins: Collection[str]) -> OAuthOptions:
    """Return the OAuth options of a credential.

    Args:
        auth: the credential; its fields take precedence over the document.
        declared: the endpoints that the document names (`endpoints_of`). Secrets are sent only to those in
            ``origins``, because the document's author could name any server.
        origins: the API's own, and the configured ones.

    Raises:
        ConfigError: the endpoint is missing, or the document's has another origin or is not https.
    """
    from operad_auth import OAuthOptions

    urls = {name: getattr(auth, name) for name in (*_ENDPOINTS, "issuer")}
    if urls["token_url"] is None and urls["issuer"] is None:
        if not declared.keys() & {"token_url", "issuer"}:
            raise ConfigError(
                f"auth: oauth2 with the grant {grant_of(auth)} needs token_url or issuer: the document names none"
            )
        for name, url in declared.items():
            if origin_of(url) not in origins:
                raise ConfigError(
                    f"the document's token URL {origin_of(url)} is at another origin than the API; "
                    "set token_url, or add the origin to origins"
                )
            if urlsplit(url).scheme != "https" and not is_private_host(urlsplit(url).hostname):
                raise ConfigError(
                    f"the document's token URL {origin_of(url)} is not https; set token_url to use it"
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
        client: sends their requests, with the proxy and the TLS of the source.
        name: the name of the source, for ``operad login``.
    """

    def __init__(self, client: Callable[[], HTTPClient], name: str) -> None:
        self._client = client
        self._name = name
        self._clients: dict[tuple[object, ...], OAuthClient] = {}

    def applier(self, auth: HTTPAuth, options: OAuthOptions) -> Applier:
        """Return a function that puts an access token into a request's header."""
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
        """Return a `operad.auth.Fetch` by the source's own client."""
        from multidict import CIMultiDict

        from operad_auth import FetchResponse

        sent: CIMultiDict[str] = CIMultiDict(headers or {})
        content = None if body is None else EncodedBody(sent.pop("Content-Type", "text/plain"), body)
        where = f"{method} {origin_of(url)}"
        try:
            async with asyncio.timeout(timeout):
                response = await self._client().send(Request(method, url, sent, [], content, may_redirect=False))
                try:
                    read = await read_body(response, _MAX_BODY, "the answer of an authorization server")
                finally:
                    response.release()
        except TimeoutError as error:
            raise CallError(ErrorCode.UNAVAILABLE, f"{where} did not respond within {timeout} s") from error
        except CallError as error:
            raise CallError(ErrorCode.UNAVAILABLE, error.message, error.details) from error
        return FetchResponse(response.status, {k.lower(): v for k, v in response.headers.items()}, read)
