"""Questions of a call map to everybody."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from operad import protocol
from operad.calls.pending import PendingRequests
from operad.calls.requests import Pending, Said, wake
from operad.errors import CallError
from operad.transports import NoRespondersError, TransportError

logger = logging.getLogger("operad.calls")


class Asked(Pending):
    """A question to everybody."""

    __slots__ = ("answers", "expected", "refused", "waiter")

    def __init__(self, operation_id: str, request_id: str) -> None:
        super().__init__(operation_id, request_id)
        self.answers: list[Any] = []
        self.expected: int | None = None
        self.refused = 0
        self.waiter: asyncio.Future[None] | None = None

    @property
    def complete(self) -> bool:
        """Whether all whom the transport asked have answered."""
        return self.expected is not None and len(self.answers) + self.refused >= self.expected

    def fail(self, error: CallError) -> None:
        """See `Pending.fail`: what has come is all that will."""
        self.expected = 0
        wake(self.waiter)


class Questions:
    """Questions, and what comes in for them."""

    def __init__(self, requests: PendingRequests) -> None:
        self._requests = requests

    async def ask(self, topic: str, operation_id: str, input: Any, wait: float) -> list[Any]:
        """See `PendingRequestMap.ask_all`."""
        requests = self._requests
        link = requests.admit()
        said, now = Said(operation_id, input), time.time()
        said.limit = (now + wait) * 1000
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
        except NoRespondersError:
            return []
        except TransportError as error:
            raise requests.not_sent(error, operation_id) from error
        finally:
            requests.drop(asked)
            if not asked.complete:
                asked.target = f"all:{topic}"
                requests.abort(asked)
        return asked.answers

    def on_event(self, asked: Asked, type_: str, payload: dict[str, Any]) -> None:
        """What comes in for a question."""
        if type_ == protocol.COMPLETED and type(payload.get("count")) is int:
            asked.expected = payload["count"]
        elif type_ == protocol.RESPONDED:
            try:
                asked.answers.append(self._requests.envelope(payload.get("output")).data)
            except CallError as error:
                logger.warning("an answer to %s is unusable: %s", asked.operation_id, error)
        elif type_ == protocol.ERROR:
            asked.refused += 1
        wake(asked.waiter)
