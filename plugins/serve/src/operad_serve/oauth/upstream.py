"""The provider at which users log in, by OpenID Connect or by plain OAuth 2.0 with a URL that describes the user.

The provider's tokens are never passed on. The access token is used once, to learn who logged in. A refresh token
is stored, encrypted, if there is a key, and used to check whether the login is still valid.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from operad import CallError
from operad_auth import Fetch, OAuthError, TokenStore, default_fetch
from operad_auth.fetching import require_secure
from operad_auth.http.urls import shown_url
from operad_auth.jwts import ALGORITHMS, Checks, TokenRefused, verified_claims
from operad_auth.keys import KeySet
from operad_auth.server import AuthorizationServer, client_of
from operad_auth.store import KEY_VARIABLE
from operad_serve.oauth.options import OAuthServerOptions

_CHECKS = Checks(ALGORITHMS, (None, "jwt"), ("exp", "iat", "iss", "aud", "sub"), leeway=30.0)


class LoginFailed(Exception):
    """The error for a login that the provider did not prove. Its message is for the user and quotes no secret."""


def challenge_of(verifier: str) -> str:
    """Return the S256 challenge of a PKCE verifier (RFC 7636, 4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


class Upstream:
    """The provider that a table ``[serve.oauth]`` configures.

    Args:
        options: the table.
        fetch: sends requests; default: the standard library in a thread.

    Raises:
        ConfigError: an option or ``OPERAD_TOKEN_KEY`` is not valid, or PyJWT is not installed.
    """

    def __init__(self, options: OAuthServerOptions, fetch: Fetch = default_fetch) -> None:
        self._options = options
        self._fetch = fetch
        self._callback = options.endpoint("callback")
        self._server = AuthorizationServer(
            client_of(options, token_url=options.token_url, authorization_url=options.authorization_url), fetch
        )
        self._cipher = TokenStore(keyring=False).cipher()
        self._keys = None if options.issuer is None else KeySet(None, issuer=options.issuer, fetch=fetch)

    async def login_url(self, state: str, nonce: str, verifier: str) -> str:
        """Return the URL at which the user logs in.

        Raises:
            ConfigError: the provider's metadata have no login page.
            CallError: ``UNAVAILABLE`` if the provider does not respond.
        """
        url = await self._server.endpoint("authorization_endpoint", self._options.authorization_url)
        fields = {
            **self._options.extra,
            "response_type": "code",
            "client_id": self._options.client_id,
            "redirect_uri": self._callback,
            "scope": " ".join(self._options.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
        }
        return f"{url}{'&' if '?' in url else '?'}{urlencode(fields)}"

    async def user(self, query: Mapping[str, str], nonce: str, verifier: str) -> tuple[str, str | None]:
        """Return the identity's id of the user who logged in, and the login for `renew`.

        The login is None if the provider sent no refresh token, or ``OPERAD_TOKEN_KEY`` is not set.

        Args:
            query: the query of the provider's redirect.
            nonce: the nonce of the login.
            verifier: the PKCE verifier of the login.

        Raises:
            LoginFailed: the response is not from the provider or not for this login, or the user lacks a claim.
            CallError: the provider refused the code, or does not respond.
            ConfigError: an endpoint of the provider is unknown, or its URL is not secure.
        """
        await self._check_issuer(query.get("iss"))
        if "code" not in query:
            got = f"the error {query['error']!r:.100}" if "error" in query else "neither a code nor an error"
            raise LoginFailed(f"expected a code from the provider, got {got}")
        fields = {"grant_type": "authorization_code", "code": query["code"]}
        answer = await self._server.token({**fields, "redirect_uri": self._callback, "code_verifier": verifier})
        return self._id_of(await self._claims(answer, nonce)), self._sealed(answer)

    def _sealed(self, answer: Mapping[str, Any]) -> str | None:
        """Return the encrypted refresh token of a response; None if it has none, or no key is set."""
        token = answer.get("refresh_token")
        if self._cipher is None or not isinstance(token, str):
            return None
        sealed: bytes = self._cipher.encrypt(token.encode())
        return sealed.decode()

    async def renew(self, login: str) -> str:
        """Renew a login at the provider, and return the login for the next renewal.

        Raises:
            LoginFailed: the provider has ended the login, or the key cannot decrypt it.
            CallError: the provider refused the request for another reason, or does not respond.
        """
        if self._cipher is None:
            raise LoginFailed(f"environment variable {KEY_VARIABLE} is no longer set")
        from cryptography.fernet import InvalidToken

        try:
            token = self._cipher.decrypt(login.encode()).decode()
        except InvalidToken:
            raise LoginFailed(f"environment variable {KEY_VARIABLE} has changed since this login") from None
        try:
            answer = await self._server.token({"grant_type": "refresh_token", "refresh_token": token})
        except OAuthError as error:
            if error.error != "invalid_grant":
                raise
            raise LoginFailed("the provider has ended the login") from None
        return self._sealed(answer) or login

    async def _check_issuer(self, issuer: str | None) -> None:
        """Raise `LoginFailed` if a response came from another provider (RFC 9207)."""
        if self._options.issuer is None:
            return
        metadata = await self._server.metadata()
        is_required = metadata.get("authorization_response_iss_parameter_supported") is True
        if issuer != self._options.issuer and (issuer is not None or is_required):
            got = "no iss" if issuer is None else f"iss {shown_url(issuer):.200}"
            raise LoginFailed(f"expected iss {self._options.issuer} in the response of the provider, got {got}")

    async def _claims(self, answer: Mapping[str, Any], nonce: str) -> Mapping[str, Any]:
        """Return the user's claims, from the ID token and, if one is missing, from the provider's description."""
        claims: Mapping[str, Any] = {}
        if self._keys is not None:
            claims = await self._id_token(answer.get("id_token"), nonce)
        needed = {self._options.id_claim, *self._options.claims}
        if self._options.id_claim == "email":
            needed.add("email_verified")
        if needed <= claims.keys():
            return claims
        url = self._options.userinfo_url or (await self._server.metadata()).get("userinfo_endpoint")
        if not isinstance(url, str):
            return claims
        require_secure(url, "userinfo_endpoint")
        headers = {"Authorization": f"Bearer {answer['access_token']}", "Accept": "application/json"}
        response = await self._fetch("GET", url, headers=headers)
        described = response.json() if response.status == 200 else None
        if not isinstance(described, Mapping):
            fix = "correct userinfo_url in [serve.oauth]" if self._options.userinfo_url else "set userinfo_url"
            raise LoginFailed(
                f"{shown_url(url)}: expected HTTP 200 and a JSON object that describes the user, got "
                f"{response.summary()}; {fix}"
            )
        if claims and described.get("sub") != claims["sub"]:  # OpenID Connect Core, 5.3.2
            raise LoginFailed("the provider's description and its ID token have different subjects (sub)")
        return {**described, **claims}

    async def _id_token(self, token: Any, nonce: str) -> Mapping[str, Any]:
        """Return the claims of a checked ID token (OpenID Connect Core, 3.1.3.7), or raise `LoginFailed`."""
        options = self._options
        if not isinstance(token, str) or options.issuer is None or self._keys is None:
            fix = "set authorization_url, token_url and userinfo_url instead of issuer"
            if "openid" not in options.scopes:
                fix = "add openid to scopes"
            raise LoginFailed(f"the provider sent no ID token; {fix} in [serve.oauth]")
        try:
            claims = await verified_claims(token, self._keys, options.issuer, [options.client_id], _CHECKS)
        except TokenRefused as refused:
            raise LoginFailed(f"the ID token is refused: {refused}") from None
        given = claims.get("nonce")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
            raise LoginFailed("the ID token belongs to another login")
        if claims.get("azp", options.client_id) != options.client_id:
            got = f"expected azp {options.client_id}, got {claims['azp']!r:.100}"
            raise LoginFailed(f"the ID token is for another client: {got}")
        return claims

    def _id_of(self, claims: Mapping[str, Any]) -> str:
        """Return the id in the claims of a user. Raises `LoginFailed` if a claim is missing or wrong."""
        name = self._options.id_claim
        value = claims.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value or len(value) > 255 or not value.isprintable():
            expected = f"expected 1 to 255 printable characters, got {value!r:.100}"
            raise LoginFailed(
                f'the provider sent no claim "{name}" that can be an id: {expected}; correct id_claim'
            )
        if name == "email" and claims.get("email_verified") is not True:
            raise LoginFailed("the provider has not verified the email address; verify it there")
        for key, expected in self._options.claims.items():
            found = claims.get(key)
            if not (expected in found if isinstance(found, list) else _is_equal(found, expected)):
                raise LoginFailed(
                    f'the claim "{key}" does not have the required value; log in with another account'
                )
        return self._options.id_prefix + value


def _is_equal(found: Any, expected: Any) -> bool:
    return type(found) is type(expected) and bool(found == expected)


def reason(error: Exception) -> str:
    """Return the message for the user about a failure. The details are in the log."""
    return str(error) if isinstance(error, LoginFailed) else "the provider cannot be reached, or refused the login"


FAILURES = (LoginFailed, CallError)
"""The exceptions of `Upstream.user` that are not mistakes in the configuration."""
