"""Requests stored in JetStream, on a server of each test's own that it may kill."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import nats
import pytest

from operad import CallError, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap
from operad.errors import ConfigError
from operad.plugin import Delivery, Event, Link, TransportError
from operad.transports import Transport
from operad_nats import NATSTransport, _jetstream, _queues
from operad_nats.testing import NATSServer
from operad_testing import Participant, TransportConformance
from plugins.calls.tests.links import until

pytestmark = pytest.mark.nats

ACK_WAIT = 1.0
PATIENT = 60.0
"""Seconds for what is no part of a test: JetStream waits for a disk, and this process for its turn."""
OPTIONS: dict[str, Any] = {
    "durable": True,
    "ack_wait": ACK_WAIT,
    "reconnect_wait": 0.05,
    "connect_timeout": PATIENT,
}


class Stored:
    """A server with JetStream, and a look into what it stores."""

    def __init__(self, folder: Path) -> None:
        self.server = NATSServer(["-js", "-sd", str(folder)])

    def transport(self, **options: Any) -> NATSTransport:
        return NATSTransport(servers=self.server.url, **(OPTIONS | options))

    def calling(self, **options: Any) -> PendingRequestMap:
        return PendingRequestMap(self.transport(**options))

    async def link(self, on_event: Callable[[Event, Delivery], None], **options: Any) -> Link:
        return await self.transport(**options).open(on_event, lambda state, epoch: None)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Any]:
        client = await nats.connect(self.server.url)
        try:
            yield client
        finally:
            await client.close()

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Any]:
        async with self.connected() as client:
            yield client.jetstream(timeout=PATIENT)

    async def put(self, reply_to: str, *, request_id: str = "1", n: Any = 1, **more: Any) -> None:
        """Store a request for ``work.put``."""
        asked = {"requestId": request_id, "operationId": "work.put", "input": {"n": n}, "replyTo": reply_to}
        event = {"type": "call.requested", "id": "", "payload": {**asked, **more}}
        async with self.admin() as jetstream:
            await jetstream.publish("operad.queue.work.put", json.dumps(event).encode())

    async def count(self) -> int:
        async with self.admin() as jetstream:
            return int((await jetstream.stream_info("operad")).state.messages)

    async def until_count(self, count: int, stream: str = "operad") -> None:
        async with self.admin() as jetstream, asyncio.timeout(15):
            while (await jetstream.stream_info(stream)).state.messages != count:
                await asyncio.sleep(0.02)


@pytest.fixture
def stored(new_server: type[NATSServer], tmp_path: Path) -> Iterator[Stored]:
    made = Stored(tmp_path / "jetstream")
    with made.server:
        yield made


async def processed(client: Any) -> None:
    """Return when the server has processed what was sent: the ping of ``flush`` overtakes what nats-py still holds."""
    while client.pending_data_size:
        await asyncio.sleep(0)
    await client.flush()


class Work:
    """The operations ``work.put`` (an idempotent mutation) and ``work.post`` (one that is not)."""

    def __init__(self, stored: Stored, *, busy: bool = False) -> None:
        self.stored = stored
        self.runs: list[Any] = []
        self.gate = asyncio.Event()
        if not busy:
            self.gate.set()
        self.registry = OperationRegistry()
        for name, idempotent in (("put", True), ("post", False)):
            spec = OperationSpec(namespace="work", name=name, type="mutation", idempotent=idempotent)
            self.registry.register(spec, self.run)

    async def run(self, input: Any, context: Any) -> Any:
        self.runs.append(input.get("n"))
        await self.gate.wait()
        return input.get("n")

    async def until(self, count: int) -> None:
        await until(lambda: len(self.runs) >= count)

    def serving(self, drain_timeout: float = 30.0, **options: Any) -> CallHandler:
        return CallHandler(self.registry, self.stored.transport(**options), drain_timeout=drain_timeout)


@pytest.fixture
def work(stored: Stored) -> Work:
    return Work(stored)


@pytest.fixture
def busy(stored: Stored) -> Work:
    """Work that does not end before its gate opens."""
    return Work(stored, busy=True)


@pytest.fixture
async def calls(stored: Stored, work: Work) -> AsyncIterator[PendingRequestMap]:
    """Calls of the operations of `work`."""
    async with work.serving(), stored.calling() as calls:
        yield calls


# --- a worker that is killed --------------------------------------------------------------------------


Hire = Callable[[str], Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def hire(stored: Stored, tmp_path: Path) -> AsyncIterator[Hire]:
    """Starts workers that write what they run into ``runs``; ends them with the test."""
    workers = []

    async def hire(name: str) -> asyncio.subprocess.Process:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, str(Path(__file__).with_name("durable_worker.py")), stored.server.url,
            json.dumps(OPTIONS), name, str(tmp_path / "runs"), stdout=subprocess.PIPE,
        )  # fmt: skip
        workers.append(worker)
        assert worker.stdout is not None
        async with asyncio.timeout(PATIENT):
            assert await worker.stdout.readline() == b"ready\n"
        return worker

    yield hire
    for worker in workers:
        if worker.returncode is None:
            worker.kill()
        await worker.communicate()


async def runs_of(path: Path, count: int) -> list[list[str]]:
    """The lines of ``runs``, once there are so many: what, id, worker."""
    await until(lambda: path.exists() and len(path.read_text().splitlines()) >= count)
    return [line.split() for line in path.read_text().splitlines()]


async def test_another_worker_finishes_what_a_killed_one_had(stored: Stored, hire: Hire, tmp_path: Path) -> None:
    """The caller gets its one answer. Only an idempotent mutation is repeated."""
    victim = await hire("victim")
    async with stored.calling() as calls:
        put = asyncio.create_task(calls.call("work.put", {"n": "put", "delay": 60}, timeout=30))
        post = asyncio.create_task(calls.call("work.post", {"n": "post", "delay": 60}, timeout=4))
        await runs_of(tmp_path / "runs", 2)
        await hire("other")
        victim.send_signal(signal.SIGKILL)
        assert (await put).data == "other"  # a repeated run does not wait
        with pytest.raises(CallError, match="TIMEOUT"):
            await post
        assert calls.late == 0
    ran = sorted(await runs_of(tmp_path / "runs", 3))
    assert ran == [["post", "post", "victim"], ["put", "put", "other"], ["put", "put", "victim"]]
    await stored.until_count(0)


async def test_a_request_that_ends_every_worker_is_refused_in_the_end(
    stored: Stored, busy: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_queues, "MAX_DELIVERIES", 2)
    patient = {"ack_wait": PATIENT}  # one more delivery, while this process stands still, counts
    async with stored.calling(**patient) as calls:
        call = None
        for attempt in (1, 2):
            async with busy.serving(0.01, **patient):
                call = call or asyncio.create_task(calls.call("work.put", {"n": 1}))
                await busy.until(attempt)
        async with busy.serving(**patient):
            with pytest.raises(CallError, match="2 deliveries of the request failed"):
                await call
    assert busy.runs == [1, 1]
    await stored.until_count(0)


# --- a server that is killed --------------------------------------------------------------------------


async def test_stored_requests_outlive_the_server(stored: Stored, busy: Work) -> None:
    """Those under way and those that nobody had read yet are answered; a call of another kind fails at once."""
    async with stored.calling() as calls:
        async with busy.serving(0.01):  # as good as dead then: all it had is given back
            tasks = [asyncio.create_task(calls.call("work.put", {"n": n}, timeout=60)) for n in range(20)]
            other = asyncio.create_task(calls.call("work.post", {"n": "other"}, timeout=60))
            await busy.until(21)
        await stored.until_count(20)
        stored.server.kill()
        with pytest.raises(CallError, match="UNAVAILABLE"):
            await other
        assert calls.pending == 20
        stored.server.start()
        busy.gate.set()
        async with busy.serving():
            assert [(await task).data for task in tasks] == list(range(20))
            await stored.until_count(0)
    assert busy.runs.count("other") == 1


@pytest.mark.parametrize("n", [1, "\0é" * 20_000], ids=["small", "large"])
async def test_an_answer_that_could_not_be_sent_is_sent_when_the_server_is_back(
    stored: Stored, busy: Work, n: Any
) -> None:
    """What a worker finished without a connection does not run again there."""
    async with busy.serving(ack_wait=60) as handler, stored.calling(ack_wait=60) as calls:
        call = asyncio.create_task(calls.call("work.put", {"n": n}, timeout=60))
        await busy.until(1)
        await stored.until_count(1)
        stored.server.kill()
        await until(lambda: not calls._requests.up.is_set() and not handler._link._can_send())  # type: ignore[union-attr]  # a NATSLink
        busy.gate.set()
        await until(lambda: not handler.active)
        stored.server.start()
        assert (await call).data == n
        await stored.until_count(0)
    assert busy.runs == [n]


@pytest.mark.parametrize("n", [1, "\0é" * 20_000], ids=["small", "large"])
async def test_an_answer_waits_for_a_caller_that_reconnects(stored: Stored, work: Work, n: Any) -> None:
    """Where nobody listens at the inbox the server says so; the answer is sent again, and only then acknowledged."""
    inbox = secrets.token_hex(16)
    async with work.serving(), stored.connected() as client:
        await stored.put(f"inbox:{inbox}", n=n, deadline=1e14)
        await work.until(1)
        await asyncio.sleep(1.5 * ACK_WAIT)  # longer than the server waits for a sign of life
        assert await stored.count() == 1
        answers = await client.subscribe(f"_INBOX.{inbox}.r")
        answer = json.loads((await answers.next_msg(10)).data)
        assert answer["payload"]["output"]["data"] == n
        await stored.until_count(0)
    assert work.runs == [n]


async def test_a_link_that_comes_back_to_an_empty_server_sets_it_up_again(
    stored: Stored, calls: PendingRequestMap, tmp_path: Path
) -> None:
    stored.server.kill()
    stored.server.arguments[-1] = str(tmp_path / "another")
    stored.server.start()
    async with stored.admin() as jetstream, asyncio.timeout(15):
        while True:
            with suppress(Exception):
                await jetstream.consumer_info("operad", "work=put")
                break
            await asyncio.sleep(0.02)
    await asyncio.wait_for(calls._requests.up.wait(), 15)
    assert (await calls.call("work.put", {"n": 1})).data == 1


# --- what is stored, and for how long -----------------------------------------------------------------


async def test_only_idempotent_mutations_are_stored(stored: Stored, work: Work, calls: PendingRequestMap) -> None:
    work.gate.clear()
    tasks = [asyncio.create_task(calls.call(f"work.{name}", {"n": name})) for name in ("put", "post")]
    await work.until(2)
    assert await stored.count() == 1
    work.gate.set()
    assert [(await task).data for task in tasks] == ["put", "post"]
    await stored.until_count(0)


async def test_a_long_run_is_not_repeated(stored: Stored) -> None:
    """A worker says what it is working on, for as long as it does."""
    for ack_wait in (ACK_WAIT, 5 * ACK_WAIT):  # where this process stood still for longer: once more
        work, options = Work(stored, busy=True), {"prefix": f"wait{ack_wait:.0f}", "ack_wait": ack_wait}
        async with AsyncExitStack() as stack:
            for _ in range(6):  # a repetition would hardly come to the same one
                await stack.enter_async_context(work.serving(**options))
            calls = await stack.enter_async_context(stored.calling(**options))
            call = asyncio.create_task(calls.call("work.put", {"n": 1}))
            await work.until(1)
            await asyncio.sleep(2.5 * ack_wait)
            work.gate.set()
            assert (await call).data == 1
        if work.runs == [1]:
            break
    assert work.runs == [1]
    await stored.until_count(0, f"wait{ack_wait:.0f}")


async def test_a_request_waits_for_a_worker_that_comes_back(stored: Stored, work: Work) -> None:
    """An operation that was served counts as served; what nobody takes ends with its deadline, and is gone."""
    async with stored.calling() as calls:
        with pytest.raises(CallError, match="NO_RESPONDERS"):
            await calls.call("work.put", {"n": 0})
        await asyncio.sleep(_jetstream.KNOWN_FOR)
        async with work.serving():
            pass
        call = asyncio.create_task(calls.call("work.put", {"n": 1}))
        await stored.until_count(1)
        async with work.serving():
            assert (await call).data == 1
        with pytest.raises(CallError, match="TIMEOUT"):
            await calls.call("work.put", {"n": 2}, timeout=0.2)
        await stored.until_count(0)
    assert work.runs == [1]


async def test_a_call_that_is_cancelled_leaves_nothing(stored: Stored, busy: Work) -> None:
    async with busy.serving() as handler, stored.calling() as calls:
        call = asyncio.create_task(calls.call("work.put", {"n": 1}))
        await busy.until(1)
        call.cancel()
        await asyncio.wait({call})
        await until(lambda: not handler.active)
        await stored.until_count(0)


async def test_a_handler_that_stops_gives_back_what_it_could_not_finish(
    stored: Stored, busy: Work, work: Work
) -> None:
    async with stored.calling(ack_wait=60) as calls:
        async with busy.serving(0.05, ack_wait=60):
            tasks = [asyncio.create_task(calls.call("work.put", {"n": n})) for n in range(10)]
            await busy.until(10)
        async with work.serving(ack_wait=60):
            assert [(await task).data for task in tasks] == list(range(10))
    assert sorted(work.runs) == list(range(10))
    await stored.until_count(0)


async def test_callers_and_workers_without_the_option_work_as_before(stored: Stored, work: Work) -> None:
    for durable in (False, True):
        async with work.serving(durable=durable), stored.calling(durable=not durable) as calls:
            assert (await calls.call("work.put", {"n": 1}, timeout=10)).data == 1
            assert await stored.count() == 0
        async with stored.admin() as jetstream:
            await jetstream.delete_stream("operad")
            await jetstream.add_stream(name="operad", subjects=["operad.queue.>"], retention="workqueue")
    assert work.runs == [1, 1]


async def test_stored_requests_are_shared_by_the_workers(stored: Stored) -> None:
    one, two = Work(stored), Work(stored)
    patient = {"ack_wait": PATIENT}  # what waits here to be read goes to no other one
    async with one.serving(**patient), two.serving(**patient), stored.calling(**patient) as calls:
        await asyncio.gather(*(calls.call("work.put", {"n": n}) for n in range(300)))
    assert sorted(one.runs + two.runs) == list(range(300))
    assert min(len(one.runs), len(two.runs)) > 50
    await stored.until_count(0)


async def test_what_is_no_event_is_dropped_from_the_queue(stored: Stored, work: Work) -> None:
    async with work.serving(), stored.admin() as jetstream:
        for rubbish in (b"", b"[1]", b'{"type":"call.requested","payload":{}}', b'{"type":"x","payload":{}}'):
            await jetstream.publish("operad.queue.work.put", rubbish)
        async with stored.calling() as calls:
            assert (await calls.call("work.put", {"n": 1})).data == 1
        await stored.until_count(0)


@pytest.mark.parametrize("deadline", [10**400, -(10**400)], ids=["after", "before"])
async def test_a_deadline_that_no_clock_has_ends_no_worker(
    stored: Stored, work: Work, calls: PendingRequestMap, deadline: int
) -> None:
    """It would end the next one as well, for as long as the server keeps the request."""
    assert calls.link is not None
    await stored.put(calls.link.inbox, deadline=deadline)
    assert (await calls.call("work.put", {"n": 2})).data == 2
    await stored.until_count(0)
    assert work.runs == ([1, 2] if deadline > 0 else [2])


async def test_a_stored_request_that_cannot_be_taken_is_not_kept(stored: Stored) -> None:
    """Whoever had it next would fail in the same way; the connection goes on."""
    seen: list[Event] = []

    def on_event(event: Event, delivery: Delivery) -> None:
        seen.append(event)
        raise RuntimeError("a defect of the receiver")

    link = await stored.link(on_event, ack_wait=PATIENT)
    await link.register("queue:work.put", "operad")
    for request_id in ("1", "2"):
        await stored.put("inbox:x", request_id=request_id)
    await stored.until_count(0)
    assert [event["payload"]["requestId"] for event in seen] == ["1", "2"]
    await link.close()


async def test_a_peer_that_sends_rubbish_for_the_servers_word_harms_nobody(
    stored: Stored, calls: PendingRequestMap
) -> None:
    assert calls.link is not None
    own = f"_INBOX.{calls.link.inbox.removeprefix('inbox:')}"
    async with stored.connected() as client:
        for kind in ("n.work%2Eput.1", "n", "j.1", "v.1"):
            for data in (b"", b"[" * 100_000, b"[1]", b'{"error":{}}'):
                await client.publish(f"{own}.{kind}", data)
        await processed(client)
    assert (await calls.call("work.put", {"n": 1})).data == 1


async def test_no_peer_can_answer_for_the_server(stored: Stored) -> None:
    """Whoever knows a link's inbox does not know where it awaits the answers of JetStream."""
    replies: list[str] = []

    async def note(message: Any) -> None:
        replies.append(message.reply)

    async with stored.connected() as client, stored.calling() as calls:
        await client.subscribe("$JS.API.CONSUMER.INFO.>", cb=note)
        await processed(client)
        with pytest.raises(CallError, match="NO_RESPONDERS"):
            await calls.call("work.put", timeout=60)
        await until(lambda: replies, 60)
    assert re.fullmatch(r"_INBOX\.\w+\.j\.[0-9a-f]{32}", replies[0])


