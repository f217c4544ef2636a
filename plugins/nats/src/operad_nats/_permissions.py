"""Permission errors of a server, which are assigned to requests by their subjects."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from operad.plugin import ErrorCode, Event
from operad_calls.transport import protocol

_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)
_REMEMBERED = 1_000
"""The number of last requests to which an error is assigned. The server sends errors within a round trip."""


class Permissions:
    """The last requests of a link, and the subscriptions that the server refused.

    Subjects are compared without regard to case, because nats-py converts messages of the server to lower case.
    """

    def __init__(self) -> None:
        self._requests: deque[tuple[str, str, str]] = deque(maxlen=_REMEMBERED)
        self._refused: set[str] = set()

    def note(self, subject: str, payload: dict[str, Any]) -> None:
        """Remember a request and the subject to which it is sent."""
        self._requests.append((subject, payload.get("requestId", ""), payload.get("operationId", "")))

    def violation(self, words: str) -> list[Event] | None:
        """Return error events for the requests that the server did not permit, according to its message.

        If the message is about a subscription, remember the subscription and return an empty list. If it is not a
        permission error, return None.
        """
        found = _VIOLATION.search(words)
        if found is None:
            return None
        kind, named = found[1].lower(), found[2].lower()
        if kind == "subscription":
            self._refused.add(named)
            return []
        ended = [request for request in self._requests if request[0].lower() == named]
        for request in ended:
            self._requests.remove(request)
        return [_denied(*request) for request in ended]

    def is_refused(self, subject: str) -> bool:
        """Return True if the server has refused a subscription to a subject, and forget the refusal."""
        refused = subject.lower() in self._refused
        self._refused.discard(subject.lower())
        return refused

    def forget(self) -> None:
        """Forget all requests and refused subscriptions, because the connection is lost."""
        self._requests.clear()
        self._refused.clear()


def _denied(subject: str, request_id: str, operation_id: str) -> Event:
    message = f'"{operation_id}": the NATS server does not permit this user to publish to {subject}'
    return protocol.error_event(request_id, ErrorCode.ACCESS_DENIED, message, {"operationId": operation_id})
