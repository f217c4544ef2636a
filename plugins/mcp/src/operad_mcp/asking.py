"""Questions to the client of a call while its handler runs: forms, the client's model, the client's roots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from operad import CallError, ErrorCode, OperationContext


class CallClient(Protocol):
    """A client that can be asked. Values are the JSON of the Model Context Protocol.

    It is the ``client`` of an `OperationContext`, so it has ``progress`` and ``log``, too. Questions raise
    `CallError` if the client lacks the capability.
    """

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The client's declared capabilities: ``elicitation``, ``sampling``, ``roots``."""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Receive the progress of the call."""

    async def log(self, level: str, data: Any, logger: str | None) -> None:
        """Receive a log message; ``level`` is a severity of RFC 5424, 6.2.1, such as ``info``."""

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None, key: str | None
    ) -> Mapping[str, Any]:
        """Ask the user to fill in a form or to visit a URL; return ``{action, content?}``."""

    async def sample(self, request: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
        """Ask the client's model; return ``{role, content, model, stopReason?}``."""

    async def roots(self, key: str | None) -> Sequence[Mapping[str, Any]]:
        """Return the client's roots, ``[{uri, name?}]``."""


def askable(client: object) -> CallClient | None:
    """Return ``client`` if it can be asked, else ``None``: a call may come from a server of another protocol."""
    found: Any = client
    return found if hasattr(found, "elicit") else None


def client_of(context: OperationContext) -> ClientOfCall:
    """Return the client that waits for a call, as its handler can ask it: ``await client_of(context).elicit(…)``.

    Nested calls have the same client. If no client can be asked, questions raise `CallError`.
    """
    return ClientOfCall(askable(context.client))


class ClientOfCall:
    """The client of a call; made by `client_of`."""

    def __init__(self, client: CallClient | None) -> None:
        self._client = client

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The client's capabilities: ``elicitation``, ``sampling``, ``roots``; empty without a client."""
        return {} if self._client is None else self._client.capabilities

    async def elicit(
        self,
        message: str,
        schema: Mapping[str, Any] | None = None,
        *,
        url: str | None = None,
        key: str | None = None,
    ) -> Mapping[str, Any]:
        """Ask the client's user to fill in a form, or to visit a URL.

        With protocol revision 2026-07-28 the call ends with the question. The handler then runs again from its
        start with the answers so far; its code before the last question runs again. Questions that are asked
        together (``asyncio.gather``) are sent together.

        Args:
            message: the question.
            schema: the form: a flat object schema of strings, numbers, booleans and enums.
            url: an address to visit instead of a form.
            key: the question's name; needed only if the order of questions varies.

        Returns:
            ``{"action": "accept", "content": {…}}``, or the action ``decline`` or ``cancel``.

        Raises:
            CallError: no client can be asked, or the answer does not fit the form.
        """
        if (schema is None) == (url is None):
            raise ValueError("elicit takes a schema (a form) or a url, and not both")
        return await self._asked("elicitation").elicit(message, schema, url, key)

    async def sample(
        self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int, key: str | None = None, **options: Any
    ) -> Mapping[str, Any]:
        """Ask the client's model; as `elicit`.

        Args:
            messages: ``[{"role": "user", "content": {"type": "text", "text": …}}]``
            max_tokens: the maximum length of the answer.
            key: as for `elicit`.
            options: further fields of the protocol's ``sampling/createMessage``, such as ``systemPrompt``.

        Returns:
            ``{role, content, model, stopReason?}``

        Raises:
            CallError: no client can be asked.
        """
        request = {"messages": [dict(message) for message in messages], "maxTokens": max_tokens, **options}
        return await self._asked("sampling").sample(request, key)

    async def roots(self, *, key: str | None = None) -> Sequence[Mapping[str, Any]]:
        """Return the client's roots, ``[{uri, name?}]``; as `elicit`. Raises `CallError` if it cannot be asked."""
        return await self._asked("roots").roots(key)

    def _asked(self, capability: str) -> CallClient:
        if self._client is None:
            message = f"no client can be asked: this call has no client with the capability {capability}"
            details = {"message": message, "requiredCapability": capability}
            raise CallError(ErrorCode.EXECUTION_ERROR, message, details)
        return self._client
