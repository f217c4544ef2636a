"""The part of the transport suite about drains, lost peers and lost connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from operad.errors import CallError, ErrorCode
from operad.transports import TransportError
from operad_calls import protocol
from operad_testing._examples import skip
from operad_testing.transport.participant import SOON, Kit, Served, TransportSuite, error_of, with_kit


class Loss(TransportSuite):
    """Tests of drains, lost peers and lost connections."""

    @with_kit
    async def test_closing_a_handler_is_a_drain(self, kit: Kit) -> None:
        """A handler that closes finishes its requests; later requests reach the remaining handlers."""
        second = Served()
        async with kit.calling() as calls, kit.serving() as first:
            task = asyncio.create_task(calls.call("kit.wait"))
            await kit.served.until(lambda: kit.served.started == 1)
            async with kit.serving(second):
                closing = asyncio.create_task(first.aclose())
                await kit.served.until(lambda: first.serving == 0)
                names = [f"job {number}" for number in range(20)]
                done = await asyncio.gather(*(calls.call("kit.work", {"name": name}) for name in names))
                assert [envelope.data for envelope in done] == names
                assert sorted(second.runs) == sorted(names)
                kit.served.gate.set()
                assert (await task).data == "waited"
                await closing

    @with_kit
    async def test_what_a_drain_cannot_finish_is_unavailable(self, kit: Kit) -> None:
        """Requests that still run when the drain ends fail with ``UNAVAILABLE``."""
        async with kit.calling() as calls:
            async with kit.serving(drain_timeout=0.1):
                task = asyncio.create_task(error_of(calls.call("kit.wait")))
                await kit.served.until(lambda: kit.served.started == 1)
            assert (await task).code == ErrorCode.UNAVAILABLE
            assert kit.served.ended == 1

    @with_kit
    async def test_a_lost_handler_ends_its_calls(self, kit: Kit) -> None:
        """When the connection of a handler is lost, its callers are notified immediately."""
        if not kit.capabilities.detects_peer_loss:
            skip("the transport does not detect the loss of peers: deadline and lease end such calls")
        async with kit.calling() as calls, kit.participant() as server:
            await server.link.register("op:kit.served", "operad")
            single = asyncio.create_task(error_of(calls.call("kit.served", timeout=60)))
            stream = asyncio.create_task(error_of(anext(calls.subscribe("kit.served"))))
            await server.wait_for(protocol.REQUESTED, 2)
            await server.link.close()
            assert (await single).code == ErrorCode.UNAVAILABLE
            assert (await stream).code == ErrorCode.UNAVAILABLE
            assert calls.pending == 0

    @with_kit
    async def test_a_lost_caller_ends_its_handlers(self, kit: Kit) -> None:
        """When the connection of a caller is lost, its requests are cancelled."""
        if not kit.capabilities.detects_peer_loss:
            skip("the transport does not detect the loss of peers: deadline and lease end such requests")
        async with kit.serving() as handler, kit.participant() as caller:
            await caller.request("kit.wait", "a")
            await caller.request("kit.count", "b", {"to": 1, "then": "wait"}, credit=8)
            await kit.served.until(lambda: kit.served.started == 2)
            await caller.link.close()
            await kit.served.until(lambda: kit.served.ended == 2 and handler.active == 0)

    @with_kit
    async def test_a_cut_connection_fails_calls_and_comes_back(self, kit: Kit) -> None:
        """Calls on a lost connection end with ``UNAVAILABLE``; after the reconnect everything is served again."""
        async with kit.serving(), kit.calling() as calls:
            assert (await calls.call("kit.echo", {"value": 1})).data == 1
            task = asyncio.create_task(error_of(calls.call("kit.wait", timeout=60)))
            await kit.served.until(lambda: kit.served.started == 1)
            try:
                await self.sever(kit.transport)
            except NotImplementedError:
                kit.served.gate.set()
                await asyncio.gather(task, return_exceptions=True)
                skip("links of this transport cannot be cut")
            assert (await task).code == ErrorCode.UNAVAILABLE
            kit.served.gate.set()
            async with asyncio.timeout(SOON):
                while True:
                    try:
                        envelope = await calls.call("kit.echo", {"value": 2}, timeout=1.0)
                    except CallError:
                        await asyncio.sleep(0.05)
                    else:
                        break
            assert envelope.data == 2
            assert [item.data async for item in calls.subscribe("kit.count", {"to": 3})] == [0, 1, 2]

    @with_kit
    async def test_a_closed_link_sends_nothing(self, kit: Kit) -> None:
        """After `Link.close`, which may be called twice, sending raises a `TransportError`."""
        async with kit.participant() as one, kit.participant() as two:
            await one.link.close()
            await one.link.close()
            try:
                await one.send(two.link.inbox, "news", number=1)
            except TransportError:
                pass
            else:
                raise AssertionError("expected a TransportError from a closed link, got none")

    @with_kit
    async def test_what_was_not_sent_is_called_again(self, kit: Kit) -> None:
        """With ``retry="unsent"``, a call that was not sent waits for the reconnect; no mutation runs twice."""
        async with kit.serving(), kit.calling() as calls:
            assert (await calls.call("kit.work", {"name": "before"})).data == "before"
            try:
                await self.sever(kit.transport)
            except NotImplementedError:
                skip("links of this transport cannot be cut")
            names = [f"job {number}" for number in range(5)]
            made = (calls.call("kit.work", {"name": name}, retry="unsent", timeout=15) for name in names)
            endings = await asyncio.gather(*made, return_exceptions=True)
            for ending in endings:
                if isinstance(ending, BaseException):
                    assert isinstance(ending, CallError), repr(ending)
                    unsent = ending.ran is False and ending.code == ErrorCode.UNAVAILABLE
                    assert not unsent, f"it was not sent, and not called again: {ending}"
            assert len(kit.served.runs) == len(set(kit.served.runs))
            async with asyncio.timeout(SOON):
                while True:
                    with suppress(CallError):
                        await calls.call("kit.echo", {"value": 1}, timeout=1.0)
                        break
                    await asyncio.sleep(0.05)
