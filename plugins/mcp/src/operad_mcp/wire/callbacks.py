"""What a server may ask of its client: elicitation, sampling, roots; and what it logs.

The application's callbacks speak the JSON of the protocol, and know nothing of the SDK.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from operad import CallError, ErrorCode
from operad_mcp.config import MCPClientConfig, takes_two
from operad_mcp.wire.calls import Calls
from operad_mcp.wire.incoming import KEPT
from operad_mcp.wire.live import ServerLogger

if TYPE_CHECKING:
    from mcp.client.session import ClientSession

    from operad_mcp.asking import CallClient
    from operad_mcp.config import MCPCall

Json = dict[str, Any]
_MOST_ASKED = 64
"""Questions of a server that are with the application at once; whoever asks more is refused."""
_BUSY = -32000
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


class Callbacks:
    """The callbacks of a session, made of a configuration."""

    def __init__(
        self,
        config: MCPClientConfig,
        logger: ServerLogger,
        calls: Calls,
    ) -> None:
        self._config = config
        self._logger = logger
        self._calls = calls
        self._reporting: set[asyncio.Future[Any]] = set()
        self._asked = 0
        self.words: Callable[[], str] = str
        """The last words of the program, where there is one."""

    def for_session(self) -> dict[str, Any]:
        """Arguments of `ClientSession`. What is not configured is not offered to the server."""
        config = self._config
        offered: dict[str, Any] = {}
        if config.elicitation is not None:
            offered["elicitation_callback"] = self._elicit
        if config.sampling is not None:
            from mcp_types import SamplingCapability, SamplingToolsCapability

            offered["sampling_callback"] = self._sample
            offered["sampling_capabilities"] = SamplingCapability(tools=SamplingToolsCapability())
        if config.roots is not None:
            offered["list_roots_callback"] = self._roots
        return offered

    def log(self, params: Mapping[str, Any]) -> None:
        """Pass on what the server logs, at once: it may log faster than anybody awaits."""
        self._tell_observers(params)
        report = self._config.on_log
        if report is None:
            level = _LEVELS.get(str(params.get("level")), logging.INFO)
            self._logger.log(level, "%s", params.get("data"), extra={"mcp_logger": params.get("logger")})
            return
        try:
            answer = report(dict(params))
        except Exception:
            self._logger.exception("on_log raised")
            return
        if inspect.isawaitable(answer):
            self._await(answer)

    def _tell_observers(self, params: Mapping[str, Any]) -> None:
        """Tell those of the call for which the server logs, if it says for which, or there is but one."""
        report = self._calls.asking().report
        if report is not None:
            data, level, named = params.get("data"), str(params.get("level")), params.get("logger")
            text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
            more = {"logger": named} if isinstance(named, str) else {}
            report("log", text, level=level if level in _LEVELS else "info", **more)

    def _await(self, answer: Awaitable[Any]) -> None:
        if len(self._reporting) >= KEPT:
            if inspect.iscoroutine(answer):
                answer.close()
            self._logger.debug("a log message is left out: on_log has %d to work on", KEPT)
            return
        task = asyncio.ensure_future(answer)
        self._reporting.add(task)
        task.add_done_callback(self._reported)

    def _reported(self, task: asyncio.Future[Any]) -> None:
        self._reporting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._logger.error("on_log raised", exc_info=task.exception())

    def last_words(self) -> str:
        """The last words of the program; nothing where there is none."""
        return self.words()

    async def end(self) -> None:
        """Cancel what still reports."""
        reporting = list(self._reporting)
        for task in reporting:
            task.cancel()
        await asyncio.gather(*reporting, return_exceptions=True)

    async def _elicit(self, _context: Any, params: Any) -> Any:
        from mcp_types import ElicitResult

        callback = self._config.elicitation
        assert callback is not None
        if self._asked >= _MOST_ASKED:
            return _too_many()
        asked = _json(params)
        try:
            answer = await self._ask(elicited if callback == "caller" else callback, asked)
        except CallError as error:
            return _unanswered(error)
        if answer is None:
            return ElicitResult(action="cancel")
        if answer.get("action") == "accept" and "requestedSchema" in asked:
            answer = {**answer, "content": _with_defaults(answer.get("content"), asked["requestedSchema"])}
        return ElicitResult.model_validate(answer)

    async def _sample(self, _context: Any, params: Any) -> Any:
        from mcp_types import CreateMessageResult, CreateMessageResultWithTools

        callback = self._config.sampling
        assert callback is not None
        if self._asked >= _MOST_ASKED:
            return _too_many()
        try:
            answer = await self._ask(sampled if callback == "caller" else callback, _json(params))
        except CallError as error:
            return _unanswered(error)
        with_tools = isinstance(answer.get("content"), list) or answer.get("stopReason") == "toolUse"
        return (CreateMessageResultWithTools if with_tools else CreateMessageResult).model_validate(answer)

    async def _ask(self, callback: Callable[..., Any], params: Json) -> Any:
        """The application's answer. While it thinks, no call of this server runs out of time."""
        call = self._calls.asking()
        self._asked += 1
        try:
            with self._calls.held():
                return await (callback(params, call) if takes_two(callback) else callback(params))
        finally:
            self._asked -= 1

    async def _roots(self, _context: Any) -> Any:
        from mcp_types import ListRootsResult

        roots: Any = self._config.roots
        if callable(roots):
            roots = await roots()
        return ListRootsResult.model_validate(
            {"roots": [{"uri": root} if isinstance(root, str) else dict(root) for root in roots]}
        )


