"""The call protocol over a transport that knows as little as a broker: nobody's address, nobody's loss."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from operad_calls.protocol import LOST
from operad_calls.serving import answers
from operad_testing import TransportConformance
from plugins.calls.tests.parts import Wired, registry_of, with_caller


class TestBrokerLike(TransportConformance):
    @asynccontextmanager
    async def transport(self):
        yield Wired([LOST])


@pytest.mark.parametrize("payload", [{"credit": 2}, {"creditBytes": 100}], ids=["a stream", "a large answer"])
async def test_a_large_request_whose_caller_was_told_of_it_for_another_reason_is_told_of_once(
    payload, monkeypatch
):
    monkeypatch.setattr(answers, "_AGAIN", 60.0)  # who has no room is asked for it again

    async def items(input, context):
        await asyncio.sleep(0.02)
        yield "x"

    async def answer(input, context):
        return "x" * 1_000

    registry = registry_of(stream=("subscription", items), call=("query", answer))
    async with with_caller(registry, Wired([LOST])) as (_, caller):
        await caller.request("t.stream" if "credit" in payload else "t.call", "1", sentBytes=70_000, **payload)
        await caller.wait_for("call.credit")
        await asyncio.sleep(0.03)
        (notice,) = await caller.wait_for("call.credit")
        await caller.send(notice["replyTo"], "call.aborted", requestId="1", replyTo=caller.link.inbox)
