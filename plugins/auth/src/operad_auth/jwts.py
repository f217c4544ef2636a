"""Bearer tokens that are JSON Web Tokens (RFC 7519, 8725, 9068)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from operad.access import Identity
from operad.errors import ConfigError
from operad.sources import from_folder
from operad_auth.credentials import Credentials, strings_of
from operad_auth.fetching import Fetch
from operad_auth.keys import KeySet, KeySource, pyjwt

if TYPE_CHECKING:
    from jwt import PyJWK

logger = logging.getLogger("operad.auth")

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The algorithms that are accepted by default: signatures with public keys."""
_TYPES = (None, "jwt", "at+jwt", "application/jwt", "application/at+jwt")
_KNOWN_ALGORITHMS = (*ALGORITHMS, "HS256", "HS384", "HS512")


@attrs.frozen
class Checks:
    """The requirements that a token must meet, apart from its issuer and audience."""

    algorithms: tuple[str, ...]
    types: tuple[str | None, ...]
    """The accepted values of ``typ``, in lower case. If they include ``None``, a token may omit ``typ``."""
    required: tuple[str, ...]
    """The claims that a token must have."""
    leeway: float
    """The accepted difference between clocks, in seconds."""


class TokenRefused(Exception):
    """Raised if a token is invalid. The message states why and never quotes the token."""


@attrs.frozen(kw_only=True)
class JWTOptions:
    """The table ``[serve.jwt]``; see `JWTAuthenticator`."""

    issuer: str
    """The required issuer of a token (``iss``)."""
    audience: str | list[str]
    """The name of this service, or several. ``aud`` of a token must contain one of them."""
    jwks: str | None = None
    """The URL or file of the issuer's keys; default: ``jwks_uri`` in the issuer's metadata."""
    algorithms: list[str] | None = None
    """The accepted signature algorithms; default: those with public keys, such as ``RS256``."""
    leeway: float = 30.0
    """The accepted difference between clocks, in seconds."""
    id_claim: str = "sub"
    """The claim that becomes the caller's id."""
    id_prefix: str = ""
    """A text that is put before the id."""
    scope_claims: list[str] = attrs.field(factory=lambda: ["scope", "scp"])
    """The claims with scopes. The scopes of all of them are combined."""
    resources_claim: str = "resources"
    """The claim with grants on resources, ``{"type:id": ["action"]}``."""

    def authenticator(self, base_dir: Path | None = None, fetch: Fetch | None = None) -> JWTAuthenticator:
        """Return the authenticator that the table describes.

        Args:
            base_dir: the folder from which a relative path of ``jwks`` starts; default: the current folder.
            fetch: sends requests for keys; default: the standard library in a thread.

        Raises:
            ConfigError: see `JWTAuthenticator`.
        """
        options = attrs.asdict(self)
        jwks: KeySource | None = options.pop("jwks")
        if isinstance(jwks, str) and "://" not in jwks:
            jwks = from_folder(base_dir or Path(), jwks)
        return JWTAuthenticator(options.pop("issuer"), options.pop("audience"), jwks, fetch=fetch, **options)


class JWTAuthenticator:
    """An authenticator of access tokens that an authorization server signed. Requires ``operad-auth[jwt]``.

    A token is valid if it is signed with a key of the issuer and an accepted algorithm, and if ``iss``, ``aud``,
    ``exp`` (and ``nbf`` and ``iat``, if present) are valid. The identity's id comes from ``id_claim``, its scopes
    from ``scope_claims`` (a string of words, or a list), its grants from ``resources_claim``.

    Args:
        issuer: the required ``iss``, compared exactly.
        audience: the name of this service, or several. ``aud`` must contain one of them, because the issuer gives
            out tokens for other services, too.
        jwks: the issuer's keys: a URL, a path or a JWKS; if ``None``, ``jwks_uri`` in its metadata (RFC 8414).
        algorithms: the accepted signature algorithms; default: those with public keys, such as ``RS256``.
        leeway: the accepted difference between clocks, in seconds.
        id_claim: the claim that is the identity's id, a string.
        id_prefix: a text before the id, if several issuers use the same ids for different users.
        scope_claims: the claims with scopes. The scopes of all of them are combined.
        resources_claim: the claim with grants, ``{"type:id": ["action"]}``.
        fetch: sends requests; default: the standard library in a thread.
        max_age: seconds after which keys are loaded again.
        cooldown: the minimum time between two attempts to load keys, in seconds.

    Raises:
        ConfigError: the issuer or audience is missing, an algorithm is unknown, a URL is not secure, the keys are
            malformed, or PyJWT is not installed.
    """

    is_authenticator = True

    def __init__(
        self,
        issuer: str,
        audience: str | Sequence[str],
        jwks: KeySource | None = None,
        *,
        algorithms: Sequence[str] | None = None,
        leeway: float = 30.0,
        id_claim: str = "sub",
        id_prefix: str = "",
        scope_claims: Sequence[str] = ("scope", "scp"),
        resources_claim: str = "resources",
        fetch: Fetch | None = None,
        max_age: float = 600.0,
        cooldown: float = 10.0,
    ) -> None:
        self._issuer = issuer
        self._audience = [audience] if isinstance(audience, str) else list(audience)
        if not issuer or not self._audience or not all(self._audience):
            raise ConfigError(
                "jwt: issuer and audience are required; without them tokens for any service would be valid"
            )
        required = ("exp", "iss", "aud", id_claim)
        self._checks = Checks(checked_algorithms(algorithms), _TYPES, required, leeway)
        self._id_claim, self._id_prefix = id_claim, id_prefix
        self._scope_claims, self._resources_claim = tuple(scope_claims), resources_claim
        self._keys = KeySet(jwks, issuer=issuer, fetch=fetch, max_age=max_age, cooldown=cooldown)

    def __repr__(self) -> str:
        return f"JWTAuthenticator(issuer={self._issuer!r}, audience={self._audience!r})"

    async def __call__(self, credentials: Credentials) -> Identity | None:
        """Return the identity of a valid bearer token, else ``None``. ``operad.auth`` logs why it is refused.

        Raises:
            CallError: ``UNAVAILABLE`` if the issuer's keys cannot be loaded.
        """
        token = credentials.bearer
        if token is None or token.count(".") != 2:
            return None
        try:
            return self._identity(
                await verified_claims(token, self._keys, self._issuer, self._audience, self._checks)
            )
        except TokenRefused as refused:
            logger.info("a token from %r is refused: %s", credentials.peer, refused)
            return None

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        id = subject_of(claims, self._id_claim)
        scopes = [scope for claim in self._scope_claims for scope in strings_of(claims.get(claim))]
        return Identity(self._id_prefix + id, scopes, granted(claims.get(self._resources_claim)))


