"""Tools that run as tasks: the server responds immediately, and the client polls it until there is a result.

There are two protocols. With that of 2025-11-25, the client asks for a task, and later fetches its result.
With the extension ``io.modelcontextprotocol/tasks`` of 2026-07-28, the server decides whether to make a task, and
the state of the task contains the result.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import Any

import attrs
import msgspec

from operad import CallError, ErrorCode, OperationContext
from operad_auth.http.cache_files import recall, remember
from operad_mcp.client.items import Json, Maker
from operad_mcp.config import MCPClientConfig, MCPTask, maybe_await
from operad_mcp.wire.session import Session

_POLL = (0.05, 1.0, 30.0)
"""Seconds between two polls: the minimum, the default if the server gives none, and the maximum."""
_OUTAGE = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before an unreachable server is polled again: its tasks may survive an outage."""
_EXPIRED = 60.0
"""Seconds after its time to live at which a task that still has no result fails."""
_KEPT = 7 * 86_400.0
"""Seconds for which a task is remembered if the server gives no time to live."""
_KIND = "mcp-task"
_MOST_KEPT = 10_000
"""The maximum number of stored tasks of this user's calls with an idempotency key."""
_AT_WORK = ("working", "input_required", "submitted")
_DONE = ("completed", "failed", "cancelled")


class Tasks:
    """The calls of one server's tools, which may become tasks."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker
        self._handles = Handles(maker.config)

    async def call(
        self, params: Json, context: OperationContext, *, name: str, safe: bool, support: str | None
    ) -> tuple[Any, Session]:
        """Call a tool. Return its raw result, and the session on which the result was received.

        If the task of the call is known, by the idempotency key or the metadata, request the result of that task.

        Args:
            params: the parameters of ``tools/call``.
            context: the context of the call.
            name: the name of the operation, without the prefix.
            safe: whether the call may be sent again after a failure.
            support: the tool's ``execution.taskSupport``: ``required``, ``optional``, ``forbidden`` or ``None``.

        Raises:
            CallError: the request failed, the idempotency key belongs to another input, or the task failed.
        """
        given, keyed = _given(context), self._handles.remembers(context)
        known = given if given is not None else self._handles.find(params, context, name)
        if known is not None:
            live = await (await self._maker.connection_of(context)).open()
            task: Json = {"taskId": known, "status": "working", "pollIntervalMs": 0}
            return await self._followed(task, live, context, name)
        wanted = support == "required" or (support == "optional" and keyed)
        if wanted and not (await (await self._maker.connection_of(context)).open()).modern:
            params = {**params, "task": {}}
        raw, live = await self._maker.ask("tools/call", params, context, name=name, safe=safe)
        if not _is_task(raw, live):
            return raw, live
        task = raw if live.modern else raw["task"]
        self._handles.keep(task["taskId"], _lifetime(task), params, context, name)
        return await self._followed(task, live, context, name)

    async def _followed(
        self, task: Json, live: Session, context: OperationContext, name: str
    ) -> tuple[Any, Session]:
        connection = await self._maker.connection_of(context)
        running = _Running(self._maker, task, live, context, name)
        try:
            return await running.result()
        except BaseException:
            keeps = self._maker.config.keep_tasks or self._handles.remembers(context)
            if running.task.get("status") in _AT_WORK and not keeps:
                await connection.farewell("tasks/cancel", running.known)
            raise


@attrs.define
class _Running:
    """A task that is being polled."""

    maker: Maker
    task: Json
    live: Session
    context: OperationContext
    name: str
    known: Json = attrs.field(init=False)
    _answered: set[str] = attrs.field(factory=set, init=False)
    _told: Any = attrs.field(default=None, init=False)
    _since: float = attrs.field(factory=time.monotonic, init=False)

    def __attrs_post_init__(self) -> None:
        self.known = {"taskId": self.task["taskId"]}

    async def result(self) -> tuple[Any, Session]:
        """Return the result of the call that became this task, and the session on which it was received.

        Raises `CallError` if the task failed, was cancelled or expired, or the server cannot be reached.
        """
        await self._tell()
        while self.task.get("status") in _AT_WORK:
            if self.task["status"] == "input_required" and await self._asked():
                break
            await asyncio.sleep(_pause(self.task))
            self._check_time()
            self.task = await self._state()
            await self._tell()
        if not self.live.modern:
            return await self.maker.ask("tasks/result", self.known, self.context, name=self.name)
        return self._inlined(), self.live

    async def _asked(self) -> bool:
        """Answer the server's questions. Return True if the result must be requested first (2025-11-25)."""
        if not self.live.modern:
            return True  # the server asks when the result is requested
        requests = self.task.get("inputRequests")
        asked = requests.items() if isinstance(requests, dict) else ()
        new = {key: one for key, one in asked if key not in self._answered}
        if new:
            call = self.maker.call(self.context, self.name)
            connection = await self.maker.connection_of(self.context)
            answers = await connection.answers(self.live, {"inputRequests": new}, call)
            await self.maker.ask("tasks/update", {**self.known, **answers}, self.context, name=self.name)
            self._answered |= new.keys()
        return False

    async def _state(self) -> Json:
        """Return the current state of the task. Poll again if the server cannot be reached."""
        pauses = iter(_OUTAGE)
        while True:
            try:
                found, self.live = await self.maker.ask("tasks/get", self.known, self.context, name=self.name)
                break
            except CallError as error:
                pause = next(pauses, None)
                if error.code not in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT) or pause is None:
                    self.task = {}  # the task is unknown, so there is nothing to cancel
                    raise
                await asyncio.sleep(pause)
        if not isinstance(found, dict) or found.get("status") not in (*_AT_WORK, *_DONE):
            raise self._error(f"expected a state of the task of {self.name}, got {found!r:.200}")
        return found

    def _inlined(self) -> Any:
        """Return the result in a state of the extension. Raises `CallError` if the state has none."""
        if self.task["status"] == "completed":
            return self.task.get("result")
        if self.task["status"] == "cancelled":
            raise self._error(f"the task of {self.name} was cancelled")
        return self.maker.connection.raise_said(self.task.get("error"))

    def _check_time(self) -> None:
        lifetime = _lifetime(self.task)
        if lifetime is not None and time.monotonic() - self._since > lifetime + _EXPIRED:
            late = f"the task of {self.name} has no result after {lifetime:g} s, its lifetime on the server"
            message = f"{self.maker.connection.name}: {late}"
            raise CallError(ErrorCode.TIMEOUT, message)

    async def _tell(self) -> None:
        """Report the state to the application, if it has changed."""
        report = self.maker.config.on_task
        status, message = self.task.get("status"), self.task.get("statusMessage")
        if report is None or self._told == (status, message):
            return
        self._told = status, message
        call = self.maker.call(self.context, self.name)
        words = message if isinstance(message, str) else None
        told = MCPTask(call=call, task_id=self.known["taskId"], status=str(status), message=words)
        await maybe_await(report(told))

    def _error(self, reason: str) -> CallError:
        message = f"{self.maker.connection.name}: {reason}"
        said = self.task.get("statusMessage")
        text = f"{message}: {said}" if isinstance(said, str) and said else message
        return CallError(ErrorCode.EXECUTION_ERROR, text, {"message": text, "taskId": self.known["taskId"]})


