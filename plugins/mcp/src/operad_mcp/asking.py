"""Questions of a handler to the client of its call: to the user, to the client's model, and for its roots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from operad import CallError, ErrorCode, OperationContext


class CallClient(Protocol):
    """A client that a handler can ask. Values are the JSON of the Model Context Protocol.

    It is the ``client`` of an `OperationContext`, so it also has ``progress`` and ``log``. Questions raise
    `CallError` if the client lacks the capability.
    """

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The client's declared capabilities: ``elicitation``, ``sampling``, ``roots``."""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report the progress of the call to the client."""

    async def log(self, level: str, data: Any, logger: str | None) -> None:
        """Send a log message to the client. ``level`` is a severity of RFC 5424, 6.2.1, such as ``info``."""

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None, key: str | None
    ) -> Mapping[str, Any]:
        """Ask the client's user to fill in a form, or to visit a URL. Return ``{action, content?}``."""

    async def sample(self, request: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
        """Ask the client's model. Return ``{role, content, model, stopReason?}``."""

    async def roots(self, key: str | None) -> Sequence[Mapping[str, Any]]:
        """Return the client's roots, ``[{uri, name?}]``."""


def askable(client: object) -> CallClient | None:
    """Return ``client`` if it can be asked; ``None`` if its protocol has no questions."""
    found: Any = client
    return found if hasattr(found, "elicit") else None


def client_of(context: OperationContext) -> ClientOfCall:
    """Return the client that waits for a call. Its handler asks it by ``await client_of(context).elicit(…)``.

    Nested calls have the same client. If no client can be asked, questions raise `CallError`.
    """
    return ClientOfCall(askable(context.client))


class ClientOfCall:
    """The client of a call; made by `client_of`."""

    def __init__(self, client: CallClient | None) -> None:
        self._client = client

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The client's capabilities: ``elicitation``, ``sampling``, ``roots``; empty if no client can be asked."""
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
            ValueError: neither or both of ``schema`` and ``url`` are given.
        """
        if (schema is None) == (url is None):
            given = "neither" if schema is None else "both"
            raise ValueError(f"elicit: expected either schema (a form) or url, got {given}")
        return await self._asked("elicitation").elicit(message, schema, url, key)

    async def sample(
        self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int, key: str | None = None, **options: Any
    ) -> Mapping[str, Any]:
        """Ask the client's model. The handler may run again from its start, as with `elicit`.

        Args:
            messages: ``[{"role": "user", "content": {"type": "text", "text": …}}]``
            max_tokens: the maximum number of tokens in the answer.
            key: the question's name; needed only if the order of questions varies.
            options: further fields of the protocol's ``sampling/createMessage``, such as ``systemPrompt``.

        Returns:
            ``{role, content, model, stopReason?}``

        Raises:
            CallError: no client can be asked, or its answer cannot be used.
        """
        request = {"messages": [dict(message) for message in messages], "maxTokens": max_tokens, **options}
        return await self._asked("sampling").sample(request, key)

    async def roots(self, *, key: str | None = None) -> Sequence[Mapping[str, Any]]:
        """Ask for the client's roots, and return them: ``[{uri, name?}]``.

        The handler may run again from its start, as with `elicit`.

        Raises:
            CallError: no client can be asked, or its answer cannot be used.
        """
        return await self._asked("roots").roots(key)

    def _asked(self, capability: str) -> CallClient:
        if self._client is None:
            message = f"no client can be asked: this call has no client with the capability {capability}"
            details = {"message": message, "requiredCapability": capability}
            raise CallError(ErrorCode.EXECUTION_ERROR, message, details)
        return self._client
