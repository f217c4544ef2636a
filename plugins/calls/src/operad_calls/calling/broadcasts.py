"""Requests to every peer that serves a topic."""

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
from operad_calls.requests import CallRequest, Pending, wake, woken

logger = logging.getLogger("operad.calls")

LATE = 30.0
"""Seconds for which late responses are passed on, if the caller wants them."""


class Broadcast(Pending):
    """A request to every peer that serves a topic.

    The caller waits for a limited time. If the caller wants late responses, the broadcast then lingers: it passes
    them on one by one and keeps none. A lingering broadcast is not a pending call.
    """

    def __init__(self, requests: PendingRequests, topic: str, operation_id: str) -> None:
        super().__init__(operation_id, requests.new_id())
        self.requests = requests
        self.topic = topic
        self.answers: list[Any] = []
        self.expected: int | None = None
        """The number of peers that received the request; ``None`` if the transport does not know it."""
        self.received = 0
        self.waiter: asyncio.Future[None] | None = None
        self.late: Callable[[Any], None] | None = None
        """Receives late responses; ``None`` as long as the caller waits."""
        self.timer: asyncio.TimerHandle | None = None
        """The timer that ends the lingering."""

    @property
    def is_complete(self) -> bool:
        """Whether no more responses are expected: all peers have responded, or the request failed."""
        return self.expected is not None and self.received >= self.expected

    def accepts(self, peer: str | None) -> bool:
        """See `Pending.accepts`: any peer may respond."""
        return True

    def on_event(self, type_: str, payload: dict[str, Any]) -> None:
        """See `Pending.on_event`."""
        if type_ == protocol.COMPLETED and type(payload.get("count")) is int:
            self.expected = payload["count"]
        elif type_ == protocol.RESPONDED:
            try:
                data = self.requests.envelope(payload.get("output")).data
            except CallError as error:
                logger.warning("a response to %s is unusable: %s", self.operation_id, error)
            else:
                self.received += 1
                (self.late or self.answers.append)(data)
        elif type_ == protocol.ERROR:
            self.received += 1
        wake(self.waiter)
        if self.late is not None and self.is_complete:
            self.stop()

    def fail(self, error: CallError) -> None:
        """End the wait, because no more responses will arrive. The caller gets the responses so far."""
        self.expected = 0
        wake(self.waiter)
        if self.late is not None:
            self.stop()

    def linger(self, late: Callable[[Any], None], seconds: float) -> None:
        """Pass late responses to ``late`` for the given number of seconds."""
        requests = self.requests
        self.late = late
        self.timer = requests.loop.call_later(seconds, self.stop)
        requests.end(self)
        requests.lingering[self.request_id] = self

    def stop(self) -> None:
        """Stop waiting for responses. Notify the peers unless all of them have responded."""
        if self.timer is not None:
            self.timer.cancel()
        if self.requests.lingering.pop(self.request_id, None) is None:
            self.requests.drop(self)
        if not self.is_complete:
            self.target = f"all:{self.topic}"
            self.requests.abort(self)


async def broadcast(
    requests: PendingRequests,
    topic: str,
    operation_id: str,
    input: Any,
    wait: float,
    late: Callable[[Any], None] | None = None,
) -> list[Any]:
    """Send a request to every peer of a topic, and return the data; see `PendingRequestMap.ask_all`."""
    link = requests.admit()
    call, now, loop = CallRequest(operation_id, input), time.time(), requests.loop
    call.limit = (now + (wait if late is None else max(wait, LATE))) * 1000
    pending = Broadcast(requests, topic, operation_id)
    requests.table[pending.request_id] = pending
    try:
        await link.send(f"all:{topic}", requests.event(call, pending.request_id, link, now))
        limit = loop.time() + wait
        while not pending.is_complete and (seconds := limit - loop.time()) > 0:
            await woken(pending, seconds)
        if late is not None and not pending.is_complete and pending.request_id in requests.table:
            pending.linger(late, max(wait, LATE) - wait)
    except NoRespondersError:
        return []
    except TransportError as error:
        raise requests.not_sent(error, operation_id) from error
    finally:
        if pending.late is None:
            pending.stop()
    return pending.answers
