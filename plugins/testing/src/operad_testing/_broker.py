"""`BrokerConformance`: requirements for the links of a broker, tested without call maps and call handlers."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import Any

from operad.errors import ErrorCode
from operad.transports import (
    Link,
    LinkDownError,
    NoRespondersError,
    PayloadTooLargeError,
    Transport,
    TransportError,
)
from operad_calls import protocol
from operad_testing._running import Body, run, tests_with
from operad_testing._server import ServerProcess
from operad_testing.transport.participant import SOON, Participant

_MANY = 200


def _run(suite: BrokerConformance, body: Body) -> None:
    async def main() -> None:
        async with _Bus.open(suite, suite.url()) as bus:
            await body(bus)

    run(main())


def _run_apart(suite: BrokerConformance, body: Body) -> None:
    async def main(server: ServerProcess) -> None:
        async with _Bus.open(suite, suite.server_url(server)) as bus:
            await body(bus, server)

    with suite.server() as server:
        run(main(server))


_with_bus, _with_server = tests_with(_run), tests_with(_run_apart)
"""The decorators of tests on a shared server and of tests with a separate server."""


class BrokerConformance:
    """Requirements for the links of every broker, in addition to `TransportConformance`.

    ::

        class TestPigeonLinks(BrokerConformance):
            def url(self):
                return shared_loft.url

            def server(self):
                return PigeonLoft()

            def transport(self, url, bus, **options):
                return PigeonTransport(url, bus=bus, reconnect_wait=0.05, **options)

    The tests are plain functions that run their own event loop, so they need no pytest plugin.
    """

    def url(self) -> str:
        """Return the URL of a running server that several tests share."""
        raise NotImplementedError("the suite needs the URL of a server; override url()")

    def server(self) -> AbstractContextManager[ServerProcess]:
        """Return a context that runs a new server for one test. The test kills or freezes the server."""
        raise NotImplementedError("the suite needs a separate server; override server()")

    def transport(self, url: str, bus: str, **options: Any) -> Transport:
        """Return a transport to the server at ``url``. Transports with the same ``bus`` reach each other.

        Options are ``max_payload``, the size of the largest event in bytes, and ``impatient``, a bool: whether to
        detect within a second that a server no longer responds.
        """
        raise NotImplementedError("the suite needs a transport; override transport()")

    def server_url(self, server: ServerProcess) -> str:
        """Return the URL of a server that a context of `server` yielded: by default, its attribute ``url``."""
        url: str = server.url  # type: ignore[attr-defined]  # servers of the kit's users have it
        return url

    # --- events ----------------------------------------------------------------------------------

    @_with_bus
    async def test_transport_and_link_have_the_interface_of_the_core(self, bus: _Bus) -> None:
        """The transport and its links implement the protocols of `operad.plugin`."""
        assert isinstance(self.transport(self.url(), "any"), Transport)
        assert isinstance((await bus.join()).link, Link)

    @_with_bus
    async def test_events_arrive_unchanged_and_in_order(self, bus: _Bus) -> None:
        """Events from one link arrive unchanged and in the order of sending, also if their addresses differ."""
        server, client = await bus.join(), await bus.join()
        for name in "abcd":
            await server.link.register(f"op:test.{name}", "workers")
        sent = []
        for number in range(_MANY):
            operation_id = f"test.{'abcd'[number % 4]}"
            event = _request(number, operation_id, text="ünïcode \u2028 \x00", big=2**70)
            sent.append(event)
            await client.link.send(f"op:{operation_id}", event)
        await server.wait_for(protocol.REQUESTED, _MANY)
        assert [event for event, _ in server.events] == sent

    @_with_bus
    async def test_an_inbox_is_reached_by_its_address_alone(self, bus: _Bus) -> None:
        """An event sent to an inbox reaches only the link of the inbox."""
        one, other = await bus.join(), await bus.join()
        assert one.link.inbox != other.link.inbox
        await other.send(one.link.inbox, "news", number=1)
        assert await one.wait_for("news") == [{"number": 1}]
        assert other.events == []

    @_with_bus
    async def test_a_link_whose_closing_is_cancelled_leaves_nothing_open(self, bus: _Bus) -> None:
        """If closing a link is cancelled at any step, closing it again leaves nothing open."""
        for turns in range(12):
            participant = await bus.join()
            await participant.link.register("op:test.op", "workers")
            closing = asyncio.create_task(participant.link.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            closing.cancel()
            with suppress(asyncio.CancelledError):
                await closing
            await participant.link.close()

    @_with_bus
    async def test_one_member_of_a_group_gets_each_request(self, bus: _Bus) -> None:
        """Each request reaches one member of a group, and every member gets some."""
        members = [await bus.join() for _ in range(3)]
        for member in members:
            await member.link.register("op:test.op", "workers")
        client = await bus.join()
        for number in range(_MANY):
            await client.link.send("op:test.op", _request(number))
        await client.link.drain(SOON)
        for member in members:
            await member.link.drain(SOON)
        counts = [len(member.events) for member in members]
        assert sum(counts) == _MANY, f"got {counts}"
        assert min(counts) > _MANY / 8, f"got {counts}"

    @_with_bus
    async def test_what_is_unregistered_is_served_no_longer(self, bus: _Bus) -> None:
        """Unregistering is idempotent. A later request is rejected, because no link serves its operation."""
        server, client = await bus.join(), await bus.join()
        registration = await server.link.register("op:test.op", "workers")
        await registration.unregister()
        await registration.unregister()
        await server.link.drain(SOON)
        await _finds_nobody(client, _request(1))
        assert server.events == []

    @_with_bus
    async def test_what_nobody_listens_to_is_no_error_but_for_requests(self, bus: _Bus) -> None:
        """Events to a broadcast or inbox without a listener are dropped silently; such a request is rejected."""
        client = await bus.join()
        await client.send("all:nobody", "news", number=1)
        await client.send("inbox:nobody", "news", number=1)
        await client.send(client.link.inbox, "news", number=2)
        assert await client.wait_for("news") == [{"number": 2}]
        await _finds_nobody(client, _request(1, "test.nobody.here"))

    @_with_bus
    async def test_links_of_another_bus_do_not_meet(self, bus: _Bus) -> None:
        """Links of different buses are isolated from each other."""
        server, stranger = await bus.join(), await bus.join(bus="another" + secrets.token_hex(4))
        await server.link.register("op:test.op", "workers")
        await _finds_nobody(stranger, _request(1))
        assert server.events == []

    # --- what is refused ---------------------------------------------------------------------------

    @_with_bus
    async def test_a_request_runs_at_the_address_of_its_operation_alone(self, bus: _Bus) -> None:
        """A request is rejected unless it arrives at the address of its operation, because permissions are per
        address.
        """
        server, client = await bus.join(), await bus.join()
        for topic, group in (("op:test.public", "workers"), ("op:test.secret", "workers"), ("all:news", None)):
            await server.link.register(topic, group)
        await server.link.register("all:operad.discover")
        for number, to in enumerate(("op:test.public", "all:news", "all:operad.discover", server.link.inbox)):
            await client.link.send(to, _request(number, "test.secret", replyTo=client.link.inbox))
        errors = await client.wait_for(protocol.ERROR, 4)
        assert sorted((error["requestId"], error["code"]) for error in errors) == [
            (f"r{number}", ErrorCode.ACCESS_DENIED) for number in range(4)
        ]
        await client.link.send("op:test.secret", _request(8, "test.secret"))
        await client.link.send("all:operad.discover", _request(9, "operad.discover"))
        ran = await server.wait_for(protocol.REQUESTED, 2)
        assert sorted(request["requestId"] for request in ran) == ["r8", "r9"]

    @_with_bus
    async def test_a_peer_that_says_what_only_a_link_may_say_is_not_believed(self, bus: _Bus) -> None:
        """Events of a type ``link.…`` from a peer are dropped: only the receiving link may create such events."""
        server, client = await bus.join(), await bus.join()
        for type_ in ("link.stored", "link.lost", "link.registered"):
            await client.send(server.link.inbox, type_, requestId="1")
        await client.send(server.link.inbox, "news", number=1)
        await server.wait_for("news")
        assert [event["type"] for event, _ in server.events] == ["news"]

    @_with_bus
    async def test_an_event_that_is_too_large_is_refused_before_it_is_sent(self, bus: _Bus) -> None:
        """Sending too large an event raises an error that states the limit, and the connection stays open."""
        server, client, small = await bus.join(), await bus.join(), await bus.join(max_payload=1_000)
        await server.link.register("op:test.op", "workers")
        limit = bus.transport().capabilities.max_payload
        assert limit is not None
        for peer, size in ((client, limit), (small, 1_000)):
            sending = peer.link.send("op:test.op", _request(1, input="x" * size))
            error = await _raises(PayloadTooLargeError, sending)
            assert str(size) in str(error), str(error)
        await client.link.send("op:test.op", _request(2))
        assert (await server.wait_for(protocol.REQUESTED))[0]["requestId"] == "r2"

    @_with_bus
    async def test_a_receiver_that_raises_does_not_end_the_connection(self, bus: _Bus) -> None:
        """An exception in the receiver's callback affects only that event."""
        seen = []

        def on_event(event: Any, delivery: Any) -> None:
            seen.append(event)
            raise RuntimeError("a defect of the receiver")

        link = await bus.transport().open(on_event, lambda state, epoch: None)
        try:
            for number in range(2):
                await link.send(link.inbox, {"type": "news", "id": "", "payload": {"number": number}})
            await bus.until(lambda: len(seen) == 2)
        finally:
            await link.close()

    # --- endings -----------------------------------------------------------------------------------

    @_with_bus
    async def test_draining_delivers_what_was_under_way_and_keeps_the_inbox(self, bus: _Bus) -> None:
        """Draining a link delivers the requests that were sent before, and its inbox stays open."""
        server, client = await bus.join(), await bus.join()
        await server.link.register("op:test.op", "workers")
        for number in range(100):
            await client.link.send("op:test.op", _request(number))
        await client.link.drain(SOON)
        await server.link.drain(SOON)
        assert len(server.events) == 100
        await server.send(client.link.inbox, "news", number=1)
        await client.send(server.link.inbox, "news", number=2)
        await client.wait_for("news")
        await server.wait_for("news")

    @_with_bus
    async def test_closing_writes_what_was_sent(self, bus: _Bus) -> None:
        """Closing flushes events that were sent before."""
        server, client = await bus.join(), await bus.join()
        for number in range(_MANY):
            await client.send(server.link.inbox, "news", number=number)
        await client.link.close()
        await server.wait_for("news", _MANY)

    @_with_bus
    async def test_closing_is_idempotent_and_refuses_what_comes_after(self, bus: _Bus) -> None:
        """A link can be closed twice. Then sending raises `LinkDownError`, and registering a `TransportError`."""
        client = await bus.join()
        await client.link.close()
        await client.link.close()
        await _raises(LinkDownError, client.link.send("op:test.op", _request(1)))
        await _raises(TransportError, client.link.register("op:test.op", "workers"))

    # --- the server --------------------------------------------------------------------------------

    @_with_bus
    async def test_nobody_there_is_an_error_that_names_the_host_and_no_secret(self, bus: _Bus) -> None:
        """Opening a link raises `LinkDownError` if no server listens. It names host and port, but no secret."""
        with socket.socket() as taken:  # bound, and not listening
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            url = f"{self.url().partition(':')[0]}://user:secret@127.0.0.1:{port}"
            opening = self.transport(url, "any").open(lambda event, delivery: None, lambda state, epoch: None)
            error = await _raises(LinkDownError, opening)
        assert f"127.0.0.1:{port}" in str(error), str(error)
        assert "secret" not in str(error), str(error)

    @_with_server
    async def test_a_link_survives_its_server(self, bus: _Bus, server: ServerProcess) -> None:
        """A link reports that its server is down and up again, rejects events meanwhile, and registers again."""
        worker, client = await bus.join(), await bus.join()
        await worker.link.register("op:test.op", "workers")
        server.kill()
        await bus.until(lambda: client.states[-1] == "down" and worker.states[-1] == "down")
        await _raises(LinkDownError, client.link.send("op:test.op", _request(1)))
        await worker.link.register("op:test.more", "workers")
        server.start()
        await bus.until(lambda: client.states[-1] == "up" and worker.states[-1] == "up")
        for number, operation_id in enumerate(("test.op", "test.more")):
            await client.link.send(f"op:{operation_id}", _request(number, operation_id))
        await worker.wait_for(protocol.REQUESTED, 2)
        assert client.states == ["up", "down", "up"]
        assert client.epochs == [1, 1, 2]

    @_with_server
    async def test_a_server_that_stops_answering_is_noticed(self, bus: _Bus, server: ServerProcess) -> None:
        """A server that no longer responds is detected, even if its connection is still open."""
        client = await bus.join(impatient=True)
        server.freeze()
        await bus.until(lambda: client.states[-1] == "down")
        server.thaw()
        await bus.until(lambda: client.states[-1] == "up")

    @_with_server
    async def test_a_caller_that_tries_again_at_once_does_not_keep_the_link_down(
        self, bus: _Bus, server: ServerProcess
    ) -> None:
        """Sending on a link that is down lets other tasks run before it raises, so that the link can reconnect."""
        client = await bus.join()
        server.kill()
        await bus.until(lambda: client.states[-1] == "down")
        server.start()
        async with asyncio.timeout(SOON):
            while True:
                try:
                    await client.send(client.link.inbox, "news", number=1)
                except LinkDownError:
                    continue
                break
        await client.wait_for("news")


