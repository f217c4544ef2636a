"""The public keys of an issuer: a JSON Web Key Set (RFC 7517) from a URL, a file or a table."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operad.errors import CallError, ConfigError
from operad_auth.fetching import Fetch, default_fetch, require_secure, unavailable
from operad_auth.http.urls import shown_url

if TYPE_CHECKING:
    from jwt import PyJWK

logger = logging.getLogger("operad.auth")

KeySource = str | Path | Mapping[str, Any]
"""Where keys come from: a URL, the path of a JSON file, or a JWKS ``{"keys": […]}`` itself."""

MAX_KEYS = 100
"""The maximum number of keys in a set; further keys are ignored."""
_MAX_STALE = 86_400.0
"""How long keys are valid while they cannot be loaded again, in seconds."""
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})
_FAMILIES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP", "HS": "oct"}


def pyjwt() -> Any:
    """Return the module ``jwt`` of PyJWT. Raises `ConfigError` if it or cryptography is not installed."""
    try:
        import cryptography  # noqa: F401  # PyJWT verifies signatures with it
        import jwt
    except ImportError as error:
        raise ConfigError(f"JSON Web Tokens require an extra: pip install 'operad[jwt]' ({error})") from None
    return jwt


class KeySet:
    """The keys of one issuer, loaded when they are first needed.

    The keys are loaded again after ``max_age`` seconds, and immediately for an unknown key id, but never twice
    within ``cooldown`` seconds, so that tokens with invented ids cost the issuer nothing. While keys cannot be
    loaded, the last ones are valid for a day.

    Args:
        source: see `KeySource`; if ``None``, ``jwks_uri`` in the issuer's metadata is used.
        issuer: the URL of the issuer, for ``source=None``.
        fetch: sends requests; default: the standard library in a thread.
        max_age: seconds after which keys are loaded again.
        cooldown: the minimum time between two attempts to load keys, in seconds.
        clock: returns the current time of a monotonic clock, in seconds.

    Raises:
        ConfigError: the set is malformed, a URL is not secure, or PyJWT is not installed.
    """

    def __init__(
        self,
        source: KeySource | None,
        *,
        issuer: str | None = None,
        fetch: Fetch | None = None,
        max_age: float = 600.0,
        cooldown: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        pyjwt()
        self._source, self._issuer = source, issuer
        self._fetch = fetch or default_fetch
        self._max_age, self._cooldown, self._clock = max_age, cooldown, clock
        self._keys: list[dict[str, Any]] | None = None
        self._made: dict[tuple[int, str], PyJWK | None] = {}
        self._loaded = self._tried = float("-inf")
        self._failure: CallError | None = None
        self._loading: asyncio.Task[None] | None = None
        if isinstance(source, Mapping):
            self._take(source, "jwks")
        elif isinstance(source, str) and "://" in source:
            require_secure(source, "jwks")
        elif source is None:
            require_secure(issuer or "", "issuer")

    async def find(self, key_id: Any, algorithm: str) -> list[PyJWK]:
        """Return the keys that may have signed a token; an empty list if no key fits.

        Args:
            key_id: ``kid`` in the header of the token; if ``None``, every key is a candidate.
            algorithm: ``alg`` in the header of the token.

        Raises:
            CallError: ``UNAVAILABLE`` if the keys cannot be loaded and were never loaded, or more than a day ago.
        """
        age = self._clock() - self._loaded
        if self._keys is None or (age > self._max_age and not isinstance(self._source, Mapping)):
            await self._load()
        found = self._select(key_id, algorithm)
        if not found and not isinstance(self._source, Mapping):
            await self._load()
            found = self._select(key_id, algorithm)
        return found

    def _select(self, key_id: Any, algorithm: str) -> list[PyJWK]:
        found = []
        for position, key in enumerate(self._keys or ()):
            if key_id is not None and key.get("kid") != key_id:
                continue
            usable = self._key(position, key, algorithm)
            if usable is not None:
                found.append(usable)
        return found

    def _key(self, position: int, key: dict[str, Any], algorithm: str) -> PyJWK | None:
        if (position, algorithm) not in self._made:
            self._made[position, algorithm] = self._usable(key, algorithm)
        return self._made[position, algorithm]

    def _usable(self, key: dict[str, Any], algorithm: str) -> PyJWK | None:
        """Return the key if it fits the algorithm. A public key must never be used as an HMAC secret."""
        operations = key.get("key_ops")
        if (
            key.get("kty") != _FAMILIES.get(algorithm[:2])
            or key.get("alg", algorithm) != algorithm
            or key.get("use", "sig") != "sig"
            or (isinstance(operations, list) and "verify" not in operations)
        ):
            return None
        jwt = pyjwt()
        try:
            made: PyJWK = jwt.PyJWK(key, algorithm)
        except Exception as error:  # noqa: BLE001  # whatever is wrong with one key; its message quotes the key
            logger.warning("key %r of %s cannot be used: %s", key.get("kid"), self._where(), type(error).__name__)
            return None
        return made

    # --- loading -------------------------------------------------------------------------------------

    async def _load(self) -> None:
        """Load the keys once for all waiting callers, even if one of the callers is cancelled."""
        if self._loading is not None and self._loading.get_loop() is not asyncio.get_running_loop():
            self._loading = None  # its loop was closed
        if self._loading is None and self._clock() - self._tried >= self._cooldown:
            self._tried = self._clock()
            self._loading = asyncio.create_task(self._reload())
            self._loading.add_done_callback(self._ended)
        if self._loading is not None:
            await asyncio.shield(self._loading)
        if self._clock() - self._loaded > _MAX_STALE or self._keys is None:
            raise self._failure or unavailable(self._where(), "the keys of the issuer have not been loaded")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._loading = None
        if not task.cancelled():
            task.exception()

    async def _reload(self) -> None:
        try:
            document = await self._read()
            self._take(document, self._where())
            self._failure = None
        except (CallError, ConfigError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            logger.warning("the keys of %s cannot be loaded: %s", self._where(), reason)
            failed = error if isinstance(error, CallError) else unavailable(self._where(), str(reason))
            self._failure = CallError(failed.code, failed.message)

    async def _read(self) -> Any:
        source = self._source
        if source is None:
            from operad_auth.discovery import discover

            metadata = await discover(self._issuer or "", self._fetch)
            source = metadata.get("jwks_uri")
            if not isinstance(source, str):
                where = shown_url(self._issuer or "")
                raise ConfigError(f"the metadata of {where} have no jwks_uri; for [serve.jwt], set jwks in it")
            require_secure(source, "jwks_uri")
        if isinstance(source, str) and "://" in source:
            answer = await self._fetch("GET", source, headers={"Accept": "application/json"})
            if answer.status != 200:
                raise unavailable(source, f"expected HTTP 200, got HTTP {answer.status}")
            return answer.json()
        try:
            return json.loads(await asyncio.to_thread(Path(str(source)).read_bytes))
        except (ValueError, RecursionError):  # no JSON, or not in UTF-8
            return None

    def _take(self, document: Any, where: str) -> None:
        keys = document.get("keys") if isinstance(document, Mapping) else None
        if not isinstance(keys, list) or not all(isinstance(key, Mapping) for key in keys):
            got = "no JSON" if document is None else f"{type(document).__name__} without such keys"
            raise ConfigError(f'{where}: expected a JSON Web Key Set, {{"keys": [{{"kty": …}}, …]}}, got {got}')
        public = self._source is None or (isinstance(self._source, str) and "://" in self._source)
        usable = [
            {name: value for name, value in key.items() if name not in _PRIVATE}
            for key in keys[:MAX_KEYS]
            # A symmetric key that anyone can read proves nothing.
            if not (public and key.get("kty") == "oct")
        ]
        if not usable:
            raise ConfigError(
                f"{where}: expected at least one usable key in the JSON Web Key Set, got 0 of {len(keys)}"
            )
        self._keys, self._made, self._loaded = usable, {}, self._clock()

    def _where(self) -> str:
        if isinstance(self._source, Mapping):
            return "jwks"
        source = str(self._source or self._issuer)
        return shown_url(source) if "://" in source else source
