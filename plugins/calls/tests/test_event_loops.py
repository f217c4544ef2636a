"""Call maps, handlers and in-process buses belong to the event loop in which they were opened, and say so."""

import asyncio

import pytest

from operad import CallHandler, InProcessTransport, PendingRequestMap
from operad.plugin import TransportError
from operad.transports import LinkDownError
from plugins.calls.tests.parts import numbers, registry_of


@pytest.fixture
def other_loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def serving(transport):
    return CallHandler(registry_of(count=("subscription", numbers)), transport)


def test_what_was_opened_in_another_event_loop_says_so(other_loop):
    """Its futures would wake nobody here, and its sockets are not for two threads."""
    transport = InProcessTransport()
    handler, calls = serving(transport), PendingRequestMap(transport)

    async def use():
        for wrong, what in (
            (calls.call("t.count", {"to": 1}), "call map"),
            (anext(calls.subscribe("t.count", {"to": 1})), "call map"),
            (calls.aclose(), "call map"),
            (handler.aclose(), "call handler"),
        ):
            with pytest.raises(
                RuntimeError, match=f"this {what} belongs to the event loop in which it was opened"
            ):
                await wrong
        with pytest.raises(TransportError, match="links in another event loop; close them first"):
            await PendingRequestMap(transport).open()

    for opened in (handler, calls):
        other_loop.run_until_complete(opened.open())
    asyncio.run(use())
    assert other_loop.run_until_complete(calls.call("t.count", {"to": 1})).data == 0
    for opened in (calls, handler):
        other_loop.run_until_complete(opened.aclose())


def test_the_links_of_an_event_loop_that_has_ended_do_not_hold_a_bus():
    transport = InProcessTransport()
    asyncio.run(serving(transport).open())

    async def again():
        async with serving(transport), PendingRequestMap(transport) as calls:
            assert (await calls.call("t.count", {"to": 1})).data == 0

    asyncio.run(again())


class Slow(InProcessTransport):
    """A transport that takes a turn of the loop to open, as those with sockets do."""

    links = ()

    async def open(self, on_event, on_link):
        await asyncio.sleep(0)
        self.links = (*self.links, await super().open(on_event, on_link))
        return self.links[-1]


@pytest.mark.parametrize("made", [PendingRequestMap, lambda transport: CallHandler(registry_of(), transport)])
async def test_what_is_being_opened_is_not_opened_once_more(made):
    """The first link would be forgotten, and never be closed."""
    transport = Slow()
    opened = made(transport)
    first, second = await asyncio.gather(opened.open(), opened.open(), return_exceptions=True)
    assert first is None
    assert "is already open" in str(second)
    assert len(transport.links) == 1
    await opened.aclose()
    with pytest.raises(LinkDownError):
        await transport.links[0].send("all:x", {"type": "x", "id": "", "payload": {}})
    async with opened:
        assert len(transport.links) == 2
