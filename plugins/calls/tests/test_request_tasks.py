"""Each request runs in a task of its own: it meets neither the cancellation nor the context variables of another."""

import asyncio
from contextvars import ContextVar

from operad import CallHandler, PendingRequestMap
from operad.transports import Capabilities, Delivery
from operad_calls import InProcessTransport
from plugins.calls.tests.parts import registry_of

word = ContextVar("word", default="")


class Wired:
    """An in-process bus that behaves like one between processes."""

    capabilities = Capabilities(detects_no_responders=True)

    def __init__(self):
        self.bus = InProcessTransport(strict=True)

    async def open(self, on_event, on_link):
        return await self.bus.open(lambda event, delivery: on_event(event, Delivery(to=delivery.to)), on_link)


async def test_a_context_variable_of_one_request_is_not_seen_by_the_next():
    seen = []

    async def work(input, context):
        seen.append(word.get())
        word.set("of a request")

    transport = Wired()
    async with CallHandler(registry_of(work=("query", work)), transport), PendingRequestMap(transport) as calls:
        await asyncio.gather(*(calls.call("t.work") for _ in range(3)))
    assert seen == ["", "", ""]


async def test_a_request_that_is_given_up_cancels_no_other():
    ended, go = [], asyncio.Event()

    async def wait(input, context):
        try:
            await go.wait()
        except asyncio.CancelledError:
            ended.append(f"{input['name']} cancelled")
            raise
        ended.append(input["name"])

    transport = Wired()
    registry = registry_of(wait=("query", wait))
    async with CallHandler(registry, transport) as handler, PendingRequestMap(transport) as calls:
        one, two = (asyncio.create_task(calls.call("t.wait", {"name": name})) for name in ("one", "two"))
        async with asyncio.timeout(30):
            while handler.active < 2:
                await asyncio.sleep(0)
            one.cancel()
            while not ended:
                await asyncio.sleep(0)
            go.set()
            await two
    assert ended == ["one cancelled", "two"]
