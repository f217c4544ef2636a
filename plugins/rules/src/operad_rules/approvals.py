"""The approval of calls by a person: in the caller's host, in a terminal, in a queue, or by a function."""

from __future__ import annotations

import asyncio
import json
import logging
import pkgutil
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from operad import CallError, ConfigError, ErrorCode, OperationContext, OperationSpec
from operad.plugin import InterceptedCall
from operad_rules.steps import Guard

_logger = logging.getLogger("operad.rules")
Approve = Callable[[InterceptedCall], Awaitable[bool]]
SCOPE = "operad:admin"
"""The scope that a caller needs to list and decide waiting calls."""
_LONGEST = 2_000
_WAITING, _WAITING_OF_CALLER = 1_000, 100


class Approval(Guard):
    """A guard that rejects a call with ``ACCESS_DENIED`` unless ``approve`` returns True for it."""

    def __init__(self, approve: Approve) -> None:
        self._approve = approve

    async def check(self, call: InterceptedCall) -> None:
        """Ask for approval. Raises `CallError` ``ACCESS_DENIED`` if the call is not approved."""
        if await self._approve(call) is not True:
            raise CallError(ErrorCode.ACCESS_DENIED, f'the call of "{call.spec.id}" was not approved')


def approval(kind: str, queue: Queue) -> Approval:
    """Return the step for the value of ``approve`` in a rule.

    Raises `ConfigError` for a function that cannot be loaded or is not ``async``.
    """
    if kind == "client":
        return Approval(_by_client)
    if kind == "terminal":
        return Approval(_by_terminal)
    if kind == "queue":
        return Approval(queue.wait)
    try:
        function: Approve = pkgutil.resolve_name(kind)
    except Exception as error:
        reason = f"which cannot be loaded: {type(error).__name__}: {error}"
        raise ConfigError(f'approve: expected "module:function", got "{kind}", {reason}') from error
    if not asyncio.iscoroutinefunction(function):
        raise ConfigError(f'approve: expected an async function of one call, got "{kind}", which is not async')
    return Approval(function)


def question(call: InterceptedCall) -> str:
    """Return the question for an approver: the caller, the operation and its input."""
    identity = call.context.identity
    caller = "an anonymous caller" if identity is None else _shown(identity.id)
    return f"Allow {caller} to call {_shown(call.spec.id)} with {_shown(call.input)}?"


def _shown(value: Any) -> str:
    """Return a value as text without control characters, so that it cannot change what a terminal shows."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


async def _by_client(call: InterceptedCall) -> bool:
    """Ask the user of the client by elicitation. Raises `CallError` if the client cannot ask."""
    elicit = getattr(call.context.client, "elicit", None)
    if elicit is None:
        message = (
            f'a call of "{call.spec.id}" needs approval, but this client cannot ask its user; '
            "use an MCP client with elicitation"
        )
        raise CallError(ErrorCode.ACCESS_DENIED, message)
    answer: Mapping[str, Any] = await elicit(question(call), {"type": "object", "properties": {}}, None, None)
    return answer.get("action") == "accept"


_terminal = asyncio.Lock()


async def _by_terminal(call: InterceptedCall) -> bool:
    """Ask in the terminal of this process, one question at a time. Without a terminal, the call is denied."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        message = 'no terminal to ask for the approval of "%s"; it is denied; run in a terminal or use "queue"'
        _logger.warning(message, call.spec.id)
        return False
    async with _terminal:
        print(question(call), "[y/N] ", end="", file=sys.stderr, flush=True)
        answer = await asyncio.to_thread(sys.stdin.readline)
    return answer.strip().lower() in ("y", "yes")


def _caller(call: InterceptedCall) -> str | None:
    return None if call.context.identity is None else call.context.identity.id


class Queue:
    """A queue of calls that wait until a caller with the scope ``operad:admin`` decides."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[InterceptedCall, asyncio.Future[bool]]] = {}

    async def wait(self, call: InterceptedCall) -> bool:
        """Wait for the decision. Return True if the call is allowed, False if it is rejected.

        Raises `CallError` ``OVERLOADED`` if 1,000 calls wait already, or 100 calls of the same caller.
        """
        own = sum(_caller(each) == _caller(call) for each, _ in self._waiting.values())
        if len(self._waiting) >= _WAITING or own >= _WAITING_OF_CALLER:
            count = len(self._waiting)
            message = f"too many calls wait for approval ({own} of this caller, {count} in all); try again later"
            raise CallError(ErrorCode.OVERLOADED, message, {"bound": "approvals"})
        name = secrets.token_urlsafe(12)
        decision: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[name] = call, decision
        try:
            return await decision
        finally:
            del self._waiting[name]

    async def list(self, input: Any, context: OperationContext) -> list[dict[str, Any]]:
        """Return the waiting calls, each as ``{id, operation, caller, input}``.

        ``caller`` is ``None`` for an anonymous caller, and ``input`` is JSON as text, which is cut after 2,000
        characters. This is the handler of ``operad.approvals.list``.
        """
        return [
            {
                "id": name,
                "operation": call.spec.id,
                "caller": _caller(call),
                "input": _shown(call.input),
            }
            for name, (call, _) in self._waiting.items()
        ]

    async def decide(self, input: Mapping[str, Any], context: OperationContext) -> None:
        """Allow or reject a waiting call. This is the handler of ``operad.approvals.decide``.

        Raises `CallError` ``NOT_FOUND`` if no call with this id waits.
        """
        _, decision = self._waiting.get(input["id"], (None, None))
        if decision is None or decision.done():
            raise CallError("NOT_FOUND", "no call with this id waits for approval; it may have ended")
        decision.set_result(input["allow"])


LIST = OperationSpec(
    namespace="operad",
    name="approvals.list",
    type="query",
    description="List the calls that wait for approval.",
    input_schema={"type": "object", "additionalProperties": False},
    access_control={"required_scopes": [SCOPE]},
)
DECIDE = OperationSpec(
    namespace="operad",
    name="approvals.decide",
    type="mutation",
    description="Allow or reject a call that waits for approval.",
    input_schema={
        "type": "object",
        "properties": {"id": {"type": "string"}, "allow": {"type": "boolean"}},
        "required": ["id", "allow"],
        "additionalProperties": False,
    },
    access_control={"required_scopes": [SCOPE]},
    error_schemas=[{"code": "NOT_FOUND", "description": "No such call waits.", "httpStatus": 404}],
)
