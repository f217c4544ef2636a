"""The Redis transport of operad: calls across processes, requests on streams, replies on channels."""

from __future__ import annotations

from operad_redis.transport import RedisTransport

__all__ = ["RedisTransport"]
