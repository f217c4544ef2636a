"""The tasks of calls that have an idempotency key, one file each.

If the same call is made again, by any process of this user, it gets the result of the first call's task.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import attrs
import msgspec

from operad import CallError, ErrorCode, OperationContext
from operad_auth.http.cache_files import cache_folder, read_private, write_private
from operad_mcp.config import MCPClientConfig

Json = dict[str, Any]
_KEPT = 7 * 86_400.0
"""Seconds for which a task is known whose server does not say how long it keeps it."""


@attrs.frozen
class Handle:
    """A task, as it is asked for. Whoever knows its id may read the result: it is as secret as that."""

    task_id: str = attrs.field(repr=False)


class Handles:
    """The known tasks of one server.

    Args:
        config: of the server; where it is, and who one is there, is part of each key. Its secrets are not: they
            are renewed while a task runs.
    """

    def __init__(self, config: MCPClientConfig) -> None:
        self._config = config

    def remembers(self, context: OperationContext) -> bool:
        """Whether the task of such a call is kept. Those of a server in this process end with it."""
        return context.idempotency_key is not None and self._config.server is None

    def find(self, params: Json, context: OperationContext, name: str) -> Handle | None:
        """The task of an earlier call of the operation with this key.

        Raises:
            CallError: ``VALIDATION_ERROR``: that call had another input.
        """
        if not self.remembers(context):
            return None
        try:
            found = msgspec.json.decode(read_private(str(self._path(context, name))) or b"null")
            task, digest, until = found["task"], found["input"], float(found["until"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        if not isinstance(task, str) or until < time.time():
            return None
        if digest != _digest(params["arguments"]):
            message = "this idempotency key was used with another input"
            raise CallError(ErrorCode.VALIDATION_ERROR, message, {"message": message})
        return Handle(task)

    def keep(
        self, handle: Handle, lifetime: float | None, params: Json, context: OperationContext, name: str
    ) -> None:
        """Remember a task for its time to live; in seconds."""
        if not self.remembers(context):
            return
        path = self._path(context, name)
        _sweep(path.parent)
        until = time.time() + (_KEPT if lifetime is None else lifetime)
        record = {"task": handle.task_id, "input": _digest(params["arguments"]), "until": until}
        write_private(str(path), msgspec.json.encode(record))

    def _path(self, context: OperationContext, name: str) -> Path:
        config, auth = self._config, self._config.auth
        place = [config.command, config.args, config.cwd, config.url, config.transport]
        account = None if auth is None else [auth.type, auth.client_id, auth.account]
        caller = None if context.identity is None else context.identity.id
        key = [place, account, caller, name, context.idempotency_key]
        return Path(cache_folder()) / "mcp" / "tasks" / f"{_digest(key)}.json"


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def _sweep(folder: Path) -> None:
    """Remove what nobody can ask for any more."""
    oldest = time.time() - 2 * _KEPT
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                if entry.stat().st_mtime < oldest:
                    os.unlink(entry.path)
