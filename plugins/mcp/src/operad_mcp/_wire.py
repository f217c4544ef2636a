"""Requests in the SDK's terms. Imported with the first connection: it needs the SDK."""

from __future__ import annotations

from typing import Any

from mcp_types import Request
from pydantic import TypeAdapter

ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)
"""What the session makes of an answer that it is not to judge."""

_AnyRequest = Request[dict[str, Any], str]


def request_of(method: str, params: dict[str, Any]) -> Request[Any, Any]:
    """A request of any method; the session stamps it like its own."""
    return _AnyRequest(method=method, params=params)
