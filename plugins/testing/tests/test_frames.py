"""The transport kit checks every frame that a transport delivers against the schemas of the call protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from operad.transports import Delivery, Event, Link, OnEvent, OnLink, Transport
from operad_calls import InProcessTransport
from operad_testing import TransportConformance


class Garbling(InProcessTransport):
    """Changes each event of one type on its way."""

    def __init__(self, type_: str, change: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__()
        self.type = type_
        self.change = change

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        def garbled(event: Event, delivery: Delivery) -> None:
            if event["type"] == self.type:
                self.change(event["payload"])
            on_event(event, delivery)

        return await super().open(garbled, on_link)


def suite(type_: str, change: Callable[[dict[str, Any]], Any]) -> TransportConformance:
    class Suite(TransportConformance):
        @asynccontextmanager
        async def transport(self) -> AsyncIterator[Transport]:
            yield Garbling(type_, change)

    return Suite()


@pytest.mark.parametrize(
    ("type_", "change", "wrong"),
    [
        ("call.requested", lambda payload: payload.update(timeoutMs="soon"), "timeoutMs must be number"),
        ("call.responded", lambda payload: payload.update(seq=-1), "seq must be bigger than or equal to 0"),
    ],
)
def test_a_transport_that_garbles_frames_fails_with_the_words_of_the_schema(
    type_: str, change: Callable[[dict[str, Any]], Any], wrong: str
) -> None:
    with pytest.raises(AssertionError, match="frames that the protocol's schemas do not allow") as caught:
        suite(type_, change).test_answers_find_their_calls()
    assert wrong in str(caught.value)
