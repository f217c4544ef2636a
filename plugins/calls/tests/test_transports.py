"""The transports of this package, and one that knows as little as a broker, keep to the conformance kit."""

from contextlib import asynccontextmanager

from operad_calls import InProcessTransport
from operad_calls.protocol import LOST
from operad_testing import TransportConformance
from plugins.calls.tests.parts import Wired


class TestInProcess(TransportConformance):
    @asynccontextmanager
    async def transport(self):
        yield InProcessTransport()


class TestInProcessStrict(TransportConformance):
    @asynccontextmanager
    async def transport(self):
        yield InProcessTransport(strict=True, max_payload=64 * 1024)


class TestBrokerLike(TransportConformance):
    """Nobody's address is known, and nobody's loss."""

    @asynccontextmanager
    async def transport(self):
        yield Wired([LOST])
