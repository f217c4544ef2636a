"""Requests in the SDK's terms. Imported with the first connection: it needs the SDK."""

from __future__ import annotations

from typing import Any, ClassVar

from mcp_types import Request
from pydantic import TypeAdapter

ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)
"""What the session makes of an answer that it is not to judge."""

_AnyRequest = Request[dict[str, Any], str]


class _TaskRequest(Request[dict[str, Any], str]):
    """A request on a task, which HTTP names in a header for those that route by it."""

    name_param: ClassVar[str | None] = "taskId"


def request_of(method: str, params: dict[str, Any]) -> Request[Any, Any]:
    """A request of any method; the session stamps it like its own."""
    made = _TaskRequest if method.startswith("tasks/") and "taskId" in params else _AnyRequest
    return made(method=method, params=params)
