"""Questions of a call map to everybody."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from operad import protocol
from operad.calls.pending import PendingRequests
from operad.calls.requests import Pending, Said, wake
from operad.errors import CallError
from operad.transports import NoRespondersError, TransportError

logger = logging.getLogger("operad.calls")

LATE = 30.0
"""Seconds in which an answer counts for whoever wants late ones, too."""


class Asked(Pending):
    """A question to everybody."""

    __slots__ = ("answers", "end", "expected", "late", "refused", "waiter")

    def __init__(self, operation_id: str, request_id: str) -> None:
        super().__init__(operation_id, request_id)
        self.answers: list[Any] = []
        self.expected: int | None = None
        self.refused = 0
        self.waiter: asyncio.Future[None] | None = None
        self.late: Callable[[Any], None] | None = None
        """What gets the answers that nobody waits for any more."""
        self.end: asyncio.TimerHandle | None = None
        """Forgets it."""

    @property
    def complete(self) -> bool:
        """Whether all whom the transport asked have answered."""
        return self.expected is not None and len(self.answers) + self.refused >= self.expected

    def fail(self, error: CallError) -> None:
        """See `Pending.fail`: what has come is all that will."""
        self.expected = 0
        if self.end is not None:
            self.end.cancel()
        wake(self.waiter)


class Questions:
    """Questions, and what comes in for them."""

    def __init__(self, requests: PendingRequests) -> None:
        self._requests = requests

    async def ask(
        self, topic: str, operation_id: str, input: Any, wait: float, late: Callable[[Any], None] | None = None
    ) -> list[Any]:
        """See `PendingRequestMap.ask_all`."""
        requests = self._requests
        link = requests.admit()
        said, now = Said(operation_id, input), time.time()
        said.limit = (now + (wait if late is None else max(wait, LATE))) * 1000
        asked = Asked(operation_id, requests.new_id())
        requests.table[asked.request_id] = asked
        try:
            await link.send(f"all:{topic}", requests.event(said, asked.request_id, link, now))
            limit = requests.loop.time() + wait
            while not asked.complete and (seconds := limit - requests.loop.time()) > 0:
                asked.waiter = requests.loop.create_future()
                timer = requests.loop.call_later(seconds, wake, asked.waiter)
                try:
                    await asked.waiter
                finally:
                    timer.cancel()
            if late is not None and asked.request_id in requests.table and not asked.complete:
                asked.late = late
                asked.end = requests.loop.call_at(limit - wait + max(wait, LATE), self._forget, asked, topic)
        except NoRespondersError:
            return []
        except TransportError as error:
            raise requests.not_sent(error, operation_id) from error
        finally:
            if asked.late is None:
                self._forget(asked, topic)
        return list(asked.answers)

    def _forget(self, asked: Asked, topic: str) -> None:
        self._requests.drop(asked)
        if not asked.complete:
            asked.target = f"all:{topic}"
            self._requests.abort(asked)

    def on_event(self, asked: Asked, type_: str, payload: dict[str, Any]) -> None:
        """What comes in for a question."""
        if type_ == protocol.COMPLETED and type(payload.get("count")) is int:
            asked.expected = payload["count"]
        elif type_ == protocol.RESPONDED:
            try:
                data = self._requests.envelope(payload.get("output")).data
            except CallError as error:
                logger.warning("an answer to %s is unusable: %s", asked.operation_id, error)
            else:
                asked.answers.append(data)
                if asked.late is not None:
                    asked.late(data)
        elif type_ == protocol.ERROR:
            asked.refused += 1
        wake(asked.waiter)
        if asked.end is not None and asked.complete:
            asked.end.cancel()
            self._forget(asked, "")
