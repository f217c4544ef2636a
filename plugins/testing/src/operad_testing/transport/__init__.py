"""`TransportConformance`: requirements for every transport, tested through the call protocol."""

from __future__ import annotations

from operad_testing.transport.answers import Answers
from operad_testing.transport.flow import Flow
from operad_testing.transport.loss import Loss
from operad_testing.transport.participant import Participant
from operad_testing.transport.streams import Streams
from operad_testing.transport.trust import Trust

__all__ = ["Participant", "TransportConformance"]


class TransportConformance(Answers, Streams, Flow, Trust, Loss):
    """Requirements for every transport.

    ::

        class TestPigeons(TransportConformance):
            @asynccontextmanager
            async def transport(self):
                async with pigeon_loft() as loft:
                    yield PigeonTransport(loft.url)

    The tests are plain functions that run their own event loop, so they need no pytest plugin.
    """
