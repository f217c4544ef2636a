"""Delegation: a signed statement that the caller acts on behalf of a user.

A ``delegation`` is a compact JWS (RFC 7515) with the claims ``iss``, ``sub``, ``scope``, ``aud`` (the id of the
operation), ``iat``, ``exp`` (at most 60 s after ``iat``), ``jti`` and, optionally, ``resources``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operad.access import Identity
from operad.errors import CallError, ConfigError, ErrorCode
from operad_auth.credentials import MAX_TOKEN, strings_of
from operad_auth.fetching import Fetch
from operad_auth.jwts import Checks, TokenRefused, checked_algorithms, granted, subject_of, verified_claims
from operad_auth.keys import KeySet, KeySource, pyjwt

if TYPE_CHECKING:
    from operad.transports import Delivery

LIFETIME = 60
"""The maximum lifetime of a delegation, in seconds."""
_TYPES = (None, "jwt", "delegation+jwt")
_REQUIRED = ("iss", "sub", "aud", "iat", "exp", "jti")


class JWTDelegation:
    """A verifier of delegations: ``CallHandler(registry, transport, identity=JWTDelegation(…))``.

    A request without a delegation is anonymous. A request with an invalid one is rejected. Each delegation is
    valid for one request: its ``jti`` is remembered until it expires, and only the same request of the same peer,
    delivered again by the transport, may use it again. Requires ``operad-auth[jwt]``.

    Args:
        keys: ``{issuer: keys}``, or the keys of all ``issuers``. Keys are a URL, a path or a JWKS.
        issuers: the trusted issuers; default: the issuers in ``keys``. A key is valid for its own issuer only.
        algorithms: the accepted signature algorithms; default: those with public keys, such as ``RS256``.
        leeway: the accepted difference between clocks, in seconds.
        fetch: sends requests for keys; default: the standard library in a thread.
        capacity: the maximum number of remembered delegations. Requests above it are rejected as ``OVERLOADED``.
        clock: returns the current time in seconds since 1970.

    Raises:
        ConfigError: no issuer is named, keys cannot be used, an algorithm is unknown, or PyJWT is missing.
    """

    def __init__(
        self,
        *,
        keys: KeySource | Mapping[str, KeySource],
        issuers: Iterable[str] | None = None,
        algorithms: Sequence[str] | None = None,
        leeway: float = 5.0,
        fetch: Fetch | None = None,
        capacity: int = 100_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = {issuer: KeySet(source, fetch=fetch) for issuer, source in _per_issuer(keys, issuers).items()}
        self._checks = Checks(checked_algorithms(algorithms), _TYPES, _REQUIRED, leeway)
        self._capacity, self._clock = capacity, clock
        self._seen: dict[tuple[str, str], tuple[float, str, str | None]] = {}

    async def __call__(self, payload: dict[str, Any], delivery: Delivery) -> Identity | None:
        """Return the identity on whose behalf the request is made; ``None`` if it has no delegation.

        Raises:
            CallError: ``ACCESS_DENIED`` if the delegation is invalid; ``UNAVAILABLE`` if the issuer's keys cannot
                be loaded; ``OVERLOADED`` if too many delegations are remembered.
        """
        token = payload.get("delegation")
        if token is None:
            return None
        try:
            claims = await self._claims(token, payload.get("operationId"))
            identity = Identity(
                subject_of(claims, "sub"), strings_of(claims.get("scope")), granted(claims.get("resources"))
            )
        except TokenRefused as refused:
            raise CallError(ErrorCode.ACCESS_DENIED, f"the delegation is refused: {refused}") from None
        self._remember(claims, payload, delivery)
        return identity

    async def _claims(self, token: Any, operation_id: Any) -> dict[str, Any]:
        if not isinstance(token, str) or len(token) > MAX_TOKEN:
            got = f"{len(token)} characters" if isinstance(token, str) else type(token).__name__
            raise TokenRefused(f"expected a compact JWS of at most {MAX_TOKEN} characters, got {got}")
        issuer = _issuer_of(token)
        if not isinstance(issuer, str) or issuer not in self._keys:
            raise TokenRefused(f"its issuer is not trusted, got {issuer!a:.100}; add it to the verifier's issuers")
        claims = await verified_claims(token, self._keys[issuer], issuer, [str(operation_id)], self._checks)
        if claims["aud"] not in (operation_id, [operation_id]):
            raise TokenRefused("its aud names other operations, too; expected the called one only")
        times = (claims["exp"], claims["iat"])
        if not all(isinstance(each, (int, float)) for each in times) or not 0 < times[0] - times[1] <= LIFETIME:
            raise TokenRefused(f"its exp is not within {LIFETIME} s after its iat, got exp and iat {times!r:.80}")
        if len(claims["jti"]) > 256:
            raise TokenRefused(f"its jti is longer than 256 characters, got {len(claims['jti'])}")
        return claims

    def _remember(self, claims: dict[str, Any], payload: dict[str, Any], delivery: Delivery) -> None:
        now = self._clock()
        key = (claims["iss"], claims["jti"])
        request = (str(payload.get("requestId")), delivery.peer)
        earlier = self._seen.get(key)
        if earlier is not None and earlier[0] > now:
            if delivery.redelivered and earlier[1:] == request:
                return
            raise CallError(
                ErrorCode.ACCESS_DENIED, "the delegation is refused: it was used before; sign one for each call"
            )
        if len(self._seen) >= self._capacity:
            self._seen = {kept: entry for kept, entry in self._seen.items() if entry[0] > now}
            if len(self._seen) >= self._capacity:
                raise CallError(
                    ErrorCode.OVERLOADED, f"{self._capacity} delegations are remembered already; retry later"
                )
        self._seen[key] = (claims["exp"] + self._checks.leeway, *request)


class DelegationSigner:
    """A signer of delegations: ``signer(operation_id, identity)`` returns the compact JWS for one call.

    Requires ``operad-auth[jwt]``.

    Args:
        key: the private key: a JWK, a PEM as text, or the path of either.
        issuer: the name of the signer (``iss``), which the called process must trust.
        algorithm: the signature algorithm; default: the one that the key names, or that fits its type.
        key_id: the ``kid`` in the header; default: the one in the JWK.
        lifetime: seconds until a delegation expires, at most 60.
        clock: returns the current time in seconds since 1970.

    Raises:
        ConfigError: the key cannot be read or cannot sign, the lifetime is not valid, or PyJWT is missing.
    """

    def __init__(
        self,
        key: str | Path | Mapping[str, Any],
        issuer: str,
        *,
        algorithm: str | None = None,
        key_id: str | None = None,
        lifetime: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not 0 < lifetime <= LIFETIME:
            raise ConfigError(
                f"delegation: expected a lifetime above 0 and at most {LIFETIME} s, got {lifetime:g} s"
            )
        self._issuer, self._lifetime, self._clock = issuer, lifetime, clock
        jwk = signing_key(key)
        self._key, self._algorithm = jwk.key, algorithm or jwk.algorithm_name
        self._headers = {"typ": "delegation+jwt"}
        kid = key_id or jwk.key_id
        if kid:
            self._headers["kid"] = kid

    def __repr__(self) -> str:
        return f"DelegationSigner(issuer={self._issuer!r})"

    def __call__(self, operation_id: str, identity: Identity) -> str:
        """Return the delegation, a compact JWS, for one call of an operation on behalf of an identity."""
        now = int(self._clock())
        claims: dict[str, Any] = {
            "iss": self._issuer,
            "sub": identity.id,
            "scope": " ".join(sorted(identity.scopes)),
            "aud": operation_id,
            "iat": now,
            "exp": now + max(1, int(self._lifetime)),
            "jti": uuid.uuid4().hex,
        }
        if identity.resources:
            claims["resources"] = {key: sorted(actions) for key, actions in identity.resources.items()}
        signed: str = pyjwt().encode(claims, self._key, self._algorithm, headers=self._headers)
        return signed


def signing_key(key: str | Path | Mapping[str, Any]) -> Any:
    """Return a private key as PyJWT's ``PyJWK``.

    Args:
        key: a JWK, a PEM as text, or the path of either.

    Raises:
        ConfigError: the key cannot be read, is not a private key, or PyJWT is missing. The message does not quote
            the key.
    """
    import json

    jwt = pyjwt()
    try:
        if isinstance(key, Path) or (isinstance(key, str) and not key.lstrip().startswith(("{", "-----BEGIN"))):
            key = Path(key).read_text(encoding="utf-8")
        if isinstance(key, str):
            key = json.loads(key) if key.lstrip().startswith("{") else _jwk_of_pem(key)
        jwk = jwt.PyJWK(dict(key))
    except OSError as error:
        raise ConfigError(
            f"the signing key cannot be read: {error.strerror}; expected a JWK, a PEM, or the path of one"
        ) from None
    except Exception as error:  # noqa: BLE001  # messages of the libraries may quote the key
        raise ConfigError(
            f"the signing key is not a usable JWK or PEM ({type(error).__name__}); expected a private key"
        ) from None
    if "d" not in key and key.get("kty") != "oct":
        raise ConfigError("expected a private key as the signing key, got a public key")
    return jwk


def _jwk_of_pem(pem: str) -> dict[str, Any]:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    jwt = pyjwt()
    key = load_pem_private_key(pem.encode(), None)
    names = {"RSA": "RS256", "Elli": "ES256", "EC": "ES256", "Ed": "EdDSA"}
    name = type(key).__name__.lstrip("_")
    algorithm = next(algorithm for prefix, algorithm in names.items() if name.startswith(prefix))
    jwk: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(key, as_dict=True)
    return jwk


def _per_issuer(keys: Any, issuers: Iterable[str] | None) -> dict[str, KeySource]:
    names = [issuers] if isinstance(issuers, str) else None if issuers is None else list(issuers)
    if isinstance(keys, Mapping) and "keys" not in keys:
        if names is None:
            names = list(keys)
        missing = [name for name in names if name not in keys]
        if missing:
            raise ConfigError(f'delegation: expected keys for the issuer "{missing[0]}"; add them to keys')
        sources = {name: keys[name] for name in names}
    else:
        sources = dict.fromkeys(names or (), keys)
    if not sources:
        raise ConfigError("delegation: expected a trusted issuer, got none; pass issuers=[…] or keys={issuer: …}")
    return sources


def _issuer_of(token: str) -> Any:
    """Return the unverified ``iss`` of a token, to choose the keys; the token is verified with them afterwards."""
    try:
        return pyjwt().decode(token, options={"verify_signature": False}).get("iss")
    except Exception:  # noqa: BLE001  # hostile bytes
        raise TokenRefused("it is not a JSON Web Token") from None
