"""The clients of calls, which handlers report to and ask, for all revisions of the protocol."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import anyio
import mcp_types as types
from mcp.server.connection import allowed_log_levels
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, ValidationError

from operad import CallError, ErrorCode, from_schema
from operad_mcp.server.kinds import Json

logger = logging.getLogger("operad.mcp")

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError)


class Client:
    """The base class of clients, with the parts that all revisions share: progress, logs and capabilities.

    Only its subclasses can ask questions.

    Args:
        ctx: the SDK's context of the request.
        level: the lowest level of logs to send to a client of a handshake revision.
    """

    def __init__(self, ctx: Any, level: str = "debug") -> None:
        self._ctx = ctx
        self._level = level
        self._progress = float("-inf")
        self.missing: CallError | None = None
        """The error that was raised because the client lacks a capability, or ``None``."""
        self.required: Json = {}
        """The capability that the client lacks; empty if `missing` is ``None``."""

    @property
    def capabilities(self) -> Json:
        """The capabilities that the client declared, by name; empty if it declared none."""
        declared = self._ctx.session.client_capabilities
        if declared is None or not declared.model_fields_set:  # of most calls
            return {}
        return dump(declared)

    @property
    def opens_urls(self) -> bool:
        """Whether the client can ask its user to visit a URL."""
        return "url" in (self.capabilities.get("elicitation") or {})

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress to the client. Progress that did not increase is dropped, as the protocol requires."""
        if progress > self._progress:
            self._progress = progress
            await self._tell(self._ctx.session.report_progress(progress, total, message))

    async def log(self, level: str, data: Any, source: str | None) -> None:
        """Send a log message with the logger's name ``source``, if the client accepts messages of its level."""
        allowed = allowed_log_levels(self._ctx.protocol_version, self._ctx.meta)
        if level not in allowed or LEVELS.index(level) < LEVELS.index(self._level):
            return
        params = types.LoggingMessageNotificationParams(level=level, data=data, logger=source)
        notification = types.LoggingMessageNotification(params=params)
        await self._tell(self._ctx.session.send_notification(notification, self._ctx.request_id))

    async def _tell(self, telling: Awaitable[None]) -> None:
        try:
            await telling
        except _GONE:
            logger.debug("the client of request %s no longer listens", self._ctx.request_id)

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None, key: str | None
    ) -> Mapping[str, Any]:
        """Ask the user to visit ``url``, or if it is ``None``, to fill in the form ``schema``.

        Return ``{action, content?}``.
        Raises `CallError` if the client lacks the capability or the answer cannot be used.
        """
        declared = self._require("elicitation")
        if url is not None:
            if "url" not in declared:
                raise self._lacks("elicitation", {"url": {}}, "elicitation.url")
            params: Json = {"mode": "url", "message": message, "url": url}
            return await self._ask("elicitation/create", params, key, None)
        if declared and "form" not in declared:  # an empty one means forms
            raise self._lacks("elicitation", {"form": {}}, "elicitation.form")
        params = {"mode": "form", "message": message, "requestedSchema": dict(schema or {})}
        return await self._ask("elicitation/create", params, key, dict(schema or {}))

    async def sample(self, request: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
        """Ask the client's model with the parameters of ``sampling/createMessage``.

        Return ``{role, content, model, stopReason?}``.
        Raises `CallError` if the client lacks the capability or the answer cannot be used.
        """
        self._require("sampling")
        return await self._ask("sampling/createMessage", dict(request), key, None)

    async def roots(self, key: str | None) -> Sequence[Mapping[str, Any]]:
        """Ask for the client's roots, and return them: ``[{uri, name?}]``.

        Raises `CallError` if the client lacks the capability or the answer cannot be used.
        """
        self._require("roots")
        found: Sequence[Mapping[str, Any]] = (await self._ask("roots/list", None, key, None))["roots"]
        return found

    async def _ask(self, method: str, params: Json | None, key: str | None, form: Json | None) -> Json:
        raise NotImplementedError

    def _require(self, capability: str) -> Json:
        declared = self.capabilities.get(capability)
        if declared is None:
            raise self._lacks(capability, {}, capability)
        return declared if isinstance(declared, dict) else {}

    def _lacks(self, capability: str, needed: Json, words: str) -> CallError:
        message = f"the client cannot be asked: expected the capability {words}, which it does not declare"
        self.required = {capability: needed}
        details = {"message": message, "requiredCapabilities": self.required}
        self.missing = CallError(ErrorCode.EXECUTION_ERROR, message, details)
        return self.missing


_RESULTS: dict[str, type[BaseModel]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}


def checked(method: str, answer: Any, form: Json | None) -> Json:
    """Return a client's answer to the question ``method``. ``form`` is the schema of a form, otherwise ``None``.

    Raises `ValueError` if the answer does not fit the protocol or the form.
    """
    try:
        model = _RESULTS[method]
        if method == "sampling/createMessage" and isinstance(answer, Mapping):
            content = answer.get("content")
            if isinstance(content, list) or answer.get("stopReason") == "toolUse":
                model = types.CreateMessageResultWithTools
        made = dump(model.model_validate(answer, by_name=False))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise ValueError(": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))) from None
    if form is not None and made.get("action") == "accept":
        errors = from_schema(form).errors(made.get("content", {}))
        if errors:
            raise ValueError(errors[0].message)
    return made


class HandshakeClient(Client):
    """A client of a handshake revision (2024-11-05 to 2025-11-25). It answers questions while the call waits."""

    async def _ask(self, method: str, params: Json | None, key: str | None, form: Json | None) -> Json:
        if params is not None and params.get("mode") == "url":
            from uuid import uuid4

            params = {**params, "elicitationId": uuid4().hex}
        request = types.server_request_adapter.validate_python(
            {"method": method} if params is None else {"method": method, "params": params}, by_name=False
        )
        related = ServerMessageMetadata(related_request_id=self._ctx.request_id)
        try:
            answer = await self._ctx.session.send_request(request, _Answer, metadata=related)
            return checked(method, answer.model_extra or {}, form)
        except MCPError as error:
            message = f"the client rejected {method}: {error.message}"
            details = {"message": message, "jsonrpcCode": error.code}
            raise CallError(ErrorCode.EXECUTION_ERROR, message, details) from error
        except ValueError as error:
            message = f"the client's answer to {method} cannot be used: {error}"
            raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message}) from error