def _given(context: OperationContext) -> str | None:
    """Return the id of the task whose result a call requests by its metadata; None if it requests none."""
    found = context.metadata.get("mcp")
    task = found.get("task") if isinstance(found, dict) else None
    return task if isinstance(task, str) and task else None


def _is_task(raw: Any, live: Session) -> bool:
    """Return True if a response is a task, False if it is a result."""
    if not isinstance(raw, dict) or (live.modern and raw.get("resultType") != "task"):
        return False
    task = raw if live.modern else raw.get("task")
    return isinstance(task, dict) and isinstance(task.get("taskId"), str)


def _lifetime(task: Json) -> float | None:
    """Return the seconds for which the server keeps a task; ``None`` if it states none, or keeps it forever."""
    found = task.get("ttlMs", task.get("ttl"))
    return found / 1000 if isinstance(found, (int, float)) and not isinstance(found, bool) and found >= 0 else None


def _pause(task: Json) -> float:
    least, usual, most = _POLL
    wanted = task.get("pollIntervalMs", task.get("pollInterval"))
    seconds = wanted / 1000 if isinstance(wanted, (int, float)) and not isinstance(wanted, bool) else usual
    return min(max(seconds, least), most)


class Handles:
    """The stored tasks of one server's calls with an idempotency key, each in one private file.

    If any process of this user makes the same call again, it receives the result of the first call's task. The id
    of a task is a secret, because it gives access to the result.

    Args:
        config: the configuration of the server. Its address and account are part of the key of each task. Its
            secrets are not, because they are renewed while a task runs.
    """

    def __init__(self, config: MCPClientConfig) -> None:
        self._config = config

    def remembers(self, context: OperationContext) -> bool:
        """Return True if the call has an idempotency key, and the server is not an object in this process.

        Only then its task is stored.
        """
        return context.idempotency_key is not None and self._config.server is None

    def find(self, params: Json, context: OperationContext, name: str) -> str | None:
        """Return the id of the task of an earlier call with the same key; ``None`` if not stored, or expired.

        Raises:
            CallError: ``VALIDATION_ERROR`` if the earlier call had another input.
        """
        if not self.remembers(context):
            return None
        found = recall(_KIND, self._slot(context, name), None)
        try:
            task, digest, until = found["task"], found["input"], float(found["until"])
        except (ValueError, TypeError, KeyError):
            return None
        if not isinstance(task, str) or until < time.time():
            return None
        if digest != _digest(params["arguments"]):
            message = "this idempotency key was used with another input; use a new key for another input"
            raise CallError(ErrorCode.VALIDATION_ERROR, message, {"message": message})
        return task

    def keep(self, task: str, lifetime: float | None, params: Json, context: OperationContext, name: str) -> None:
        """Store the task of a call for ``lifetime`` seconds (``None``: 7 days), if `remembers` returns True."""
        if not self.remembers(context):
            return
        until = time.time() + (_KEPT if lifetime is None else lifetime)
        record = {"task": task, "input": _digest(params["arguments"]), "until": until}
        remember(_KIND, self._slot(context, name), None, record, most=_MOST_KEPT)

    def _slot(self, context: OperationContext, name: str) -> str:
        config, auth = self._config, self._config.auth
        place = [config.command, config.args, config.cwd, config.url, config.transport]
        account = None if auth is None else [auth.type, auth.client_id, auth.account]
        caller = None if context.identity is None else context.identity.id
        key = [place, account, caller, name, context.idempotency_key]
        return _digest(key)


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
