"""The Redis transport of operad: calls across machines, requests on streams and replies on channels."""

from __future__ import annotations

from operad_redis.config import RedisConfig
from operad_redis.transport import RedisTransport

__all__ = ["RedisConfig", "RedisTransport"]
