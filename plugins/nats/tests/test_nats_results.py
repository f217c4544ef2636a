"""First results in NATS: several processes that serve one thing run a repeated request once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from nats.errors import Error as NATSError

from operad_nats import NATSResults
from operad_nats.testing import NATSServer
from operad_testing import ResultStoreConformance

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def url(new_server: type[NATSServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with JetStream."""
    with new_server(("-js", "-sd", str(tmp_path_factory.mktemp("jetstream")))) as server:
        yield server.url


class TestNATSResults(ResultStoreConformance):
    @pytest.fixture(autouse=True)
    def shared(self, url: str) -> None:
        self.url = url

    def store(self, name: str) -> NATSResults:
        return NATSResults(self.url, bucket=name, timeout=20.0)  # it waits for a disk

    def away(self) -> NATSResults:
        return NATSResults(f"nats://u:{self.secret}@127.0.0.1:9", timeout=0.2)


async def test_a_server_that_cannot_be_reached_is_reported_at_once() -> None:
    async with NATSResults("nats://127.0.0.1:9,nats://127.0.0.1:7", timeout=3_600) as store:
        async with asyncio.timeout(30):
            with pytest.raises(OSError, match="Connect call failed"):
                await store.claim("k", b"v", 60)


async def test_a_server_that_went_away_is_reported_at_once_and_used_again_when_it_is_back(
    new_server: type[NATSServer], tmp_path: Path
) -> None:
    with new_server(("-js", "-sd", str(tmp_path))) as server:
        options = {"reconnect_time_wait": 0.05}
        async with NATSResults(f"{server.url},nats://127.0.0.1:9", timeout=3_600, **options) as store:
            assert await store.claim("k", b"v", 60) is None
            await asyncio.to_thread(server.kill)
            async with asyncio.timeout(30):
                error: Exception | None = None
                while not isinstance(error, ConnectionError):  # until nats-py has noticed
                    try:
                        await store.claim("k", b"x", 60)
                    except (NATSError, ConnectionError) as raised:
                        error = raised
                assert "the connection to the NATS server is lost" in str(error)
                await asyncio.to_thread(server.start)
                while True:
                    with suppress(NATSError, ConnectionError):
                        assert await store.claim("k", b"x", 60) == b"v"
                        break
                    await asyncio.sleep(0.01)