class _Bus:
    """The bus of one test, and its participants."""

    def __init__(self, kit: BrokerConformance, url: str) -> None:
        self._kit = kit
        self._url = url
        self._name = "kit" + secrets.token_hex(4)
        self._joined: list[Participant] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, kit: BrokerConformance, url: str) -> AsyncIterator[_Bus]:
        bus = cls(kit, url)
        try:
            yield bus
        finally:
            for participant in bus._joined:
                await participant.link.close()

    def transport(self, bus: str | None = None, **options: Any) -> Transport:
        return self._kit.transport(self._url, bus or self._name, **options)

    async def join(self, bus: str | None = None, **options: Any) -> Participant:
        """Add a participant."""
        made = Participant()
        made.link = await self.transport(bus, **options).open(made.on_event, made.on_link)
        self._joined.append(made)
        return made

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true."""
        async with asyncio.timeout(SOON):
            while not condition():  # noqa: ASYNC110  # conditions of all kinds, some of other processes
                await asyncio.sleep(0.005)


def _request(number: int, operation_id: str = "test.op", **payload: Any) -> Any:
    payload = {"requestId": f"r{number}", "operationId": operation_id, "input": None, **payload}
    return {"type": protocol.REQUESTED, "id": "", "payload": payload}


async def _finds_nobody(client: Participant, request: Any) -> None:
    """Check that a request without a server is rejected immediately, by an exception or by an event."""
    operation_id = request["payload"]["operationId"]
    try:
        await client.link.send(f"op:{operation_id}", request)
    except NoRespondersError:
        return
    error = (await client.wait_for(protocol.ERROR))[-1]
    assert error["code"] == ErrorCode.NO_RESPONDERS, f"got {error}"
    assert error["details"] == {"operationId": operation_id}, f"got {error}"


async def _raises(expected: type[Exception], awaitable: Any) -> Exception:
    try:
        await awaitable
    except expected as error:
        return error
    raise AssertionError(f"expected {expected.__name__}, got no error")