def subject_of(claims: Mapping[str, Any], name: str) -> str:
    """Return the id in the claim ``name``. Raises `TokenRefused` if it is not a string, empty or not printable."""
    subject = claims.get(name)
    if not isinstance(subject, str) or not subject or not subject.isprintable():
        raise TokenRefused(f'its claim "{name}" is empty, or not a string of printable characters')
    return subject


def granted(claim: Any) -> dict[str, list[str]]:
    """Return the grants in a claim, or an empty dict for ``None``. Raises `TokenRefused` for another form."""
    if claim is None:
        return {}
    if not isinstance(claim, Mapping) or not all(
        isinstance(actions, list) and all(isinstance(action, str) for action in actions)
        for actions in claim.values()
    ):
        raise TokenRefused('its claim with grants is not of the form {"type:id": ["action"]}')
    return dict(claim)


def checked_algorithms(algorithms: Sequence[str] | None) -> tuple[str, ...]:
    """Return the accepted algorithms, by default `ALGORITHMS`.

    Raises `ConfigError` if the list is empty, is a string, or has an unknown algorithm.
    """
    if algorithms is None:
        return ALGORITHMS
    if isinstance(algorithms, str) or not algorithms:
        raise ConfigError(f'jwt: algorithms: expected a list such as ["RS256"], got {algorithms!r}')
    for algorithm in algorithms:
        if algorithm not in _KNOWN_ALGORITHMS:
            raise ConfigError(f'jwt: unknown algorithm "{algorithm}"; known: {", ".join(_KNOWN_ALGORITHMS)}')
    return tuple(algorithms)


def unverified_header(token: str) -> dict[str, Any]:
    """Return the unverified header of a token. Raises `TokenRefused` if the header cannot be read."""
    try:
        header: dict[str, Any] = pyjwt().get_unverified_header(token)
    except Exception as error:  # noqa: BLE001  # hostile bytes; PyJWT's messages may quote them
        raise TokenRefused(_reason(error)) from None
    return header


async def verified_claims(
    token: str, keys: KeySet, issuer: str, audience: Sequence[str], checks: Checks
) -> dict[str, Any]:
    """Return the claims of a compact JWS that passes all checks with one of ``keys``.

    Raises:
        TokenRefused: the token is invalid; the message states why.
        CallError: ``UNAVAILABLE`` if the keys cannot be loaded.
    """
    header = unverified_header(token)
    algorithm, kind = header.get("alg"), header.get("typ")
    if not isinstance(algorithm, str) or algorithm not in checks.algorithms:
        raise TokenRefused(f"expected an algorithm of {', '.join(checks.algorithms)}, got {algorithm!r:.20}")
    if (kind.lower() if isinstance(kind, str) else kind) not in checks.types:
        known = ", ".join(str(each) for each in checks.types if each is not None)
        raise TokenRefused(f"its typ is for another kind of token; expected one of {known}, got {kind!r:.50}")
    candidates = await keys.find(header.get("kid"), algorithm)
    if not candidates:
        raise TokenRefused(f"the issuer has no key for its key id {header.get('kid')!r:.100} and {algorithm}")
    refusal: TokenRefused | None = None
    for key in candidates:
        try:
            return _decode(token, key, algorithm, issuer, audience, checks)
        except TokenRefused as refused:
            refusal = refused if refusal is None or refused.args != (_BAD_SIGNATURE,) else refusal
    assert refusal is not None
    raise refusal


def _decode(
    token: str, key: PyJWK, algorithm: str, issuer: str, audience: Sequence[str], checks: Checks
) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = pyjwt().decode(
            token,
            key,
            algorithms=[algorithm],
            issuer=issuer,
            audience=list(audience),
            leeway=checks.leeway,
            options={"require": list(checks.required)},
        )
    except Exception as error:  # noqa: BLE001  # hostile bytes; PyJWT's messages may quote them
        raise TokenRefused(_reason(error)) from None
    return claims


_BAD_SIGNATURE = "its signature was not made with the issuer's key"
_REASONS = {
    "InvalidSignatureError": _BAD_SIGNATURE,
    "ExpiredSignatureError": "it has expired",
    "InvalidAudienceError": "it is for another audience",
    "InvalidIssuerError": "it is from another issuer",
    "ImmatureSignatureError": "it is not valid yet",
    "MissingRequiredClaimError": "a required claim is missing",
}


def _reason(error: Exception) -> str:
    return _REASONS.get(type(error).__name__, f"it cannot be read ({type(error).__name__})")
