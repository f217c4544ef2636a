"""What a hub writes to a connection and when, and how much hub and spoke read at once."""

import asyncio

import pytest
from aiohttp import ClientSession, WSMsgType
from hypothesis import given
from hypothesis import strategies as st

from operad import CallError, PendingRequestMap
from operad_testing import Participant
from operad_websocket import Hub, WebSocketTransport, _wire
from operad_websocket._wire import Corked, Wire
from plugins.websocket.tests.sockets import UPGRADE, connected


class Output:
    """A transport that keeps what is written, an item per system call."""

    def __init__(self):
        self.writes = []
        self.closing = False
        self.unwritten = 0

    def write(self, data):
        self.writes.append(bytes(data))

    def is_closing(self):
        return self.closing

    def get_write_buffer_size(self):
        return self.unwritten

    def abort(self):
        self.closing = True


def corked(output, overflows=None):
    return Corked(output, 1_000, lambda: None if overflows is None else overflows.append(True))


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The seconds that `Corked` sees. They do not pass by themselves, however busy this machine is."""
    seconds = [100.0]
    monkeypatch.setattr(_wire, "_now", lambda: seconds[0])
    return seconds


# --- frames of a burst ---------------------------------------------------------------------------------


async def test_a_single_frame_is_written_at_once():
    output = Output()
    corked(output).write(b"a")
    assert output.writes == [b"a"]


async def test_frames_that_follow_at_once_are_written_together_at_the_end_of_the_turn():
    output = Output()
    writer = corked(output)
    for frame in (b"a", b"b", b"c", b"d"):
        writer.write(frame)
    assert output.writes == [b"a"]
    await asyncio.sleep(0)
    assert output.writes == [b"a", b"bcd"]


async def test_after_a_burst_the_next_burst_is_written_together_from_its_first_frame(clock):
    output = Output()
    writer = corked(output)
    for burst in ((b"a", b"b", b"c"), (b"d", b"e")):
        for frame in burst:
            writer.write(frame)
        await asyncio.sleep(0)
        clock[0] += 0.01
    assert output.writes == [b"a", b"bc", b"de"]


async def test_after_a_burst_and_a_lone_frame_frames_are_written_at_once_again(clock):
    output = Output()
    writer = corked(output)
    for burst in ((b"a", b"b", b"c"), (b"d",)):
        for frame in burst:
            writer.write(frame)
        await asyncio.sleep(0)
        clock[0] += 0.01
    writer.write(b"e")
    assert output.writes == [b"a", b"bc", b"d", b"e"]


async def test_a_long_burst_is_written_in_pieces_before_the_end_of_the_turn():
    output = Output()
    writer = corked(output)
    for _ in range(11):
        writer.write(b"x" * 10_000)
    assert [len(data) for data in output.writes] == [10_000, 70_000]
    await asyncio.sleep(0)
    assert [len(data) for data in output.writes] == [10_000, 70_000, 30_000]


async def test_frames_that_are_kept_count_as_unwritten():
    output = Output()
    writer = corked(output)
    output.unwritten = 5
    for frame in (b"a", b"bc"):
        writer.write(frame)
    assert writer.unwritten == 7
    writer.flush()
    assert writer.unwritten == 5


async def test_a_connection_with_too_much_unwritten_is_aborted_and_reported_once():
    output, overflows = Output(), []
    writer = corked(output, overflows)
    output.unwritten = 1_001
    for frame in (b"a", b"b"):
        writer.write(frame)
    await asyncio.sleep(0)
    assert (output.writes, output.closing, overflows) == ([b"a"], True, [True])


@given(st.lists(st.lists(st.binary(min_size=1, max_size=3), max_size=5), max_size=6))
def test_frames_are_written_in_order_and_none_is_lost(turns):
    async def write():
        output = Output()
        writer = corked(output)
        for frames in turns:
            for frame in frames:
                writer.write(frame)
            await asyncio.sleep(0)
        return b"".join(output.writes)

    assert asyncio.run(write()) == b"".join(frame for frames in turns for frame in frames)


@pytest.mark.parametrize("size", [2, 100, 1_000, 70_000, 1_000_000])
async def test_a_hub_writes_frames_of_any_size(size):
    """The length of a frame has three forms."""
    async with Hub(port=0) as hub, ClientSession() as session, Participant.open(hub.transport) as sender:
        socket = await session.ws_connect(hub.url)
        await socket.send_str('{"type":"link.register","id":"1","payload":{"topics":["all:news"]}}')
        await socket.receive(timeout=10)
        await sender.send("all:news", "news", text="x" * size)
        message = await socket.receive(timeout=10)
        assert (message.type, message.json()["payload"]["text"]) == (WSMsgType.TEXT, "x" * size)
        await socket.close()


@pytest.mark.parametrize(
    ("sent", "received"),
    [(b"\x89\x82\0\0\0\0hi", b"\x8a\x02hi"), (b"\x88\x82\0\0\0\0\x03\xe8", b"\x88\x02\x03\xe8")],
    ids=["ping", "close"],
)
async def test_a_control_frame_that_comes_with_the_handshake_is_answered(sent, received):
    async with Hub(port=0) as hub, connected(hub, UPGRADE + sent) as (reader, _), asyncio.timeout(10):
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(len(received)) == received


async def test_pongs_that_a_peer_does_not_read_end_its_connection():
    async with (
        Hub(port=0, max_buffer=100_000) as hub,
        connected(hub, UPGRADE, limit=1_000) as (reader, writer),
    ):
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        ping = b"\x89\xfd\0\0\0\0" + b"x" * 125
        async with asyncio.timeout(30):
            while hub.connections:
                writer.write(ping * 1_000)
                await asyncio.sleep(0.001)


async def test_a_message_that_cannot_be_routed_is_logged_and_the_next_one_comes(caplog):
    async with Hub(port=0) as hub, PendingRequestMap(WebSocketTransport(hub.url)) as calls:
        route, failed = hub.switch.route, []

        def failing(peer, frame):
            if not failed:
                failed.append(frame)
                raise RuntimeError("no room")
            route(peer, frame)

        hub.switch.route = failing
        with pytest.raises(CallError, match="TIMEOUT"):
            await calls.call("a.b", timeout=0.2)
        with pytest.raises(CallError, match="OPERATION_NOT_FOUND"):
            await calls.call("a.b")
    assert "no room" in caplog.text


# --- reading -------------------------------------------------------------------------------------------


class Receiver(asyncio.Protocol):
    """Keeps what it receives."""

    def __init__(self):
        self.received = []

    def data_received(self, data):
        self.received.append(data)


class Input:
    """A transport, as `Wire` uses it."""

    def __init__(self):
        self.protocol = Receiver()

    def get_protocol(self):
        return self.protocol

    def set_protocol(self, protocol):
        self.receiver, self.protocol = self.protocol, protocol


def read(wire, data):
    wire.get_buffer(-1)[: len(data)] = data
    wire.buffer_updated(len(data))


async def test_connections_share_the_memory_for_reading_and_nothing_else():
    inputs = [Input(), Input()]
    wires = [Wire(each) for each in inputs]
    for number, wire in enumerate(wires):
        read(wire, b"%d!" % number)
    assert [each.receiver.received for each in inputs] == [[b"0!"], [b"1!"]]
    assert wires[0].get_buffer(-1).obj is wires[1].get_buffer(-1).obj


async def test_more_is_read_at_once_only_within_a_large_message():
    """All frames of a read are handled in one turn of the loop: many small ones would delay everything else."""
    wire = Wire(Input())
    assert len(wire.get_buffer(-1)) == 32 * 2**10
    read(wire, b"x" * 32 * 2**10)
    assert len(wire.get_buffer(-1)) == 256 * 2**10
    wire.unfinished = 0
    assert len(wire.get_buffer(-1)) == 32 * 2**10


async def test_each_sender_waits_for_itself_and_goes_on_when_the_connection_is_lost():
    wire = Wire(Input())
    wire.pause_writing()
    waiting = [asyncio.create_task(wire.drained()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait({waiting[0]})
    assert not any(task.done() for task in waiting[1:])
    wire.connection_lost(None)
    await asyncio.gather(*waiting[1:])
