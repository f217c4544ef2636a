"""Repetition of failed calls that did not run, or that may run twice."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad_calls.calling.pending import MAX_ANSWERED, PendingRequests
from operad_calls.requests import CallRequest, remember
from operad_calls.serving.listing import DESCRIBE

Retry = bool | Literal["unsent", "safe"]
"""When a lost or refused call is repeated. ``False``: never; ``"unsent"``: if it did not run; ``"safe"``: also if
the operation may run twice; ``True``: always. Calls that fail for other reasons are not repeated."""

MODES = (True, "unsent", "safe")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_ABSENT = 5.0
"""Seconds for which a call is repeated although no peer serves its operation."""
_YOUNG = 10.0
"""Seconds after a reconnection in which peers may still be reconnecting."""
_NOT_SERVED = (ErrorCode.NO_RESPONDERS, ErrorCode.OPERATION_NOT_FOUND)

Call = Callable[[CallRequest], Awaitable[ResponseEnvelope[Any]]]


class Retries:
    """The repetition of calls.

    Args:
        requests: the requests of the map.
        call: makes one attempt at a call.
    """

    def __init__(self, requests: PendingRequests, call: Call) -> None:
        self._requests = requests
        self._call = call
        self._repeatable: dict[str, bool] = {}
        """Whether each operation may run twice, as a peer describes it."""

    async def call(
        self, call: CallRequest, retry: Retry, sign: Callable[[CallRequest], None] | None = None
    ) -> ResponseEnvelope[Any]:
        """Make a call, and repeat it as ``retry`` allows until the deadline. Raises `CallError` if that fails.

        If an earlier attempt may have run and the last one did not, the error of the earlier attempt is raised, so
        that the caller does not conclude that nothing ran.

        Args:
            call: the call.
            retry: see `Retry`.
            sign: signs the call again before each attempt; ``None`` if it needs no signature.
        """
        may_have_run: CallError | None = None
        pause, began = _FIRST_PAUSE, time.monotonic()
        while True:
            if sign is not None:
                sign(call)
            try:
                return await self._call(call)
            except CallError as error:
                call.request_id = None  # each attempt has an id of its own
                again = await self._may_repeat(error, call, retry, began) and await self._wait(call.limit, pause)
                if not again:
                    if may_have_run is not None and error.ran is False:
                        raise may_have_run from error
                    raise
                if error.ran is None:
                    may_have_run = error
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _may_repeat(self, error: CallError, call: CallRequest, retry: Retry, began: float) -> bool:
        if error.ran is False:
            if error.code in _NOT_SERVED:
                return self._may_come_back(call.operation_id) and time.monotonic() - began < _ABSENT
            return error.code in (ErrorCode.UNAVAILABLE, ErrorCode.OVERLOADED)
        if error.code != ErrorCode.UNAVAILABLE or retry == "unsent":
            return False
        return retry is True or await self._is_repeatable(call)

    def _may_come_back(self, operation_id: str) -> bool:
        """Return True if a peer may serve the operation again soon. A misspelled id fails immediately."""
        requests = self._requests
        after_break = requests.epoch > 1 and time.monotonic() - requests.up_since < _YOUNG
        return after_break or operation_id in requests.answered

    async def _is_repeatable(self, call: CallRequest) -> bool:
        """Return True if a peer describes the operation as one that may run twice."""
        known = self._repeatable.get(call.operation_id)
        if known is not None:
            return known
        asking = CallRequest(DESCRIBE, {"operationId": call.operation_id})
        asking.limit = call.limit
        try:
            spec = (await self.call(asking, True)).data
            known = spec["type"] == "query" or (spec["type"] == "mutation" and spec.get("idempotent") is True)
        except (CallError, KeyError, TypeError, AttributeError):
            return False
        remember(self._repeatable, call.operation_id, known, MAX_ANSWERED)
        return known

    async def _wait(self, limit: float, pause: float) -> bool:
        """Pause, then wait until the link is up. Return True if time is left for another attempt."""
        requests = self._requests
        if requests.link is None:
            return False
        try:
            async with asyncio.timeout(limit / 1000 - time.time()):
                # A random pause: callers that lost their connection together would come back together.
                await asyncio.sleep(random.uniform(0.0, pause))  # noqa: S311  # no secret depends on it
                await requests.up.wait()
        except TimeoutError:
            return False
        return limit / 1000 > time.time()
