"""The cache of a rule: results of queries, kept for the same caller and input."""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Protocol

from operad import CallError, OperationType
from operad.envelopes import EnvelopeKinds
from operad.plugin import InterceptedCall
from operad.wire import from_json, to_json
from operad_rules.steps import Envelope, Proceed, Step

logger = logging.getLogger("operad.rules")

_TRACE = frozenset({"traceparent", "tracestate"})


_ENTRY = 256
"""The bytes that an entry takes besides its value, which count because there may be many small values."""


def _size(value: bytes) -> int:
    return len(value) + _ENTRY


class Store(Protocol):
    """The interface of a store for cached results."""

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key; ``None`` if it is missing or has expired."""

    async def set(self, key: str, value: bytes, seconds: float) -> None:
        """Store a value for ``seconds``."""


class MemoryStore:
    """A store in this process.

    Args:
        seconds: how long all values are kept.
        size: the maximum size of all values, in bytes, 256 more for each value; the oldest are dropped first.
    """

    def __init__(self, seconds: float, size: int) -> None:
        from cachetools import TTLCache

        self._kept: Any = TTLCache(size, seconds, getsizeof=_size)

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key; ``None`` if it is missing or has expired."""
        found: bytes | None = self._kept.get(key)
        return found

    async def set(self, key: str, value: bytes, seconds: float) -> None:
        """Store a value, unless it is larger than the whole store. The store's time applies, not ``seconds``."""
        if _size(value) <= self._kept.maxsize:
            self._kept[key] = value


class RedisStore:
    """A store on a Redis server, for several processes.

    Args:
        pool: connections to the server.
    """

    def __init__(self, pool: Any) -> None:
        from redis.asyncio import Redis

        self._redis: Any = Redis(connection_pool=pool)

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key; ``None`` if it is missing or has expired."""
        found: Any = await self._redis.get(f"operad:cache:{key}")
        return found  # type: ignore[no-any-return]  # bytes: decoding is an option of the client

    async def set(self, key: str, value: bytes, seconds: float) -> None:
        """Store a value for ``seconds``."""
        await self._redis.set(f"operad:cache:{key}", value, px=max(1, int(seconds * 1_000)))


class Cache(Step):
    """A step that returns the kept result of a query for the same caller, operation and input.

    The key contains the identity with its scopes and resources, the token with which the caller authenticated, and
    the metadata of the call without its trace. So a result is never returned to another caller, nor to the same
    caller with another token, for which an API may allow less. Results that cannot be converted to JSON are not
    kept. If the store fails, the call runs.

    Args:
        store: the store for results.
        seconds: how many seconds a result is kept.
        kinds: the kinds of envelopes; they make envelopes from JSON, and recognise errors, which are not kept.
    """

    def __init__(self, store: Store, seconds: float, kinds: EnvelopeKinds) -> None:
        self._store, self._seconds, self._kinds = store, seconds, kinds

    async def call(self, call: InterceptedCall, proceed: Proceed) -> Envelope:
        """Return the kept result of a query, or run the call and keep its result. Run other calls unchanged."""
        key = _key(call) if call.spec.type is OperationType.QUERY else None
        if key is None:
            return await proceed(call)
        try:
            kept = await self._store.get(key)
        except Exception as error:  # noqa: BLE001  # each store raises its own
            logger.warning(
                "the cache of a rule cannot be read, so the call runs: %s: %s", type(error).__name__, error
            )
            return await proceed(call)
        if kept is not None:
            return self._kinds.from_wire(from_json(kept))
        envelope = await proceed(call)
        if not self._kinds.is_error(envelope):
            await self._keep(key, envelope)
        return envelope

    async def _keep(self, key: str, envelope: Envelope) -> None:
        try:
            value = to_json(envelope.to_wire())
        except CallError:
            return
        try:
            await self._store.set(key, value, self._seconds)
        except Exception as error:  # noqa: BLE001  # each store raises its own
            logger.warning(
                "the cache of a rule cannot be written, so the result is not kept: %s: %s",
                type(error).__name__,
                error,
            )


def _key(call: InterceptedCall) -> str | None:
    """Return the key of a call; ``None`` if its input or metadata cannot be converted to JSON."""
    identity = call.context.identity
    who: Any = None
    if identity is not None:
        resources = {name: sorted(actions) for name, actions in identity.resources.items()}
        who = [identity.id, sorted(identity.scopes), resources]
    metadata = {name: value for name, value in call.context.metadata.items() if name not in _TRACE}
    shown = getattr(call.context.credentials, "token", None)
    try:
        parts = to_json([who, shown, metadata, call.spec.id, call.input])
    except CallError:
        return None
    return hashlib.sha256(parts).hexdigest()
