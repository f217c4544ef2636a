"""Idempotency keys: a repeated request returns the first result instead of running again."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from operad import CallError, ErrorCode, OperationType, Plugins, ResponseEnvelope
from operad.plugin import InterceptedCall
from operad.wire import from_json, to_json

logger = logging.getLogger("operad.rules")

_RUNNING = 300.0
"""Seconds for which a call without a deadline is considered running after its process has ended."""
_RENEWED = _RUNNING / 3
"""Seconds after which the claim of a running call is renewed."""
_GRACE = 10.0
_POLL, _SLOWEST_POLL = 0.01, 0.5
_RETRIED = 600.0
"""Seconds for which storing a result is retried if the store fails."""
_MOST_RETRIED = 1_000
"""The maximum number of results whose storing is retried; further results are lost."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5
_LOST = {
    "code": ErrorCode.DATA_LOSS,
    "message": "the first call with this idempotency key ran, but its result was not kept",
}


class ResultStore(Protocol):
    """The interface of a store for the first results of idempotency keys.

    It stores bytes by name. A name is free again when the seconds for which its value is stored have passed. All
    servers of an operation must use the same store. Methods may raise any exception if the store fails.
    """

    async def claim(self, name: str, value: bytes, seconds: float) -> bytes | None:
        """Store ``value`` for ``seconds`` and return ``None`` if ``name`` is free; else return its value.

        Of concurrent calls for one free name, exactly one must store its value.
        """

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        """Store ``value`` under ``name`` for ``seconds``; replace a value that is stored there."""

    async def drop(self, name: str) -> None:
        """Remove the value of ``name``, if it is stored."""


