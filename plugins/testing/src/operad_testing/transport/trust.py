"""The part of the transport suite about identities, forged events, redelivery and late requests."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from operad.access import Identity
from operad.envelopes import local_envelope
from operad.errors import CallError, ErrorCode
from operad.transports import Delivery
from operad_calls import CallHandler, PendingRequestMap, protocol
from operad_testing._examples import skip
from operad_testing._running import pause
from operad_testing.transport.participant import (
    Kit,
    Repeating,
    TransportSuite,
    error_of,
    unguessable,
    whatever,
    with_kit,
)


class Trust(TransportSuite):
    """Tests of identities, forged events, limits per caller, redelivered requests and late requests."""

    @with_kit
    async def test_a_forged_answer_is_dropped(self, kit: Kit) -> None:
        """A response is accepted only from the handler that has the request."""
        if not kit.authenticating:
            skip("on a broker, unguessable inboxes and request ids are the protection")
        async with kit.participant() as server, kit.calling() as calls, kit.participant() as forger:
            await server.link.register("op:kit.served", "operad")
            task = asyncio.create_task(calls.call("kit.served"))
            (request,) = await server.wait_for(protocol.REQUESTED)
            wrong = {
                "data": "forged",
                "meta": {"source": "local", "operationId": "kit.served", "timestamp": 0},
            }
            for reply in (
                forger.send(request["replyTo"], protocol.RESPONDED, requestId=request["requestId"], output=wrong),
                forger.send(
                    request["replyTo"], protocol.ERROR, requestId=request["requestId"], code="X", message=""
                ),
                forger.send(request["replyTo"], protocol.ABORTED, requestId=request["requestId"]),
            ):
                await whatever(reply)
            await pause(0.05)
            assert not task.done()
            right = {**wrong, "data": "right"}
            await server.send(request["replyTo"], protocol.RESPONDED, requestId=request["requestId"], output=right)
            assert (await task).data == "right"

    @with_kit
    async def test_a_forged_abort_is_dropped(self, kit: Kit) -> None:
        """Only the caller of a request can abort it, or give it credit."""
        async with kit.serving(), kit.participant() as caller, kit.participant() as forger:
            follow = await caller.request("kit.wait", "mine")
            await kit.served.until(lambda: kit.served.started == 1)
            if not follow:
                follow = (await caller.wait_for(protocol.CREDIT))[0]["replyTo"]
            replies = [forger.link.inbox, *([caller.link.inbox] if kit.authenticating else [])]
            for reply_to in replies:
                await whatever(forger.send(follow, protocol.ABORTED, requestId="mine", replyTo=reply_to))
            await caller.request("kit.echo", "after", {"value": 1})
            await caller.wait_for(protocol.RESPONDED)
            assert kit.served.ended == 0
            kit.served.gate.set()
            assert (await caller.wait_for(protocol.RESPONDED, 2))[1]["requestId"] == "mine"

    @with_kit
    async def test_a_claimed_identity_is_not_believed(self, kit: Kit) -> None:
        """The transport determines the caller; an identity in the request is accepted only within one process."""
        alice = Identity("alice", ["kit"])
        async with kit.serving(), kit.calling() as calls:
            if kit.capabilities.same_process:
                assert (await calls.call("kit.guarded", identity=alice)).data == "alice"
            else:
                assert (await error_of(calls.call("kit.guarded", identity=alice))).code == ErrorCode.ACCESS_DENIED
                assert (await calls.call("kit.whoami", identity=alice)).data is None
            assert (await error_of(calls.call("kit.guarded"))).code == ErrorCode.ACCESS_DENIED

    @with_kit
    async def test_the_authenticated_identity_counts(self, kit: Kit) -> None:
        """The identity that the transport authenticated reaches the handler, whatever the request claims."""
        if not kit.capabilities.authenticates_peer:
            skip("the transport does not authenticate peers")
        alice, bob = Identity("alice", ["kit"]), Identity("bob")
        as_alice, as_bob = self.authenticated(kit.transport, alice), self.authenticated(kit.transport, bob)
        async with kit.serving(), PendingRequestMap(as_alice) as one, PendingRequestMap(as_bob) as two:
            assert (await one.call("kit.guarded", identity=bob)).data == "alice"
            assert (await two.call("kit.whoami", identity=alice)).data == "bob"
            error = await error_of(two.call("kit.guarded", identity=alice))
            assert error.code == ErrorCode.ACCESS_DENIED

    @with_kit
    async def test_a_handler_may_verify_callers_itself(self, kit: Kit) -> None:
        """A verifier decides which identity a caller has, or rejects it."""

        async def verify(payload: dict[str, Any], delivery: Delivery) -> Identity | None:
            if payload.get("traceparent") != "token":
                raise CallError(ErrorCode.ACCESS_DENIED, "the request has no token")
            return Identity("verified", ["kit"])

        async with kit.serving(identity=verify), kit.calling() as calls:
            assert (await calls.call("kit.guarded", traceparent="token")).data == "verified"
            assert (await error_of(calls.call("kit.whoami"))).code == ErrorCode.ACCESS_DENIED

    @with_kit
    async def test_a_request_cannot_be_guessed(self, kit: Kit) -> None:
        """If the transport does not know senders, request ids protect calls: no id reveals another one."""
        if kit.authenticating:
            skip("the transport knows the sender of a response")
        async with kit.participant() as server, kit.calling() as calls:
            await server.link.register("op:kit.served", "operad")
            tasks = [asyncio.create_task(calls.call("kit.served")) for _ in range(3)]
            requests = await server.wait_for(protocol.REQUESTED, len(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            unguessable([request["requestId"] for request in requests])

    @with_kit
    async def test_a_request_runs_the_operation_of_its_address(self, kit: Kit) -> None:
        """A request to a broadcast, to an inbox, or to another operation's address runs nothing."""
        async with kit.serving() as one, kit.serving(), kit.participant() as caller:
            assert one.link is not None
            addresses = ["all:operad.discover", "all:operad.changed"]
            if kit.capabilities.same_process or not kit.capabilities.detects_peer_loss:
                addresses += ["op:kit.echo", one.link.inbox]  # elsewhere requests go by their operation alone
            for number, to in enumerate(addresses):
                fields = {"input": {"name": to}, "replyTo": caller.link.inbox, "timeoutMs": 20_000}
                sent = caller.send(
                    to, protocol.REQUESTED, requestId=f"r{number}", operationId="kit.work", **fields
                )
                await whatever(sent)
            await caller.request("kit.echo", "after", {"value": 1})
            await caller.wait_for(protocol.RESPONDED)
            assert kit.served.runs == []

    @with_kit
    async def test_one_caller_cannot_take_all_of_a_handler(self, kit: Kit) -> None:
        """A caller above ``max_concurrent_per_peer`` gets ``OVERLOADED`` and the limit. Others are served."""
        async with kit.serving(max_concurrent_per_peer=2), kit.participant() as greedy, kit.calling() as calls:
            for number in range(3):
                await greedy.request("kit.wait", f"g{number}")
            (error,) = await greedy.wait_for(protocol.ERROR)
            assert error["code"] == ErrorCode.OVERLOADED
            assert error["details"] == {"limit": "max_concurrent_per_peer", "value": 2}
            if not kit.capabilities.authenticates_peer:  # otherwise all links of one identity are one caller
                assert (await calls.call("kit.echo", {"value": 1})).data == 1
            kit.served.gate.set()
            await greedy.wait_for(protocol.RESPONDED, 2)
            await greedy.request("kit.echo", "again", {"value": 2})
            await greedy.wait_for(protocol.RESPONDED, 3)

    @with_kit
    async def test_what_comes_after_its_deadline_does_not_run(self, kit: Kit) -> None:
        """A late request does not run, whether a broker stored it or it waited in the socket of a stopped
        handler.
        """
        if kit.capabilities.same_process:
            skip("caller and handler of one process stop together")
        async with kit.serving(), kit.participant() as caller:
            for number in range(5):
                await caller.request("kit.work", f"fresh {number}", {"name": "fresh"}, timeoutMs=20_000)
                await caller.wait_for(protocol.RESPONDED, number * 2 + 1)
                time.sleep(1.0)  # noqa: ASYNC251  # this process stands still, as after SIGSTOP
                late = {"timeoutMs": 500, "deadline": time.time() * 1000 - 500}  # sent a second ago
                await caller.request("kit.work", f"late {number}", {"name": "late"}, **late)
                await kit.served.until(
                    lambda count=number * 2 + 2: (  # type: ignore[misc]  # binds the loop's value
                        len(caller.of(protocol.RESPONDED) + caller.of(protocol.ERROR)) == count
                    )
                )
                if caller.of(protocol.ERROR):
                    break
                kit.served.runs.clear()  # on a busy machine it may arrive long after the standstill
            (error,) = await caller.wait_for(protocol.ERROR)
            if not (kit.capabilities.redelivers and error["code"] == ErrorCode.TIMEOUT):
                assert error["code"] == ErrorCode.UNAVAILABLE
                assert error["details"]["sent"] is False
            assert kit.served.runs == ["fresh"]

    @with_kit
    async def test_a_delegation_reaches_the_verifier(self, kit: Kit) -> None:
        """A delegation that a caller signed for one call arrives unchanged, with the whole trace."""

        def verify(payload: dict[str, Any], delivery: Delivery) -> Identity | None:
            signed = payload.get("delegation")
            return None if signed is None else Identity(f"{signed} {payload.get('tracestate')}", ["kit"])

        async with kit.serving(identity=verify), kit.calling() as calls:
            answer = await calls.call("kit.guarded", delegation="a.b.c", traceparent="t", tracestate="s")
            assert answer.data == "a.b.c s"
            assert (await error_of(calls.call("kit.guarded"))).code == ErrorCode.ACCESS_DENIED

    @with_kit
    async def test_a_mutation_that_is_delivered_twice_runs_once(self, kit: Kit) -> None:
        """A redelivered mutation runs once, whether a registry or the application itself serves it."""
        by_hand: list[str] = []
        twice = Repeating(kit.transport)
        async with CallHandler(kit.registry(), twice), kit.calling() as calls:
            names = [f"job {number}" for number in range(5)]
            await asyncio.gather(*(calls.call("kit.charge", {"name": name}) for name in names))
            assert sorted(kit.served.runs) == names
        async with PendingRequestMap(twice, on_request=lambda r: by_hand.append(r.request_id)) as server:
            await server.serve("kit.hand")
            async with kit.calling() as calls:
                task = asyncio.create_task(calls.call("kit.hand"))
                await kit.served.until(lambda: bool(by_hand))
                await server.respond(by_hand[0], local_envelope("done", "kit.hand"))
                assert (await task).data == "done"
            assert len(by_hand) == 1

    @with_kit
    async def test_a_mutation_whose_handler_was_lost_does_not_run_again(self, kit: Kit) -> None:
        """A redelivered request of a lost handler runs if it may run twice. Otherwise it is ``UNAVAILABLE``."""
        by_hand: list[str] = []
        again = Repeating(kit.transport, first=False)
        async with CallHandler(kit.registry(), again), kit.calling() as calls:
            error = await error_of(calls.call("kit.charge", {"name": "x"}))
            assert error.code == ErrorCode.UNAVAILABLE
            assert error.details["sent"] is True
            assert kit.served.runs == []
            assert (await calls.call("kit.echo", {"value": 1})).data == 1
        async with PendingRequestMap(again, on_request=lambda r: by_hand.append(r.request_id)) as server:
            await server.serve("kit.hand")
            await server.serve("kit.again", idempotent=True)
            async with kit.calling() as calls:
                error = await error_of(calls.call("kit.hand"))
                assert (error.code, by_hand) == (ErrorCode.UNAVAILABLE, [])
                task = asyncio.create_task(calls.call("kit.again"))
                await kit.served.until(lambda: bool(by_hand))
                await server.respond(by_hand[0], local_envelope("again", "kit.again"))
                assert (await task).data == "again"

    @with_kit
    async def test_a_request_that_is_served_by_hand_ends_at_its_deadline(self, kit: Kit) -> None:
        """If the application serves a request itself and never responds, the request ends with ``TIMEOUT``."""
        taken: list[str] = []
        async with PendingRequestMap(kit.transport, on_request=lambda r: taken.append(r.request_id)) as server:
            await server.serve("kit.hand")
            async with kit.participant() as caller:
                for count, milliseconds in enumerate((200, 1_000, 5_000), 1):
                    await caller.request("kit.hand", f"h{count}", timeoutMs=milliseconds)
                    error = (await caller.wait_for(protocol.ERROR, count))[-1]
                    if taken:  # on a busy machine it may come too late to be taken
                        break
                assert (error["code"], len(taken)) == (ErrorCode.TIMEOUT, 1)
            try:
                await server.respond(taken[0], local_envelope(1, "kit.hand"))
            except LookupError:
                pass
            else:
                raise AssertionError("expected a LookupError for a request that has ended, got none")