async def test_a_request_that_the_server_does_not_store_fails_at_once(stored: Stored, work: Work) -> None:
    """As where a limit is reached that somebody gave the stream."""
    async with stored.admin() as jetstream:
        await jetstream.add_stream(
            name="operad", subjects=["operad.queue.>"], retention="workqueue", max_bytes=100, discard="new"
        )
    async with work.serving(), stored.calling() as calls:
        with pytest.raises(CallError, match="was not stored: maximum bytes exceeded") as caught:
            await calls.call("work.put", {"n": 1})
        assert caught.value.code == "UNAVAILABLE"
        assert (await calls.call("work.post", {"n": 2})).data == 2


async def test_a_queue_that_is_gone_is_noticed_by_the_first_call(
    stored: Stored, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not stored, and says so; the next one goes the plain way."""
    monkeypatch.setattr(_jetstream, "KNOWN_FOR", PATIENT)  # it would ask again, which is no news
    async with work.serving(), stored.calling() as calls:
        await calls.call("work.put", {"n": 1})
        async with stored.admin() as jetstream:
            await jetstream.delete_stream("operad")
        with pytest.raises(CallError, match="NO_RESPONDERS"):
            await calls.call("work.put", {"n": 2}, timeout=20)
        assert (await calls.call("work.put", {"n": 3}, timeout=20)).data == 3
    assert work.runs == [1, 3]


async def test_a_request_that_somebody_else_had_is_marked_as_redelivered(stored: Stored) -> None:
    """What its handler declares now decides whether it may run again."""
    seen: asyncio.Queue[Delivery] = asyncio.Queue()
    async with Participant.open(stored.transport()) as caller:
        for redelivered in (False, True):
            link = await stored.link(lambda event, delivery: seen.put_nowait(delivery))
            await link.register("queue:work.put", "operad")
            if not redelivered:
                await caller.request("work.put", "r1")
            async with asyncio.timeout(10):
                delivery = await seen.get()
            assert delivery.redelivered is redelivered
            if redelivered:
                assert delivery.done is not None
                delivery.done()
            await link.close()
    await stored.until_count(0)


async def test_a_stream_of_items_is_not_stored(stored: Stored, work: Work, calls: PendingRequestMap) -> None:
    """Also that of an operation whose single calls are."""
    work.gate.clear()
    first = asyncio.ensure_future(anext(calls.subscribe("work.put", {"n": 1})))
    await work.until(1)
    assert await stored.count() == 0
    work.gate.set()
    assert (await first).data == 1


# --- opening ------------------------------------------------------------------------------------------


async def test_a_server_without_jetstream_is_an_error_that_says_what_to_do(nats_server: NATSServer) -> None:
    for opened in (PendingRequestMap, lambda transport: CallHandler(OperationRegistry(), transport)):
        with pytest.raises(TransportError, match="no JetStream; start nats-server with -js"):
            await opened(NATSTransport(servers=nats_server.url, durable=True)).open()


async def test_a_stream_of_somebody_else_is_not_touched(stored: Stored) -> None:
    for theirs in ({"subjects": ["theirs"], "retention": "workqueue"}, {"subjects": ["operad.queue.>"]}):
        async with stored.admin() as jetstream:
            await jetstream.add_stream(name="operad", **theirs)
        with pytest.raises(TransportError, match='stream "operad": expected the retention "workqueue"'):
            await PendingRequestMap(stored.transport()).open()
        async with stored.admin() as jetstream:
            await jetstream.delete_stream("operad")
    dotted = stored.transport(prefix="a.b")  # a stream's name has no dots
    async with PendingRequestMap(dotted), stored.admin() as jetstream:
        assert (await jetstream.stream_info("a=b")).config.subjects == ["a.b.queue.>"]


def test_what_the_option_declares() -> None:
    durable = NATSTransport(servers="nats://h", durable=True).capabilities
    plain = NATSTransport(servers="nats://h").capabilities
    assert (durable.stores, durable.redelivers) == (True, True)
    assert (plain.stores, plain.redelivers) == (False, False)
    with pytest.raises(ConfigError, match="ack_wait: expected a number above 0"):
        NATSTransport(servers="nats://h", ack_wait=0)


async def test_a_queue_needs_the_option_and_a_group(stored: Stored) -> None:
    for durable, group in ((False, "operad"), (True, None)):
        link = await stored.link(lambda event, delivery: None, durable=durable)
        with pytest.raises(TransportError, match="stored requests require durable=True and a group"):
            await link.register("queue:work.put", group)
        await link.close()


@pytest.mark.parametrize(
    "operation_id",
    ["ns.*", "ns.a b", "ns.ünïcode/日本", "ns." + "x" * 5000, "ns.a.b", "n" * 150 + "." + "x" * 150],
)
async def test_requests_for_any_operation_id_are_stored(stored: Stored, operation_id: str) -> None:
    async with Participant.open(stored.transport()) as server, Participant.open(stored.transport()) as caller:
        await server.link.register(f"queue:{operation_id}", "operad")
        await caller.request(operation_id, "r1")
        assert (await caller.wait_for("link.stored"))[0] == {"requestId": "r1"}
        assert (await server.wait_for("call.requested"))[0]["operationId"] == operation_id
        await stored.until_count(0)


@pytest.fixture(scope="class")
def shared(new_server: type[NATSServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    """As `stored`, for all tests of a class."""
    made = Stored(tmp_path_factory.mktemp("jetstream"))
    with made.server:
        yield made


class TestDurable(TransportConformance):
    """The kit with the option; its mutation that just works is declared idempotent, so that it is stored."""

    stored: Stored

    idempotent_work = True

    @pytest.fixture(autouse=True)
    def _use(self, shared: Stored) -> None:
        self.stored = shared

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[Transport]:
        # On a busy machine a second may pass before a request is taken up, and an idempotent one is then sent again.
        yield self.stored.transport(prefix="kit" + secrets.token_hex(4), ack_wait=4.0, connect_timeout=20.0)

    async def sever(self, transport: Transport) -> None:
        self.stored.server.kill()
        self.stored.server.start()
