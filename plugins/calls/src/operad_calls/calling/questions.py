"""Questions of a call map to everybody."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from operad.errors import CallError
from operad.transports import NoRespondersError, TransportError
from operad_calls import protocol
from operad_calls.calling.pending import PendingRequests
from operad_calls.requests import Pending, Said, wake

logger = logging.getLogger("operad.calls")

LATE = 30.0
"""Seconds in which an answer counts for whoever wants late ones, too."""


class Asked(Pending):
    """A question to everybody."""

    __slots__ = ("answers", "came", "end", "expected", "late", "requests", "waiter")

    def __init__(self, operation_id: str, requests: PendingRequests) -> None:
        super().__init__(operation_id, requests.new_id())
        self.requests = requests
        self.answers: list[Any] = []
        self.expected: int | None = None
        self.came = 0
        """How many have answered; late answers are not kept, whoever sends how many."""
        self.waiter: asyncio.Future[None] | None = None
        self.late: Callable[[Any], None] | None = None
        """What gets the answers that nobody waits for any more."""
        self.end: asyncio.TimerHandle | None = None
        """Forgets it."""

    @property
    def complete(self) -> bool:
        """Whether all whom the transport asked have answered."""
        return self.expected is not None and self.came >= self.expected

    def fail(self, error: CallError) -> None:
        """See `Pending.fail`: what has come is all that will."""
        self.expected = 0
        self.waits_no_more()
        wake(self.waiter)

    def linger(self, late: Callable[[Any], None], at: float, forget: Callable[[], None]) -> None:
        """Count late answers up to a time of the loop; nobody waits for them: it takes no call's place."""
        self.late = late
        self.end = self.requests.loop.call_at(at, forget)
        self.requests.most += 1

    def waits_no_more(self) -> None:
        """Late answers do not count any more; idempotent."""
        if self.end is not None:
            self.end.cancel()
            self.end = None
            self.requests.most -= 1


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
        asked = Asked(operation_id, requests)
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
                asked.linger(late, limit - wait + max(wait, LATE), lambda: self._forget(asked, topic))
        except NoRespondersError:
            return []
        except TransportError as error:
            raise requests.not_sent(error, operation_id) from error
        finally:
            if asked.late is None:
                self._forget(asked, topic)
        return asked.answers

    def _forget(self, asked: Asked, topic: str) -> None:
        asked.waits_no_more()
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
                asked.came += 1
                if asked.late is None:
                    asked.answers.append(data)
                else:
                    asked.late(data)
        elif type_ == protocol.ERROR:
            asked.came += 1
        wake(asked.waiter)
        if asked.end is not None and asked.complete:
            self._forget(asked, "")