class MemoryResults:
    """A `ResultStore` in the memory of this process.

    Args:
        capacity: the maximum number of results that are kept; the oldest are dropped first.
        clock: returns the time in seconds; for tests.
    """

    def __init__(self, capacity: int = 10_000, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity, self._clock = capacity, clock
        self._kept: dict[str, tuple[float, bytes]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def claim(self, name: str, value: bytes, seconds: float) -> bytes | None:
        """Store ``value`` for ``seconds`` and return ``None`` if ``name`` is free; else return its value."""
        ends, kept = self._kept.get(name, (0.0, b""))
        if kept and ends > self._clock():
            return kept
        await self.put(name, value, seconds)
        return None

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        """Store ``value`` under ``name`` for ``seconds``; replace a value that is stored there."""
        self._kept.pop(name, None)
        if len(self._kept) >= self._capacity:
            now = self._clock()
            self._kept = {name: entry for name, entry in self._kept.items() if entry[0] > now}
            while len(self._kept) >= self._capacity:
                del self._kept[next(iter(self._kept))]
        self._kept[name] = (self._clock() + seconds, value)

    async def drop(self, name: str) -> None:
        """Remove the value of ``name``, if it is stored."""
        self._kept.pop(name, None)


class FirstResults:
    """An interceptor that returns the first result of a mutation for every call with the same idempotency key.

    Use it with ``registry.use(FirstResults())``, or write the table ``[idempotency]``. A key is valid for one
    identity and one operation. A call with the same key and another input raises ``VALIDATION_ERROR``. A call that
    arrives while the first one runs waits for it, and raises ``UNAVAILABLE`` if that takes too long. An error is a
    result too, unless it states that nothing ran. If the result of a call that ran cannot be kept, its repetitions
    raise ``DATA_LOSS``. A call that was cancelled, for example at its deadline, may run again, and so may a call
    whose process ended before its result was kept. If the store fails, a call raises ``UNAVAILABLE`` and does not
    run.

    Args:
        store: the store for results; default: a store in the memory of this process.
        seconds: how many seconds a result is kept; default: one day.
    """

    def __init__(self, store: ResultStore | None = None, *, seconds: float = 86_400.0) -> None:
        self._store: ResultStore = MemoryResults() if store is None else store
        self._seconds = seconds
        self._keeping: set[asyncio.Task[None]] = set()
        """Tasks that store results; those of cancelled calls continue."""

    async def __call__(
        self, call: InterceptedCall, proceed: Callable[[InterceptedCall], Awaitable[ResponseEnvelope[Any]]]
    ) -> ResponseEnvelope[Any]:
        """Return or raise the kept result, or run the call and keep its result.

        A call without an idempotency key, or of an operation that is not a mutation, runs without being kept.
        """
        if call.context.idempotency_key is None or call.spec.type is not OperationType.MUTATION:
            return await proceed(call)
        digest = hashlib.sha256(to_json(call.input)).hexdigest()
        name = _name(call)
        kept = await self._claimed(name, digest, call)
        if kept is not None:
            return _replayed(kept, call)
        try:
            envelope = await self._run(name, digest, call, proceed)
        except CallError as error:
            if error.says_nothing_ran or error.ran is False:
                await self._try(self._store.drop(name))
            else:
                await self._keep(name, digest, {"error": error.to_wire(), "undeclared": error.undeclared})
            raise
        except BaseException:
            await self._try(self._store.drop(name))
            raise
        await self._keep(name, digest, envelope)
        return envelope

    async def _run(
        self,
        name: str,
        digest: str,
        call: InterceptedCall,
        proceed: Callable[[InterceptedCall], Awaitable[ResponseEnvelope[Any]]],
    ) -> ResponseEnvelope[Any]:
        """Run the call. A call without a deadline may take longer than its claim, which is then renewed."""
        if call.context.deadline is not None:
            return await proceed(call)
        ended = asyncio.Event()
        renewing = asyncio.create_task(self._renew(name, to_json({"digest": digest}), ended))
        try:
            return await proceed(call)
        finally:
            ended.set()
            await asyncio.wait({renewing})  # a renewal that is being written must not replace the result

    async def _renew(self, name: str, mark: bytes, ended: asyncio.Event) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RENEWED):
                    await ended.wait()
                return
            await self._try(self._store.put(name, mark, _RUNNING))

    async def _keep(self, name: str, digest: str, result: ResponseEnvelope[Any] | dict[str, Any]) -> None:
        """Store the result of a call that ran. Return after the first attempt; others run in the background."""
        lost = to_json({"digest": digest, "error": _LOST, "undeclared": False})
        try:
            kept = result if isinstance(result, dict) else {"envelope": result.to_wire()}
            record = to_json({"digest": digest, **kept})
        except CallError as error:  # such as a set
            logger.error("the result of a call with an idempotency key cannot be kept: %s", error)
            record = lost
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._put(name, record, lost, first))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)
        await asyncio.shield(first)  # a call that ends meanwhile, at its deadline, has run

    async def _put(self, name: str, record: bytes, lost: bytes, first: asyncio.Future[None]) -> None:
        """Store a record, or else the smaller ``lost``, which states that the result is lost; retry on failure."""
        pause, ends = _FIRST_PAUSE, time.monotonic() + _RETRIED
        level = logging.ERROR
        try:
            while not (
                await self._try(self._store.put(name, record, self._seconds), level)
                or await self._try(self._store.put(name, lost, self._seconds), level)
            ):
                _wake(first)
                level = logging.DEBUG  # one line for one result
                if time.monotonic() > ends or len(self._keeping) > _MOST_RETRIED:
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        finally:
            _wake(first)

    async def _claimed(self, name: str, digest: str, call: InterceptedCall) -> dict[str, Any] | None:
        """Return the record of an earlier call; ``None`` if this one is the first.

        Raises `CallError` if the store fails, the input differs, or the first call still runs.
        """
        deadline = call.context.deadline
        running = _RUNNING if deadline is None else max(0.0, deadline / 1000 - time.time()) + _GRACE
        mark, wait, ends = to_json({"digest": digest}), _POLL, time.monotonic() + running
        while True:
            try:
                found = await self._store.claim(name, mark, running)
            except Exception as error:
                # Without the store we cannot know whether it ran before, so it must not run.
                message = f"the store of idempotency keys cannot be used: {_in_words(error)}"
                raise CallError(ErrorCode.UNAVAILABLE, message, {"sent": False}) from error
            if found is None:
                return None
            kept = _read(found)
            if kept["digest"] != digest:
                message = "this idempotency key was used with another input; use a new key"
                raise CallError(ErrorCode.VALIDATION_ERROR, message, {"message": message})
            if len(kept) > 1:
                return kept
            if time.monotonic() > ends:
                message = "the first call with this idempotency key is still running; try again later"
                raise CallError(ErrorCode.UNAVAILABLE, message, {"sent": False})
            await asyncio.sleep(wait)
            wait = min(wait * 2, _SLOWEST_POLL)

    async def _try(self, change: Awaitable[None], level: int = logging.ERROR) -> bool:
        """Change the store. Log a failure and return False."""
        try:
            await change
        except Exception as error:  # noqa: BLE001  # each store raises its own
            logger.log(level, "the store of idempotency keys cannot be written: %s", _in_words(error))
            return False
        return True


def _name(call: InterceptedCall) -> str:
    identity = call.context.identity
    who = None if identity is None else identity.id
    return hashlib.sha256(to_json([who, call.spec.id, call.context.idempotency_key])).hexdigest()


def _read(found: bytes) -> dict[str, Any]:
    """Return a record of the store. Raises `CallError` ``DATA_LOSS`` if operad has not written it."""
    try:
        kept = from_json(found)
    except ValueError as error:
        raise _unreadable(str(error)) from None
    if not (isinstance(kept, dict) and isinstance(kept.get("digest"), str)):
        raise _unreadable(f"expected an object with a digest, got {kept!r:.100}")
    return kept


def _replayed(kept: dict[str, Any], call: InterceptedCall) -> ResponseEnvelope[Any]:
    plugins: Plugins = getattr(call.context.registry, "plugins", None) or Plugins()
    try:
        if "error" not in kept:
            return plugins.envelope_kinds.from_wire(kept["envelope"])
        error = kept["error"]
        failure = CallError(error["code"], error["message"], error.get("details"))
        failure.undeclared = kept["undeclared"]  # what is masked at an edge stays masked
    except (LookupError, TypeError, ValueError, AttributeError, CallError) as error:
        raise _unreadable(_in_words(error)) from error
    raise failure


def _unreadable(reason: str) -> CallError:
    logger.error("the record of an idempotency key cannot be read: %s", reason)
    message = "the record of this idempotency key cannot be read; the call may have run, so check its effect"
    return CallError(ErrorCode.DATA_LOSS, message)


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
