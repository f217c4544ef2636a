"""Questions of a handler to the client of its call, such as forms for the user and messages for the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from operad import CallError, ErrorCode, OperationContext


class CallClient(Protocol):
    """A client that a handler can ask questions. Values are the JSON of the Model Context Protocol.

    It is the ``client`` of an `OperationContext`, so it also has ``progress`` and ``log``. The questions `elicit`,
    `sample` and `roots` raise `CallError` if the client lacks the capability, or its answer cannot be used.
    """

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client declared, by name: ``elicitation``, ``sampling``, ``roots``, …"""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress to the client. ``total`` is ``None`` if unknown, ``message`` if there is no text."""

    async def log(self, level: str, data: Any, logger: str | None) -> None:
        """Send ``data`` as a log message to the client, under the name ``logger`` unless it is ``None``.

        ``level`` is ``debug``, ``info``, ``notice``, ``warning``, ``error``, ``critical``, ``alert`` or
        ``emergency``.
        """

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None, key: str | None
    ) -> Mapping[str, Any]:
        """Ask the client's user to fill in the form ``schema``, or to visit ``url``. One of the two is ``None``.

        Return ``{action, content?}``. For ``key`` see `ClientOfCall.elicit`.
        """

    async def sample(self, request: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
        """Ask the client's model. ``request`` has the parameters of ``sampling/createMessage``.

        Return ``{role, content, model, stopReason?}``.
        """

    async def roots(self, key: str | None) -> Sequence[Mapping[str, Any]]:
        """Return the client's roots, the places in which a server may work: ``[{uri, name?}]``."""


def askable(client: object) -> CallClient | None:
    """Return ``client`` if it has the questions of `CallClient`, otherwise ``None``."""
    found: Any = client
    return found if hasattr(found, "elicit") else None


def client_of(context: OperationContext) -> ClientOfCall:
    """Return the client that waits for the call of ``context``, for questions: ``client_of(context).elicit(…)``.

    A nested call has the client of the outer call. If the client cannot be asked, questions raise `CallError`.
    """
    return ClientOfCall(askable(context.client))


class ClientOfCall:
    """The client that waits for a call, for questions of the handler. `client_of` returns it."""

    def __init__(self, client: CallClient | None) -> None:
        self._client = client

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client declared, by name; empty if the client cannot be asked."""
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

        With protocol revision 2026-07-28 a question ends the request. The client sends the request again with the
        answer. Then the handler runs again from its start, and questions that have an answer return it. So code
        before a question can run several times. Concurrent questions (``asyncio.gather``) are sent together.

        Args:
            message: the question.
            schema: the form: the JSON Schema of an object with strings, numbers, booleans and enums.
            url: the address to visit, instead of a form.
            key: a name by which the answer is found when the handler runs again. The default is the question's
                kind and number, such as ``elicitation-1``. Set a key if the order of questions can differ.

        Returns:
            ``{"action": "accept", "content": {…}}``, or the action ``decline`` or ``cancel``.

        Raises:
            CallError: the client cannot be asked, lacks the capability, or its answer does not fit the form.
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
            key: the question's name, see `elicit`.
            options: further fields of the protocol's ``sampling/createMessage``, such as ``systemPrompt``.

        Returns:
            ``{role, content, model, stopReason?}``

        Raises:
            CallError: the client cannot be asked, lacks the capability, or its answer cannot be used.
        """
        request = {"messages": [dict(message) for message in messages], "maxTokens": max_tokens, **options}
        return await self._asked("sampling").sample(request, key)

    async def roots(self, *, key: str | None = None) -> Sequence[Mapping[str, Any]]:
        """Return the client's roots, the places in which a server may work: ``[{uri, name?}]``.

        The handler may run again from its start, and ``key`` is the question's name, as with `elicit`.

        Raises:
            CallError: the client cannot be asked, lacks the capability, or its answer cannot be used.
        """
        return await self._asked("roots").roots(key)

    def _asked(self, capability: str) -> CallClient:
        if self._client is None:
            message = f"no client can be asked for {capability}; make the call with a client that can be asked"
            details = {"message": message, "requiredCapability": capability}
            raise CallError(ErrorCode.EXECUTION_ERROR, message, details)
        return self._client
