"""The handling of a server's requests to its client (elicitation, sampling, roots) and of its log messages.

The application's callbacks use the JSON of the protocol.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from operad import CallError, ErrorCode
from operad_mcp.config import MCPClientConfig, maybe_await, takes_two
from operad_mcp.foreign import clean_text, clean_words, one_line
from operad_mcp.wire.calls import Calls
from operad_mcp.wire.link import KEPT
from operad_mcp.wire.protocol import BUSY, INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, ServerLogger

if TYPE_CHECKING:
    from operad_mcp.asking import CallClient
    from operad_mcp.config import MCPCall

Json = dict[str, Any]
_MOST_ASKED = 64
"""The maximum number of a server's questions that are handled at the same time. Further ones are rejected."""
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}


class Declined(Exception):
    """The rejection of a request that the server sent.

    Args:
        code: the code of the JSON-RPC error that the server receives.
        message: the message of that error.
        option: the callback of `MCPClientConfig` that would handle the request; ``None`` if no callback would.
    """

    def __init__(self, code: int, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.option = option


class Callbacks:
    """The handlers of a server's requests and log messages, which call the callbacks of a configuration."""

    def __init__(self, config: MCPClientConfig, logger: ServerLogger, calls: Calls) -> None:
        self._config = config
        self._logger = logger
        self._calls = calls
        self._reporting: set[asyncio.Future[Any]] = set()
        self._asked = 0

    def capabilities(self) -> Json:
        """Return the capabilities to offer: ``elicitation``, ``sampling`` and ``roots``, each if configured."""
        config = self._config
        offered: Json = {}
        if config.elicitation is not None:
            offered["elicitation"] = {"form": {}, "url": {}}
        if config.sampling is not None:
            offered["sampling"] = {"tools": {}}
        if config.roots is not None:
            offered["roots"] = {"listChanged": True}
        return offered

    async def answer(self, method: str, params: Json) -> Json:
        """Return the result of a request that the server sent.

        Raises `Declined` to reject the request, also if a callback raises `CallError`. Other errors of callbacks
        are raised unchanged.
        """
        if method == "ping":
            return {}
        if method == "elicitation/create":
            return await self._elicit({"mode": "form", **params})
        if method == "sampling/createMessage":
            return await self._sample(params)
        if method == "roots/list":
            return await self._roots()
        raise Declined(METHOD_NOT_FOUND, "Method not found")

    def log(self, params: Mapping[str, Any]) -> None:
        """Pass on a log message to the call's observers, and to ``on_log`` or the logger.

        Do not wait, because a server may log faster than callbacks run.
        """
        self._tell_observers(params)
        report = self._config.on_log
        if report is None:
            level = _LEVELS.get(str(params.get("level")), logging.INFO)
            self._logger.log(
                level, "%s", one_line(str(params.get("data"))), extra={"mcp_logger": params.get("logger")}
            )
            return
        try:
            answer = report(dict(params))
        except Exception:
            self._logger.exception("on_log raised")
            return
        if inspect.isawaitable(answer):
            self._await(answer)

    def _tell_observers(self, params: Mapping[str, Any]) -> None:
        """Report to the observers of the call to which the message belongs, if it is known or the only one."""
        report = self._calls.asking().report
        if report is not None:
            data, level, named = params.get("data"), str(params.get("level")), params.get("logger")
            text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
            more = {"logger": named} if isinstance(named, str) else {}
            report("log", clean_text(text), level=level if level in _LEVELS else "info", **more)

    def _await(self, answer: Awaitable[Any]) -> None:
        if len(self._reporting) >= KEPT:
            if inspect.iscoroutine(answer):
                answer.close()
            self._logger.debug("a log message is dropped: %d calls of on_log are in progress, the maximum", KEPT)
            return
        task = asyncio.ensure_future(answer)
        self._reporting.add(task)
        task.add_done_callback(self._reported)

    def _reported(self, task: asyncio.Future[Any]) -> None:
        self._reporting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._logger.error("on_log raised", exc_info=task.exception())

    async def end(self) -> None:
        """Cancel the awaitables that ``on_log`` returned and that are still running."""
        reporting = list(self._reporting)
        for task in reporting:
            task.cancel()
        await asyncio.gather(*reporting, return_exceptions=True)

    def _offered(self, option: str, what: str) -> Any:
        if (found := getattr(self._config, option)) is None:
            raise Declined(INVALID_REQUEST, f"this client does not support {what}", option)
        return found

    async def _elicit(self, asked: Json) -> Json:
        callback = self._offered("elicitation", "elicitation")
        answer = await self._ask(elicited if callback == "caller" else callback, asked)
        if answer is None:
            return {"action": "cancel"}
        answer = self._checked(answer, "elicitation", action=("accept", "decline", "cancel"))
        if answer["action"] == "accept" and "requestedSchema" in asked:
            answer["content"] = _with_defaults(answer.get("content"), asked["requestedSchema"])
        return answer

    async def _sample(self, asked: Json) -> Json:
        callback = self._offered("sampling", "sampling")
        answer = await self._ask(sampled if callback == "caller" else callback, asked)
        return self._checked(answer, "sampling", role=("assistant", "user"))

    async def _ask(self, callback: Callable[..., Any], params: Json) -> Any:
        """Return the application's answer. While it is pending, no call of this server times out."""
        if self._asked >= _MOST_ASKED:
            raise Declined(BUSY, f"the client accepts at most {_MOST_ASKED} concurrent questions; ask again later")
        call = self._calls.asking()
        self._asked += 1
        try:
            with self._calls.held():
                return await (callback(params, call) if takes_two(callback) else callback(params))
        except CallError as error:
            raise Declined(BUSY, error.message) from error
        finally:
            self._asked -= 1

    def _checked(self, answer: Any, name: str, **wanted: tuple[str, ...]) -> Json:
        """Return the answer of a callback. Raises `Declined` if a field that the protocol requires is missing."""
        fits = isinstance(answer, Mapping) and all(answer.get(key) in known for key, known in wanted.items())
        if not fits:
            fields = "".join(f" with {key} = {' or '.join(known)}" for key, known in wanted.items())
            got = f"{type(answer).__name__} without it" if isinstance(answer, Mapping) else type(answer).__name__
            self._logger.error("%s: expected the callback to return a mapping%s, got %s", name, fields, got)
            raise Declined(INTERNAL_ERROR, "Client callback returned an invalid result")
        return {key: value for key, value in answer.items() if value is not None}

    async def _roots(self) -> Json:
        roots = self._offered("roots", "listing roots")
        if callable(roots):
            roots = await maybe_await(roots())
        return {"roots": [{"uri": root} if isinstance(root, str) else dict(root) for root in roots]}


def _with_defaults(content: Any, schema: Any) -> Json:
    """Return the content of a form, with its defaults for fields that the user left out."""
    filled = dict(content) if isinstance(content, Mapping) else {}
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    for name, field in (properties if isinstance(properties, Mapping) else {}).items():
        if name not in filled and isinstance(field, Mapping) and "default" in field:
            filled[name] = field["default"]
    return filled


async def elicited(params: Json, call: MCPCall) -> Json:
    """Return the answer of the caller's user to ``elicitation/create``.

    Raises `CallError` if the caller's client cannot be asked, or its answer cannot be used.
    """
    client, message = _client(call), clean_text(str(params.get("message") or ""))
    if params.get("mode") == "url":
        return dict(await client.elicit(_named(message, call), None, one_line(str(params.get("url"))), None))
    form = clean_words(params.get("requestedSchema") or {})
    return dict(await client.elicit(_named(message, call), form, None, None))


async def sampled(params: Json, call: MCPCall) -> Json:
    """Return the answer of the caller's model to ``sampling/createMessage``.

    Raises `CallError` if the caller's client cannot be asked, or its answer cannot be used.
    """
    client = _client(call)
    return dict(await client.sample({key: value for key, value in params.items() if key != "_meta"}, None))


def _named(message: str, call: MCPCall) -> str:
    """Return a question with the server's name: the user trusts a server, but not its description of itself."""
    return f"{call.operation_id or call.server} asks: {message}"


def _client(call: MCPCall) -> CallClient:
    if call.client is None:
        which = (
            'this call has no client that can be asked; set a function instead of "caller"'
            if call.operation_id
            else "the server does not state for which call it asks"
        )
        message = f"MCP server {call.server!r} asks a question that cannot be answered: {which}"
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
    return call.client
