"""The steps of a rule that decide whether and when a call runs."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

from operad import CallError, ErrorCode, ResponseEnvelope
from operad.plugin import InterceptedCall
from operad.subscriptions import close

Envelope = ResponseEnvelope[Any]
Proceed = Callable[[InterceptedCall], Awaitable[Envelope]]
StreamProceed = Callable[[InterceptedCall], AsyncIterator[Envelope]]


class Step:
    """One part of a rule: an interceptor of calls and of streams."""

    async def call(self, call: InterceptedCall, proceed: Proceed) -> Envelope:
        """Run the call. Subclasses override this to do something before or after it."""
        return await proceed(call)

    async def stream(self, call: InterceptedCall, proceed: StreamProceed) -> AsyncGenerator[Envelope, None]:
        """Yield the items of the stream. Subclasses override this to do something before or after it."""
        items = proceed(call)
        try:
            async for envelope in items:
                yield envelope
        finally:
            await close(items)


class Guard(Step):
    """A step that checks a call or a stream before it runs, and does not change it."""

    async def check(self, call: InterceptedCall) -> None:
        """Raise `CallError` if the call must not run."""

    async def call(self, call: InterceptedCall, proceed: Proceed) -> Envelope:
        """Check the call, then run it."""
        await self.check(call)
        return await proceed(call)

    async def stream(self, call: InterceptedCall, proceed: StreamProceed) -> AsyncGenerator[Envelope, None]:
        """Check the call, then open the stream and yield its items."""
        await self.check(call)
        async for envelope in super().stream(call, proceed):
            yield envelope


class Deny(Guard):
    """A guard that rejects every call with ``message``, or with a default message if it is ``None`` or empty."""

    def __init__(self, message: str | None) -> None:
        self._message = message

    async def check(self, call: InterceptedCall) -> None:
        """Raise `CallError` ``ACCESS_DENIED``."""
        message = self._message or f'a rule denies calls of "{call.spec.id}"'
        raise CallError(ErrorCode.ACCESS_DENIED, message)


class Rate(Guard):
    """A guard that limits the rate of calls (moving window, with the library ``limits``).

    Args:
        rate: the maximum rate, such as ``"100/minute"``.
        per: ``"caller"``, ``"operation"`` or ``"rule"``.
        name: the name of the rule; rules with different names count separately.
        shared: connections to a Redis server, for a limit of several processes; if ``None``, of this one.
    """

    def __init__(self, rate: str, per: str, name: str, shared: Any = None) -> None:
        from limits import parse
        from limits.aio.storage import MemoryStorage, RedisStorage
        from limits.aio.strategies import MovingWindowRateLimiter

        self._item, self._per, self._name = parse(rate), per, name
        storage: Any = MemoryStorage()
        if shared is not None:
            storage = RedisStorage(
                "async+redis://", implementation="redispy", key_prefix="operad:rate", connection_pool=shared
            )
        self._limiter = MovingWindowRateLimiter(storage)

    async def check(self, call: InterceptedCall) -> None:
        """Raise `CallError` if the call must not run.

        The code is ``OVERLOADED``, with ``retryAfter`` in seconds, if there were too many calls, and
        ``UNAVAILABLE`` if the store of the rate fails.
        """
        identity, key = call.context.identity, [self._name]
        if self._per != "rule":
            # The library joins the parts with "/", which ids may have, too: the length makes an id unambiguous.
            key.append("anonymous" if identity is None else f"id:{len(identity.id)}:{identity.id}")
        if self._per == "operation":
            key.append(call.spec.id)
        try:
            if await self._limiter.hit(self._item, *key):
                return
            resets = (await self._limiter.get_window_stats(self._item, *key)).reset_time
        except Exception as error:
            # Without the count we cannot know whether the limit is kept, so the call must not run.
            message = f'the rate of calls of "{call.spec.id}" cannot be checked: {type(error).__name__}: {error}'
            raise CallError(ErrorCode.UNAVAILABLE, message, {"sent": False}) from error
        wait = round(max(0.0, resets - time.time()), 3)
        message = f'"{call.spec.id}" allows {self._item}; try again in {wait:g} s'
        raise CallError(
            ErrorCode.OVERLOADED, message, {"bound": "rate", "limit": str(self._item), "retryAfter": wait}
        )


class Concurrency(Step):
    """A step that lets at most ``size`` calls and streams run at the same time; further ones wait for a place."""

    def __init__(self, size: int) -> None:
        self._free = asyncio.Semaphore(size)

    async def call(self, call: InterceptedCall, proceed: Proceed) -> Envelope:
        """Wait for a place, then run the call."""
        async with self._free:
            return await proceed(call)

    async def stream(self, call: InterceptedCall, proceed: StreamProceed) -> AsyncGenerator[Envelope, None]:
        """Wait for a place, then yield the items of the stream; the place is taken while the stream is open."""
        async with self._free:
            async for envelope in super().stream(call, proceed):
                yield envelope


class Timeout(Step):
    """A step that limits the time of a call. Streams are not limited; their callers limit the wait for items."""

    def __init__(self, seconds: float) -> None:
        self._milliseconds = seconds * 1_000

    async def call(self, call: InterceptedCall, proceed: Proceed) -> Envelope:
        """Run the call with the deadline of this step, or with its own deadline if that is earlier."""
        deadline, mine = call.context.deadline, time.time() * 1_000 + self._milliseconds
        return await proceed(call if deadline is not None and deadline <= mine else call.evolve(deadline=mine))


_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0


class Retry(Step):
    """A step that tries a query or an idempotent mutation up to ``times`` more times if it is unavailable.

    A call is unavailable if it fails with ``UNAVAILABLE``, ``OVERLOADED`` or ``NO_RESPONDERS``.
    """

    def __init__(self, times: int) -> None:
        self._times = times

    async def call(self, call: InterceptedCall, proceed: Proceed) -> Envelope:
        """Run the call, and try it again up to ``times`` times.

        Raises the last error. It is also the last if the server asks to wait for more than 5 s, or if the deadline
        of the call would pass before the next attempt.
        """
        for attempt in range(self._times if call.spec.is_repeatable else 0):
            try:
                return await proceed(call)
            except CallError as error:
                if error.code not in (ErrorCode.UNAVAILABLE, ErrorCode.OVERLOADED, ErrorCode.NO_RESPONDERS):
                    raise
                delay = _delay(attempt, error)
                remaining = call.context.remaining()
                if delay is None or (remaining is not None and remaining <= delay):
                    raise
                call.context.report("retry", error.message, level="warning", attempt=attempt + 2, delay=delay)
            await asyncio.sleep(delay)
        return await proceed(call)


def _delay(attempt: int, error: CallError) -> float | None:
    """Return the seconds to wait; ``None`` if the server asks to wait for longer than 5 s."""
    asked = error.details.get("retryAfter") if isinstance(error.details, dict) else None
    if isinstance(asked, (int, float)) and not isinstance(asked, bool):
        return float(asked) if 0 <= asked <= _LONGEST_DELAY else None
    return float(min(_LONGEST_DELAY, _FIRST_DELAY * 2**attempt) * random.uniform(0.5, 1.0))  # noqa: S311  # no secret
