"""What a hub writes to a connection and when, and how much hub and spoke read at once."""

import asyncio

import pytest
from aiohttp import WSMsgType
from hypothesis import given
from hypothesis import strategies as st

from operad_testing import Participant
from operad_websocket import Hub, _wire
from operad_websocket._wire import Corked, Wire
from plugins.websocket.tests.kit import calling, code_of
from plugins.websocket.tests.sockets import dialled, heard, upgraded


class Output:
    """A transport that keeps what is written, an item per system call."""

    def __init__(self):
        self.writes, self.overflows = [], []
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


def corked():
    output = Output()
    return output, Corked(output, 1_000, lambda: output.overflows.append(True))


def put(writer, *frames):
    for frame in frames:
        writer.write(frame)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The seconds that `Corked` sees. They do not pass by themselves, however busy this machine is."""
    seconds = [100.0]
    monkeypatch.setattr(_wire, "_now", lambda: seconds[0])
    return seconds


# --- frames of a burst ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bursts", "at_once", "by_the_end_of_the_turn"),
    [
        pytest.param("a", "a", "a", id="a single frame is written at once"),
        pytest.param("abcd", "a", "a bcd", id="frames that follow at once are written together"),
        pytest.param("abc de", "a bc", "a bc de", id="after a burst the next one from its first frame"),
        pytest.param("abc d e", "a bc d e", "a bc d e", id="after a burst and a lone frame at once again"),
    ],
)
async def test_frames_of_a_burst_are_written_together(bursts, at_once, by_the_end_of_the_turn, clock):
    output, writer = corked()
    for burst in bursts.split():
        await asyncio.sleep(0)
        clock[0] += 0.01
        put(writer, *(frame.encode() for frame in burst))
    assert b" ".join(output.writes).decode() == at_once
    await asyncio.sleep(0)
    assert b" ".join(output.writes).decode() == by_the_end_of_the_turn


async def test_a_long_burst_is_written_in_pieces_before_the_end_of_the_turn():
    output, writer = corked()
    put(writer, *[b"x" * 2**14] * 7)
    assert [len(data) for data in output.writes] == [2**14, 2**16]
    await asyncio.sleep(0)
    assert [len(data) for data in output.writes] == [2**14, 2**16, 2**15]


async def test_frames_that_are_kept_count_as_unwritten():
    output, writer = corked()
    output.unwritten = 5
    put(writer, b"a", b"bc")
    assert writer.unwritten == 7
    writer.flush()
    assert writer.unwritten == 5


async def test_a_connection_with_too_much_unwritten_is_aborted_and_reported_once():
    output, writer = corked()
    output.unwritten = 1_001
    put(writer, b"a", b"b")
    await asyncio.sleep(0)
    assert (output.writes, output.closing, output.overflows) == ([b"a"], True, [True])


@given(st.lists(st.lists(st.binary(min_size=1, max_size=3), max_size=5), max_size=6))
def test_frames_are_written_in_order_and_none_is_lost(turns):
    async def write():
        output, writer = corked()
        for frames in turns:
            put(writer, *frames)
            await asyncio.sleep(0)
        return b"".join(output.writes)

    assert asyncio.run(write()) == b"".join(frame for frames in turns for frame in frames)


@pytest.mark.parametrize("size", [2, 100, 1_000, 70_000, 1_000_000])
async def test_a_hub_writes_frames_of_any_size(size):
    """The length of a frame has three forms."""
    async with Hub(port=0) as hub, dialled(hub) as socket, Participant.open(hub.transport) as sender:
        await heard(socket, '{"type":"link.register","id":"1","payload":{"topics":["all:news"]}}')
        await sender.send("all:news", "news", text="x" * size)
        message = await socket.receive(timeout=10)
        assert (message.type, message.json()["payload"]["text"]) == (WSMsgType.TEXT, "x" * size)


@pytest.mark.parametrize(
    ("sent", "received"),
    [(b"\x89\x82\0\0\0\0hi", b"\x8a\x02hi"), (b"\x88\x82\0\0\0\0\x03\xe8", b"\x88\x02\x03\xe8")],
    ids=["ping", "close"],
)
async def test_a_control_frame_that_comes_with_the_handshake_is_answered(sent, received):
    async with Hub(port=0) as hub, upgraded(hub, sent) as (reader, _), asyncio.timeout(10):
        assert await reader.readexactly(len(received)) == received


async def test_pongs_that_a_peer_does_not_read_end_its_connection():
    async with Hub(port=0, max_buffer=100_000) as hub, upgraded(hub, limit=1_000) as (_, writer):
        writer.transport.pause_reading()
        ping = b"\x89\xfd\0\0\0\0" + b"x" * 125
        async with asyncio.timeout(30):
            while hub.connections:
                writer.write(ping * 1_000)
                await asyncio.sleep(0.001)


async def test_a_message_that_cannot_be_routed_is_logged_and_the_next_one_comes(caplog):
    async with Hub(port=0) as hub, calling(hub) as calls:
        route, failed = hub.switch.route, []

        def failing(peer, frame):
            if not failed:
                failed.append(frame)
                raise RuntimeError("no room")
            route(peer, frame)

        hub.switch.route = failing
        assert await code_of(calls.call("a.b", timeout=0.2)) == "TIMEOUT"
        assert await code_of(calls.call("a.b")) == "OPERATION_NOT_FOUND"
    assert "no room" in caplog.text


# --- reading -------------------------------------------------------------------------------------------


class Receiver(asyncio.Protocol):
    """Keeps what it receives."""

    def __init__(self):
        self.received = []
        self.data_received = self.received.append


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
    assert wire.is_full
    wire.connection_lost(None)
    await asyncio.gather(*waiting[1:])
    wire.resume_writing()
    assert not wire.is_full
