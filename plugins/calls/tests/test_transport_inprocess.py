"""The in-process transport keeps to the conformance kit, with and without encoding."""

from contextlib import asynccontextmanager

from operad_calls import InProcessTransport
from operad_testing import TransportConformance


class TestInProcess(TransportConformance):
    @asynccontextmanager
    async def transport(self):
        yield InProcessTransport()


class TestInProcessStrict(TransportConformance):
    @asynccontextmanager
    async def transport(self):
        yield InProcessTransport(strict=True, max_payload=64 * 1024)
