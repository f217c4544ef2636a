"""Calls that are made again: what did not run, and what may run twice."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad_calls.calling.pending import MAX_ANSWERED, PendingRequests
from operad_calls.requests import Said
from operad_calls.serving.listing import DESCRIBE

Retry = bool | Literal["unsent", "safe"]
"""Whether a call is made again: never; whatever may have become of it; what did not run; that, and what may."""

MODES = (True, "unsent", "safe")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_ABSENT = 5.0
"""Seconds for which an operation that nobody serves may be about to come back."""
_YOUNG = 10.0
"""Seconds after a break in which those who serve may not be back yet."""
_NOBODY = (ErrorCode.NO_RESPONDERS, ErrorCode.OPERATION_NOT_FOUND)

Call = Callable[[Said], Awaitable[ResponseEnvelope[Any]]]


class Retries:
    """Calls until one of them ends as a call may end.

    Args:
        requests: the requests of the map.
        call: calls once.
    """

    def __init__(self, requests: PendingRequests, call: Call) -> None:
        self._requests = requests
        self._call = call
        self._repeatable: dict[str, bool] = {}
        """What peers said of operations: whether they may run twice."""

    async def call(
        self, said: Said, retry: Retry, sign: Callable[[Said], None] | None = None
    ) -> ResponseEnvelope[Any]:
        """Call, and call again where that is right, until the deadline.

        Args:
            said: the call.
            retry: see `Retry`.
            sign: signs it anew before each attempt.
        """
        may_have_run: CallError | None = None
        pause, began = _FIRST_PAUSE, time.monotonic()
        while True:
            if sign is not None:
                sign(said)
            try:
                return await self._call(said)
            except CallError as error:
                said.request_id = None  # an id is of one request
                again = await self._again(error, said, retry, began) and await self._recovered(said.limit, pause)
                if not again:
                    if may_have_run is not None and error.ran is False:
                        raise may_have_run from error  # that the last attempt did not run is not the whole truth
                    raise
                if error.ran is None:
                    may_have_run = error
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _again(self, error: CallError, said: Said, retry: Retry, began: float) -> bool:
        if error.ran is False:
            if error.code in _NOBODY:
                return self._may_come_back(said.operation_id) and time.monotonic() - began < _ABSENT
            return error.code in (ErrorCode.UNAVAILABLE, ErrorCode.OVERLOADED)
        if error.code != ErrorCode.UNAVAILABLE or retry == "unsent":
            return False
        return retry is True or await self._is_repeatable(said)

    def _may_come_back(self, operation_id: str) -> bool:
        """Whether somebody served it a moment ago: a misspelt id fails at once."""
        requests = self._requests
        after_break = requests.epoch > 1 and time.monotonic() - requests.up_since < _YOUNG
        return after_break or operation_id in requests.answered

    async def _is_repeatable(self, said: Said) -> bool:
        """Whether those who serve it say that it may run twice; what nobody says is no."""
        known = self._repeatable.get(said.operation_id)
        if known is not None:
            return known
        asking = Said(DESCRIBE, {"operationId": said.operation_id})
        asking.limit = said.limit
        try:
            spec = (await self.call(asking, True)).data
            known = spec["type"] == "query" or (spec["type"] == "mutation" and spec.get("idempotent") is True)
        except (CallError, KeyError, TypeError, AttributeError):
            return False
        self._repeatable[said.operation_id] = known
        if len(self._repeatable) > MAX_ANSWERED:
            del self._repeatable[next(iter(self._repeatable))]
        return known

    async def _recovered(self, limit: float, pause: float) -> bool:
        """Wait a little, and until the link is up; answers whether there is time left then."""
        requests = self._requests
        if requests.link is None:
            return False
        try:
            async with asyncio.timeout(limit / 1000 - time.time()):
                # Spread out: those who were cut off together would come back together.
                await asyncio.sleep(random.uniform(0.0, pause))  # noqa: S311  # no secret depends on it
                await requests.up.wait()
        except TimeoutError:
            return False
        return limit / 1000 > time.time()
