"""Each request runs in a task of its own: it meets neither the cancellation nor the context variables of another."""

import asyncio
from contextvars import ContextVar

from plugins.calls.tests.parts import Wired, both, registry_of, until

word = ContextVar("word", default="")


async def test_a_context_variable_of_one_request_is_not_seen_by_the_next():
    seen = []

    async def work(input, context):
        seen.append(word.get())
        word.set("of a request")

    async with both(registry_of(work=("query", work)), Wired()) as (_, calls):
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

    async with both(registry_of(wait=("query", wait)), Wired()) as (handler, calls):
        one, two = (asyncio.create_task(calls.call("t.wait", {"name": name})) for name in ("one", "two"))
        await until(lambda: handler.active == 2)
        one.cancel()
        await until(lambda: ended)
        go.set()
        await two
    assert ended == ["one cancelled", "two"]