def _too_many() -> Any:
    from mcp_types import ErrorData

    return ErrorData(code=_BUSY, message=f"the client answers {_MOST_ASKED} questions at once; ask again later")


def _unanswered(error: CallError) -> Any:
    from mcp_types import ErrorData

    return ErrorData(code=_BUSY, message=error.message)


def _with_defaults(content: Any, schema: Any) -> Json:
    """What the user left out of a form has the form's defaults."""
    filled = dict(content) if isinstance(content, Mapping) else {}
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    for name, field in (properties if isinstance(properties, Mapping) else {}).items():
        if name not in filled and isinstance(field, Mapping) and "default" in field:
            filled[name] = field["default"]
    return filled


async def answer_inputs(session: ClientSession, raw: Json, config: MCPClientConfig, what: str) -> Json:
    """The answers to an ``input_required`` result (2026-07-28): what to send along with the request again.

    Raises:
        CallError: the server asks for what no callback is configured for; the message names the callback.
    """
    from mcp.client.session import ClientRequestContext
    from mcp_types import ErrorData, InputRequiredResult
    from pydantic import ValidationError

    try:
        asked = InputRequiredResult.model_validate(raw)
    except ValidationError as error:
        message = f"{what} asked for input in a way that is not understood"
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message}) from error
    answers: Json = {}
    if asked.request_state is not None:
        answers["requestState"] = asked.request_state
    if not asked.input_requests:
        await asyncio.sleep(0.05)
        return answers
    responses: Json = {}
    for key, request in asked.input_requests.items():
        _require_callback(request.method, config, what)
        response = await session.dispatch_input_request(
            ClientRequestContext(session=session, request_id=key), request
        )
        if isinstance(response, ErrorData):
            raise CallError(
                ErrorCode.EXECUTION_ERROR,
                f"{what} asked for {request.method}, which was refused: {response.message}",
                {"message": response.message, "jsonrpcCode": response.code},
            )
        responses[key] = _json(response)
    return {**answers, "inputResponses": responses}


_CALLBACKS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


def _require_callback(method: str, config: MCPClientConfig, what: str) -> None:
    name = _CALLBACKS.get(method)
    if name is not None and getattr(config, name) is None:
        message = f"{what} asks for {method}; give MCPClientConfig({name}=…) to answer"
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message, "callback": name})


def _json(model: Any) -> Json:
    dumped: Json = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


async def elicited(params: Json, call: MCPCall) -> Json:
    """The answer of the caller's user to ``elicitation/create``. Raises `CallError`: nobody can be asked."""
    client, message = _client(call), str(params.get("message") or "")
    if params.get("mode") == "url":
        return dict(await client.elicit(_named(message, call), None, str(params.get("url")), None))
    return dict(await client.elicit(_named(message, call), params.get("requestedSchema") or {}, None, None))


async def sampled(params: Json, call: MCPCall) -> Json:
    """The answer of the caller's model to ``sampling/createMessage``. Raises `CallError`: nobody can be asked."""
    client = _client(call)
    return dict(await client.sample({key: value for key, value in params.items() if key != "_meta"}, None))


def _named(message: str, call: MCPCall) -> str:
    """A question with who asks it: the user trusts a server, and not whatever it says of itself."""
    return f"{call.operation_id or call.server} asks: {message}"


def _client(call: MCPCall) -> CallClient:
    if call.client is None:
        which = "this call has nobody" if call.operation_id else "the server does not say for which call it asks"
        message = f"MCP server {call.server!r} asks something, and there is nobody to answer: {which}"
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
    return call.client
