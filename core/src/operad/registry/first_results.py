"""Requests that mean one run once: a repetition with the same idempotency key answers the first result."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from operad.envelopes import EnvelopeKinds, ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.failures import says_nothing_ran
from operad.operations import OperationType
from operad.registry.interceptors import InterceptedCall
from operad.words import in_words

logger = logging.getLogger("operad")

_RUNNING = 300.0
"""Seconds for which a call without deadline counts as running, if its process is gone."""
_GRACE = 10.0
_POLL, _SLOWEST_POLL = 0.01, 0.5


class ResultStore(Protocol):
    """Where first results are kept: bytes by name, for a while. One for all processes that serve one thing."""

    async def claim(self, name: str, value: bytes, seconds: float) -> bytes | None:
        """Put ``value`` under a free name, and answer ``None``; of a taken one, answer what is there. Atomic."""

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        """Replace what is under a name."""

    async def drop(self, name: str) -> None:
        """Free a name."""


class MemoryResults:
    """A `ResultStore` of one process.

    Args:
        capacity: how many results are kept; beyond it the oldest go.
        clock: seconds, for tests.
    """

    def __init__(self, capacity: int = 10_000, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity, self._clock = capacity, clock
        self._kept: dict[str, tuple[float, bytes]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def claim(self, name: str, value: bytes, seconds: float) -> bytes | None:
        """Put ``value`` under a free name, and answer ``None``; of a taken one, answer what is there."""
        ends, kept = self._kept.get(name, (0.0, b""))
        if kept and ends > self._clock():
            return kept
        await self.put(name, value, seconds)
        return None

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        """Replace what is under a name."""
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
    """An interceptor: a mutation that is repeated with the same idempotency key answers its first result.

    ``registry.use(FirstResults())``. A key belongs to its caller's identity and to one operation. A repetition
    with another input is ``VALIDATION_ERROR``; one that comes while the first call runs waits for it. Errors are
    results, but for those that say that nothing ran; a call that was cancelled (at its deadline) may run again.

    Args:
        store: where results are kept; default: in this process.
        seconds: for how long.
    """

    def __init__(self, store: ResultStore | None = None, *, seconds: float = 86_400.0) -> None:
        self._store: ResultStore = MemoryResults() if store is None else store
        self._seconds = seconds

    async def __call__(
        self, call: InterceptedCall, proceed: Callable[[InterceptedCall], Awaitable[ResponseEnvelope[Any]]]
    ) -> ResponseEnvelope[Any]:
        """Answer what is kept, or go on and keep it."""
        if call.context.idempotency_key is None or call.spec.type is not OperationType.MUTATION:
            return await proceed(call)
        from operad.protocol import to_json  # msgspec: for who uses keys

        digest = hashlib.sha256(to_json(call.input)).hexdigest()
        name = _name(call)
        kept = await self._claimed(name, digest, call)
        if kept is not None:
            return _replayed(kept, call)
        try:
            envelope = await proceed(call)
        except CallError as error:
            if says_nothing_ran(error):
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
        from operad.protocol import to_json

        record = to_json({**kept, "envelope": kept["envelope"].to_wire()})
        await self._store.put(name, record, self._seconds)

    async def _claimed(self, name: str, digest: str, call: InterceptedCall) -> dict[str, Any] | None:
        """What is kept of an earlier call; ``None`` where this one is the first. Raises `CallError`."""
        from operad.protocol import from_json, to_json

        deadline = call.context.deadline
        running = _RUNNING if deadline is None else max(0.0, deadline / 1000 - time.time()) + _GRACE
        mark, wait, ends = to_json({"digest": digest}), _POLL, time.monotonic() + running
        while True:
            try:
                found = await self._store.claim(name, mark, running)
            except Exception as error:
                # Without the store nobody knows whether it ran: refused, and nothing has run.
                message = f"the store of first results cannot be asked: {in_words(error)}"
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
        """Change the store; that it fails does not undo the call."""
        try:
            await change
        except Exception as error:  # noqa: BLE001  # each store raises its own
            logger.error("a first result was not kept: %s", in_words(error))


def _name(call: InterceptedCall) -> str:
    from operad.protocol import to_json

    identity = call.context.identity
    who = None if identity is None else identity.id
    return hashlib.sha256(to_json([who, call.spec.id, call.context.idempotency_key])).hexdigest()


def _replayed(kept: dict[str, Any], call: InterceptedCall) -> ResponseEnvelope[Any]:
    if "error" in kept:
        error = kept["error"]
        failure = CallError(error["code"], error["message"], error.get("details"))
        failure.undeclared = kept["undeclared"]  # what is masked at an edge stays masked
        raise failure
    plugins = getattr(call.context.registry, "plugins", None)
    kinds: EnvelopeKinds = EnvelopeKinds() if plugins is None else plugins.envelope_kinds
    return kinds.from_wire(kept["envelope"])
