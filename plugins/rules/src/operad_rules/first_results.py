"""Idempotency keys: a repeated request returns the first result instead of running again."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from operad import CallError, ErrorCode, OperationType, Plugins, ResponseEnvelope
from operad.plugin import InterceptedCall, ResultStore
from operad.wire import from_json, to_json

logger = logging.getLogger("operad.rules")

_RUNNING = 300.0
"""Seconds that a call without a deadline counts as running if its process is gone."""
_GRACE = 10.0
_POLL, _SLOWEST_POLL = 0.01, 0.5


class MemoryResults:
    """A `ResultStore` in the memory of this process.

    Args:
        capacity: how many results are kept; the oldest are dropped first.
        clock: returns seconds; for tests.
    """

    def __init__(self, capacity: int = 10_000, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity, self._clock = capacity, clock
        self._kept: dict[str, tuple[float, bytes]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def claim(self, name: str, value: bytes, seconds: float) -> bytes | None:
        """Put ``value`` under a free name and return ``None``; return the value of a taken name."""
        ends, kept = self._kept.get(name, (0.0, b""))
        if kept and ends > self._clock():
            return kept
        await self.put(name, value, seconds)
        return None

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        """Replace the value of a name."""
        self._kept.pop(name, None)
        if len(self._kept) >= self._capacity:
            now = self._clock()
            self._kept = {name: entry for name, entry in self._kept.items() if entry[0] > now}
            while len(self._kept) >= self._capacity:
                del self._kept[next(iter(self._kept))]
        self._kept[name] = (self._clock() + seconds, value)

    async def drop(self, name: str) -> None:
        """Free a name."""
        self._kept.pop(name, None)


class FirstResults:
    """An interceptor that returns the first result of a mutation for every call with the same idempotency key.

    Use it with ``registry.use(FirstResults())``, or write the table ``[idempotency]``. A key is valid for one
    identity and one operation. A call with the same key and another input raises ``VALIDATION_ERROR``. A call that
    arrives while the first one runs waits for it. An error is a result too, unless it says that nothing ran. A
    call that was cancelled, for example at its deadline, may run again.

    Args:
        store: where results are kept; default: in the memory of this process.
        seconds: how long a result is kept.
    """

    def __init__(self, store: ResultStore | None = None, *, seconds: float = 86_400.0) -> None:
        self._store: ResultStore = MemoryResults() if store is None else store
        self._seconds = seconds

    async def __call__(
        self, call: InterceptedCall, proceed: Callable[[InterceptedCall], Awaitable[ResponseEnvelope[Any]]]
    ) -> ResponseEnvelope[Any]:
        """Return the kept result, or run the call and keep its result."""
        if call.context.idempotency_key is None or call.spec.type is not OperationType.MUTATION:
            return await proceed(call)
        digest = hashlib.sha256(to_json(call.input)).hexdigest()
        name = _name(call)
        kept = await self._claimed(name, digest, call)
        if kept is not None:
            return _replayed(kept, call)
        try:
            envelope = await proceed(call)
        except CallError as error:
            if error.says_nothing_ran:
                await self._keep(self._store.drop(name))
            else:
                kept = {"digest": digest, "error": error.to_wire(), "undeclared": error.undeclared}
                await self._keep(self._store.put(name, to_json(kept), self._seconds))
            raise
        except BaseException:
            await self._keep(self._store.drop(name))
            raise
        await self._keep(self._put(name, {"digest": digest, "envelope": envelope}))
        return envelope

    async def _put(self, name: str, kept: dict[str, Any]) -> None:
        try:
            record = to_json({**kept, "envelope": kept["envelope"].to_wire()})
        except CallError as error:  # such as a set: without a record a repetition would run the call again
            message = (
                f"the first call with this idempotency key ran, but its result cannot be kept: {error.message}"
            )
            failure = CallError(error.code, message).to_wire()
            record = to_json({"digest": kept["digest"], "error": failure, "undeclared": False})
        await self._store.put(name, record, self._seconds)

    async def _claimed(self, name: str, digest: str, call: InterceptedCall) -> dict[str, Any] | None:
        """Return what is kept of an earlier call; ``None`` if this call is the first. Raises `CallError`."""
        deadline = call.context.deadline
        running = _RUNNING if deadline is None else max(0.0, deadline / 1000 - time.time()) + _GRACE
        mark, wait, ends = to_json({"digest": digest}), _POLL, time.monotonic() + running
        while True:
            try:
                found = await self._store.claim(name, mark, running)
            except Exception as error:
                # Without the store we cannot know whether it ran before, so it must not run.
                message = f"the store of first results cannot be asked: {_in_words(error)}"
                raise CallError(ErrorCode.UNAVAILABLE, message, {"sent": False}) from error
            if found is None:
                return None
            kept: dict[str, Any] = from_json(found)
            if kept["digest"] != digest:
                message = "this idempotency key was used with another input"
                raise CallError(ErrorCode.VALIDATION_ERROR, message, {"message": message})
            if len(kept) > 1:
                return kept
            if time.monotonic() > ends:
                message = "the first call with this idempotency key still runs"
                raise CallError(ErrorCode.UNAVAILABLE, message, {"sent": False})
            await asyncio.sleep(wait)
            wait = min(wait * 2, _SLOWEST_POLL)

    async def _keep(self, change: Awaitable[None]) -> None:
        """Change the store. A failure is logged: the call has run."""
        try:
            await change
        except Exception as error:  # noqa: BLE001  # each store raises its own
            logger.error("a first result was not kept: %s", _in_words(error))


def _name(call: InterceptedCall) -> str:
    identity = call.context.identity
    who = None if identity is None else identity.id
    return hashlib.sha256(to_json([who, call.spec.id, call.context.idempotency_key])).hexdigest()


def _replayed(kept: dict[str, Any], call: InterceptedCall) -> ResponseEnvelope[Any]:
    if "error" in kept:
        error = kept["error"]
        failure = CallError(error["code"], error["message"], error.get("details"))
        failure.undeclared = kept["undeclared"]  # what is masked at an edge stays masked
        raise failure
    plugins: Plugins = getattr(call.context.registry, "plugins", None) or Plugins()
    return plugins.envelope_kinds.from_wire(kept["envelope"])


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
