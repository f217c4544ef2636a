"""Bearer tokens that an authorization server checks (RFC 7662, token introspection)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from operad.access import Identity
from operad.errors import CallError, ConfigError, ErrorCode
from operad_auth.credentials import Credentials, strings_of
from operad_auth.fetching import Fetch, default_fetch, require_secure, unavailable
from operad_auth.jwts import TokenRefused, granted, subject_of
from operad_auth.server import AuthorizationServer, ClientAuth, client_of

logger = logging.getLogger("operad.auth")

MAX_KEPT = 10_000
"""The maximum number of tokens with a kept response; the oldest are dropped first."""
MAX_REQUESTS = 64
"""The maximum number of concurrent requests to the authorization server; further ones wait."""


@attrs.frozen(kw_only=True)
class IntrospectionOptions:
    """The table ``[serve.introspection]``; see `IntrospectionAuthenticator`.

    Raises:
        ConfigError: the audience is empty, ``issuer`` and ``url`` are both missing, or one of them is not secure.
    """

    audience: str | list[str]
    """The name of this service, or several. ``aud`` of a token must contain one of them."""
    client_id: str
    """The id of the client that is registered with the authorization server for this server."""
    client_secret: str | None = attrs.field(default=None, repr=False)
    """The secret of the client."""
    private_key: str | None = attrs.field(default=None, repr=False)
    """The private key of the client, instead of a secret (RFC 7523): a JWK, a PEM, or the path of one."""
    client_auth: ClientAuth = "auto"
    """How the client authenticates: ``basic``, ``post``, ``private_key_jwt``, ``none``; ``auto``: with
    the private key if there is one, else with the secret as the server's metadata state."""
    issuer: str | None = None
    """The URL of the authorization server, whose metadata name the endpoint. ``iss`` of a token must equal it."""
    url: str | None = None
    """The introspection endpoint; default: the one in the metadata of the issuer."""
    cache_seconds: float = attrs.field(default=30.0, validator=attrs.validators.ge(0))
    """How long a response is kept, in seconds. A revoked token may stay valid for this time. 0 keeps nothing."""
    id_claim: str = "sub"
    """The field of the response that becomes the caller's id."""
    id_prefix: str = ""
    """A text that is put before the id."""
    scope_claims: list[str] = attrs.field(factory=lambda: ["scope", "scp"])
    """The fields with scopes. The scopes of all of them are combined."""
    resources_claim: str = "resources"
    """The field with grants on resources, ``{"type:id": ["action"]}``."""

    def __attrs_post_init__(self) -> None:
        if not self.audience or not all(self._audience):
            raise ConfigError(
                "introspection: audience is required, or tokens for other services are valid; name this service"
            )
        if self.issuer is None and self.url is None:
            raise ConfigError("introspection: expected an issuer or a url, got neither; set one of them")
        for name in ("issuer", "url"):
            value = getattr(self, name)
            if value is not None:
                require_secure(value, f"introspection: {name}")

    @property
    def _audience(self) -> Sequence[str]:
        return [self.audience] if isinstance(self.audience, str) else self.audience

    def authenticator(self, fetch: Fetch | None = None) -> IntrospectionAuthenticator:
        """Return the authenticator that the table describes. Raises `ConfigError` for invalid options."""
        return IntrospectionAuthenticator(self, fetch)