class _Answer(BaseModel, extra="allow"):
    """An answer, which `checked` validates."""


class StatelessClient(Client):
    """A client of 2026-07-28. A question ends the request, and its answer arrives with the next request.

    The handler then runs again from its start, and questions that are already answered return immediately. The
    answers so far are in the state of the request, which the SDK seals.
    """

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        params = ctx.params or {}
        self._answers: Json = _state(params.get("requestState"))
        given = params.get("inputResponses")
        self._given: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        self._asked: Counter[str] = Counter()
        self._pending: dict[str, Json] = {}
        self.waiting = asyncio.Event()
        """Set when the handler waits for an answer."""

    async def _ask(self, method: str, params: Json | None, key: str | None, form: Json | None) -> Json:
        kind = method.partition("/")[0]
        self._asked[kind] += 1
        key = key or f"{kind}-{self._asked[kind]}"
        for found in (self._answers.get(key), self._given.get(key)):
            if found is None:
                continue
            try:
                self._answers[key] = answer = checked(method, found, form)
            except ValueError as error:
                logger.info("question %s is sent again, because its answer cannot be used: %s", key, error)
                continue
            return answer
        self._pending[key] = {"method": method} if params is None else {"method": method, "params": params}
        self.waiting.set()
        # No answer arrives within this request: the code that runs the handler ends it here.
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")

    def result(self) -> Json:
        """Return the result that asks the client all pending questions."""
        state = json.dumps(self._answers, separators=(",", ":"))
        return {"resultType": "input_required", "inputRequests": self._pending, "requestState": state}


def _state(text: Any) -> Json:
    """Return the answers in a state that this server sealed."""
    found = json.loads(text) if isinstance(text, str) else {}
    return found if isinstance(found, dict) else {}


def dump(model: BaseModel) -> Json:
    """Return a model of the SDK as a JSON object, without its ``None`` fields."""
    dumped: Json = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped
