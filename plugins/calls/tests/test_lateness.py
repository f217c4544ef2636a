"""A request that arrives after its deadline does not run."""

import asyncio
import time

from operad import ErrorCode
from plugins.calls.tests.parts import Wired, echo, registry_of, until, with_caller


async def test_a_mutation_that_waited_while_its_process_stood_still_does_not_run():
    """Its caller has been told ``TIMEOUT``; that it did not run is said, so that it may be called again."""
    ran = []

    async def work(input, context):
        ran.append(input)

    async with with_caller(registry_of(work=("mutation", work)), Wired()) as (_, caller):
        time.sleep(0.5)  # the loop stands still, as with SIGSTOP
        await caller.request("t.work", "1", timeoutMs=200)
        (error,) = await caller.wait_for("call.error")
        assert (error["code"], error["details"]["sent"]) == (ErrorCode.UNAVAILABLE, False)
        assert ran == []
        await asyncio.sleep(0)
        await caller.request("t.work", "2", timeoutMs=20_000)
        await caller.wait_for("call.responded")


async def test_a_handler_that_was_only_busy_runs_what_arrives():
    """A loop that is a little late is no standstill: the time of a request counts from its arrival."""
    async with with_caller(registry_of(work=("mutation", echo)), Wired()) as (_, caller):
        for number in range(5):  # another process may keep this one busy for longer
            time.sleep(0.15)  # less than a standstill
            await caller.request("t.work", str(number), timeoutMs=100)
            await until(lambda sent=number + 1: len(caller.of("call.responded") + caller.of("call.error")) == sent)
            if caller.of("call.responded"):
                break
        assert caller.of("call.responded")


async def test_a_second_after_a_standstill_requests_run_again():
    async with with_caller(registry_of(work=("mutation", echo)), Wired()) as (_, caller):
        time.sleep(0.8)  # this process stands still, as after SIGSTOP
        async with asyncio.timeout(30):
            for number in range(100):
                await caller.request("t.work", str(number), timeoutMs=500)
                await asyncio.sleep(0.3)
                if caller.of("call.responded"):
                    break
        assert caller.of("call.error")[0]["details"]["sent"] is False
        assert len(caller.of("call.responded")) == 1
