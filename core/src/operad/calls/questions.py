"""Questions of a call map to everybody."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

from operad import protocol
from operad.calls.requests import Pending, request
from operad.calls.upkeep import Upkeep
from operad.errors import CallError
from operad.transports import NoRespondersError, TransportError

logger = logging.getLogger("operad.calls")


class Asked(Pending):
    """A question to everybody."""

    __slots__ = ("answers", "expected", "refused", "waiter")

    def __init__(self, operation_id: str) -> None:
        super().__init__(operation_id)
        self.answers: list[Any] = []
        self.expected: int | None = None
        self.refused = 0
        self.waiter: asyncio.Future[None] | None = None

    @property
    def complete(self) -> bool:
        return self.expected is not None and len(self.answers) + self.refused >= self.expected

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def fail(self, error: CallError) -> None:
        self.expected = 0  # what has come is all that will
        self.wake()


class Questions(Upkeep):
    """Questions, and what comes in for them."""

    async def ask_all(self, topic: str, operation_id: str, input: Any = None, *, wait: float = 0.5) -> list[Any]:
        """Ask everybody who registered ``all:<topic>``, and collect the data of their answers.

        Args:
            topic: the topic.
            operation_id: what is asked.
            input: its input.
            wait: seconds to wait for answers; over at once when the transport knows that all have answered.

        Raises:
            CallError: the question could not be sent.
        """
        link = self._admit()
        request_id = self._new_id()
        event = request(request_id, operation_id, input, None, None, None, link.inbox)
        event["payload"]["timeoutMs"] = math.ceil(wait * 1000)
        asked = Asked(operation_id)
        self._pending[request_id] = asked
        try:
            await link.send(f"all:{topic}", event)
            limit = self._loop.time() + wait
            while not asked.complete and (seconds := limit - self._loop.time()) > 0:
                asked.waiter = self._loop.create_future()
                timer = self._loop.call_later(seconds, asked.wake)
                try:
                    await asked.waiter
                finally:
                    timer.cancel()
        except NoRespondersError:
            return []
        except TransportError as error:
            raise self._not_sent(error, operation_id) from error
        finally:
            self._pending.pop(request_id, None)
            if not asked.complete:
                asked.target = f"all:{topic}"
                self._abort(request_id, asked, link)
        return asked.answers

    def _on_asked(self, asked: Asked, type_: str, payload: dict[str, Any]) -> None:
        if type_ == protocol.COMPLETED and type(payload.get("count")) is int:
            asked.expected = payload["count"]
        elif type_ == protocol.RESPONDED:
            try:
                asked.answers.append(self._envelope(payload.get("output")).data)
            except CallError as error:
                logger.warning("an answer to %s is unusable: %s", asked.operation_id, error)
        elif type_ == protocol.ERROR:
            asked.refused += 1
        asked.wake()