class IntrospectionAuthenticator:
    """An authenticator that lets an authorization server check each bearer token.

    A token is valid if the response has ``active: true``, an ``aud`` of this service, the claim for the id, and no
    proof of possession (``cnf``), which cannot be checked here. ``exp``, ``nbf``, ``token_type`` and ``iss`` are
    checked if they are present (``iss`` only if ``issuer`` is set). Responses are kept by the digest of the token,
    for ``cache_seconds`` and not beyond ``exp``. Concurrent calls with the same token share one request.

    Args:
        options: the table.
        fetch: sends requests; default: the standard library in a thread.
    """

    is_authenticator = True

    def __init__(self, options: IntrospectionOptions, fetch: Fetch | None = None) -> None:
        self._options = options
        self._server = AuthorizationServer(
            client_of(options, token_url=options.url if options.issuer is None else None), fetch or default_fetch
        )
        self._kept: OrderedDict[bytes, tuple[float, Identity | None]] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[Identity | None]] = {}
        self._places = asyncio.Semaphore(MAX_REQUESTS)

    def __repr__(self) -> str:
        return f"IntrospectionAuthenticator({self._where()!r}, audience={self._options.audience!r})"

    async def __call__(self, credentials: Credentials) -> Identity | None:
        """Return the identity of a valid bearer token, else ``None``. ``operad.auth`` logs why it is refused.

        Raises:
            CallError: ``UNAVAILABLE`` if the authorization server gives no usable response or refuses the request.
        """
        token = credentials.bearer
        if token is None:
            return None
        key = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        kept = self._kept.get(key)
        if kept is not None:
            if time.time() < kept[0]:
                return kept[1]
            del self._kept[key]
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(key, token, credentials.peer))
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)  # one caller that leaves must not end it for the others

    def _ended(self, key: bytes, task: asyncio.Task[Identity | None]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # its callers may have left

    async def _ask(self, key: bytes, token: str, peer: str | None) -> Identity | None:
        try:
            async with self._places:
                answer = await self._answer(token)
        except CallError as error:
            if error.code == ErrorCode.UNAVAILABLE:
                raise
            raise unavailable(self._where(), f"it refused the request: {error.message}") from None
        except ConfigError as error:
            raise unavailable(self._where(), str(error)) from None
        until = time.time() + self._options.cache_seconds
        identity = None
        try:
            identity, expires = self._identity(answer)
            until = until if expires is None else min(until, expires)
        except TokenRefused as refused:
            logger.info("a token from %r is refused: %s", peer, refused)
        if self._options.cache_seconds:
            self._kept[key] = until, identity
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return identity

    async def _answer(self, token: str) -> Mapping[str, Any]:
        url = await self._server.endpoint("introspection_endpoint", self._options.url)
        fields = {"token": token, "token_type_hint": "access_token"}
        response = await self._server.post(url, fields, retry=True)
        answer = response.json() if response.status == 200 else None
        if not isinstance(answer, Mapping):
            raise unavailable(url, f"expected HTTP 200 and a JSON object, got {response.summary()}")
        return answer

    def _identity(self, answer: Mapping[str, Any]) -> tuple[Identity, float | None]:
        """Return the identity of a response, and when the token expires. Raises `TokenRefused` if invalid."""
        options = self._options
        if answer.get("active") is not True:
            raise TokenRefused("it is not active")
        expires = answer.get("exp")
        if expires is not None and (isinstance(expires, bool) or not isinstance(expires, (int, float))):
            raise TokenRefused("its exp is not a number")
        if expires is not None and expires <= time.time():
            raise TokenRefused("it has expired")
        begins = answer.get("nbf")
        if isinstance(begins, (int, float)) and begins > time.time() + 30.0:
            raise TokenRefused("it is not valid yet")
        given = answer.get("aud")
        named = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        audience = [options.audience] if isinstance(options.audience, str) else options.audience
        if not any(each in audience for each in named):
            raise TokenRefused(f"its aud does not name this service, got {given!r:.100}")
        if options.issuer is not None and answer.get("iss", options.issuer) != options.issuer:
            raise TokenRefused(f"it is from another issuer, got {answer['iss']!r:.100}")
        kind = answer.get("token_type", "bearer")
        if "cnf" in answer or not isinstance(kind, str) or kind.lower() not in ("bearer", "access_token"):
            raise TokenRefused("it is not a bearer token")
        id = subject_of(answer, options.id_claim)
        scopes = [scope for claim in options.scope_claims for scope in strings_of(answer.get(claim))]
        grants = granted(answer.get(options.resources_claim))
        return Identity(options.id_prefix + id, scopes, grants), expires

    def _where(self) -> str:
        return self._options.url or self._options.issuer or ""
