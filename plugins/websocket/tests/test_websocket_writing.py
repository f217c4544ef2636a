"""What a spoke and a hub write to their connection, and how they read it."""

import asyncio
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, WSMessage, WSMsgType, web
from hypothesis import given
from hypothesis import strategies as st

from operad import CallError, CallHandler, OperationRegistry, OperationSpec, PendingRequestMap
from operad_calls.protocol import Parts
from operad_websocket import Hub, WebSocketTransport, _corked, _direct
from operad_websocket._connecting import connect
from operad_websocket._corked import Corked, Reading, Turn, Writer


class Wire:
    """Keeps what is written, a list per system call."""

    max_size = 256 * 2**10

    def __init__(self):
        self.writes = []
        self.closing = False

    def write(self, data):
        self.writes.append(bytes(data))

    def is_closing(self):
        return self.closing

    def get_write_buffer_size(self):
        return 0


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Seconds, as what writes sees them: they stand still, however long this machine is busy with other things."""
    seconds = [100.0]
    monkeypatch.setattr(_corked, "_now", lambda: seconds[0])
    return seconds


async def test_a_single_frame_is_written_at_once():
    wire = Wire()
    Corked(wire).write(b"a")
    assert wire.writes == [b"a"]


async def test_a_burst_is_written_together_and_so_is_the_next_one():
    wire = Wire()
    corked = Corked(wire)
    corked._is_burst = True
    for _ in range(2):
        for frame in (b"a", b"b", b"c"):
            corked.write(frame)
        await asyncio.sleep(0)
    assert wire.writes == [b"abc", b"abc"]


async def test_after_a_burst_a_single_frame_is_written_at_once_again(clock):
    wire = Wire()
    corked = Corked(wire)
    corked._is_burst = True
    corked.write(b"a")
    await asyncio.sleep(0)  # no burst: it was alone
    clock[0] += 0.01
    corked.write(b"b")
    assert wire.writes == [b"a", b"b"]


async def test_what_follows_a_frame_at_once_is_written_at_the_end_of_the_turn():
    wire = Wire()
    corked = Corked(wire)
    for frame in (b"a", b"b", b"c", b"d"):
        corked.write(frame)
    assert wire.writes == [b"a"]
    await asyncio.sleep(0)
    assert wire.writes == [b"a", b"bcd"]


async def test_of_a_long_burst_some_travel_before_the_end_of_the_turn(clock):
    """The other side may begin with them."""
    wire, asked = Wire(), []

    def together():
        asked.append(True)
        return 3

    corked = Corked(wire, together)
    corked._is_burst = True
    for frame in (b"a", b"b", b"c", b"d", b"e", b"f", b"g"):
        corked.write(frame)
    assert wire.writes == [b"abc", b"def"]
    await asyncio.sleep(0)
    assert wire.writes == [b"abc", b"def", b"g"]
    assert asked == [True], "once for each burst"
    clock[0] += 0.01
    corked.write(b"a")
    assert len(wire.writes) == 3, "a burst is followed by another one, whatever was left of it"
    await asyncio.sleep(0)


@pytest.mark.parametrize(("under_way", "together"), [(0, 8), (15, 8), (20, 10), (33, 16), (200, 16)])
async def test_a_hub_passes_on_half_of_the_calls_of_a_spoke_together_and_no_more_than_sixteen(under_way, together):
    async with Hub(port=0) as hub, PendingRequestMap(WebSocketTransport(hub.url)):
        (connection,) = hub._connections
        connection.peer.calls.update({str(number): None for number in range(under_way)})
        assert connection._together() == together
        connection.peer.calls.clear()


@pytest.mark.parametrize("together", [None, lambda: 16], ids=["a spoke's", "of a hub, which may serve itself"])
async def test_no_frame_waits_for_slow_ones_that_follow_it(together, clock):
    wire = Wire()
    corked = Corked(wire, together)
    corked._is_burst = True
    for frame in (b"a", b"b", b"c", b"d", b"e"):
        clock[0] += 0.0004
        corked.write(frame)
    assert wire.writes == [b"abcd"]
    await asyncio.sleep(0)
    assert wire.writes == [b"abcd", b"e"]


async def test_a_burst_is_passed_on_at_the_end_of_the_read_that_brought_it():
    """Another turn of the event loop would be for nothing."""
    wire, turn = Wire(), Turn()
    corked = Corked(wire, turn=turn)

    def receive(data):
        for at in range(len(data)):
            corked.write(data[at : at + 1])
        assert wire.writes == [b"a"]

    reading = Reading(SimpleNamespace(data_received=receive), turn=turn)
    reading.get_buffer(-1)[:5] = b"abcde"
    reading.buffer_updated(5)
    assert wire.writes == [b"a", b"bcde"]
    await asyncio.sleep(0)
    assert wire.writes == [b"a", b"bcde"]


async def test_what_is_kept_does_not_wait_for_what_is_read_next(clock):
    """To take what was read may be much work, and the other side has none meanwhile."""
    wire = Wire()
    corked = Corked(wire)
    corked._is_burst = True
    seen = []
    reading = Reading(
        SimpleNamespace(data_received=lambda data: seen.append(list(wire.writes))), before=corked.write_kept
    )
    for frame in (b"a", b"b"):
        corked.write(frame)
    for _ in range(2):
        reading.get_buffer(-1)[:1] = b"x"
        reading.buffer_updated(1)
    assert seen == [[b"ab"], [b"ab"]]
    await asyncio.sleep(0)
    clock[0] += 0.01
    corked.write(b"c")
    assert wire.writes == [b"ab"], "it was a burst, though it is written already"
    await asyncio.sleep(0)
    assert wire.writes == [b"ab", b"c"]


async def test_a_spoke_writes_what_it_keeps_before_it_takes_what_it_has_read():
    async with Hub(port=0) as hub, PendingRequestMap(WebSocketTransport(hub.url)) as calls:
        writer = calls._link._writer
        corked, reading = writer._transport, calls._link._socket._writer.transport._transport.get_protocol()
        assert reading._before == corked.write_kept


async def test_single_frames_of_many_connections_travel_together():
    wire, turn = Wire(), Turn()
    corked = Corked(wire, turn=turn)
    corked._is_burst = True
    for letter in (b"a", b"b", b"c"):
        reading = Reading(SimpleNamespace(data_received=corked.write), turn=turn)
        reading.get_buffer(-1)[:1] = letter
        reading.buffer_updated(1)
    assert wire.writes == []
    await asyncio.sleep(0)
    assert wire.writes == [b"abc"]


async def test_a_read_that_fails_still_passes_on_what_it_brought():
    wire, turn = Wire(), Turn()
    corked = Corked(wire, turn=turn)
    corked._is_burst = True

    def receive(data):
        for _ in range(5):
            corked.write(data)
        raise ValueError("no frame")

    with pytest.raises(ValueError, match="no frame"):
        turn.read(receive, b"a")
    assert wire.writes == [b"aaaaa"]


async def test_what_may_not_be_written_is_dropped_and_what_was_is_told():
    wire, told, may = Wire(), [], [True]
    corked = Corked(wire, may_write=lambda: may[0], written=lambda: told.append(len(wire.writes)))
    corked.write(b"a")
    may.clear()
    may.append(False)
    corked.write(b"b")
    await asyncio.sleep(0)
    assert wire.writes == [b"a"]
    assert told == [1]


async def test_a_large_frame_is_written_by_itself_after_what_waits():
    """A copy of it would cost more than a system call."""
    wire, large = Wire(), b"x" * 70_000
    corked = Corked(wire)
    corked._is_burst = True
    for frame in (b"a", b"b", large, b"c"):
        corked.write(frame)
    assert wire.writes == [b"ab", large]
    await asyncio.sleep(0)
    assert wire.writes == [b"ab", large, b"c"]


async def test_no_more_travels_together_than_a_socket_takes_at_once():
    """The rest would be copied, and wait for the socket, with nothing for the other side to do meanwhile."""
    wire = Wire()
    corked = Corked(wire)
    corked._is_burst = True
    for _ in range(10):
        corked.write(b"x" * 10_000)
    assert [len(data) for data in wire.writes] == [70_000]
    await asyncio.sleep(0)
    assert [len(data) for data in wire.writes] == [70_000, 30_000]


async def test_connections_are_read_into_one_memory_and_keep_nothing_of_it():
    """What one connection has received does not change when the next one reads."""
    ends = []
    for _ in range(2):
        come = []
        ends.append((come, Reading(SimpleNamespace(data_received=come.append))))
    for number, (_, reading) in enumerate(ends):
        room = reading.get_buffer(-1)
        room[:2] = b"%d!" % number
        reading.buffer_updated(2)
    assert [come for come, _ in ends] == [[b"0!"], [b"1!"]]
    assert ends[0][1].get_buffer(-1) is ends[1][1].get_buffer(-1)


async def test_of_a_peer_that_sends_no_large_message_little_is_read_at_once():
    """All frames of a read are taken in one turn of the loop: a mebibyte of them would hold everybody else up."""
    large = []
    reading = Reading(SimpleNamespace(data_received=lambda data: None), lambda: bool(large))
    assert len(reading.get_buffer(-1)) == 32 * 2**10
    large.append(True)
    assert len(reading.get_buffer(-1)) == 256 * 2**10
    large.clear()
    assert len(reading.get_buffer(-1)) == 32 * 2**10


async def test_a_hub_reads_more_at_once_only_within_a_large_message():
    async with Hub(port=0) as hub, PendingRequestMap(WebSocketTransport(hub.url)) as calls:
        (connection,) = hub._connections
        reading = connection._transport._transport.get_protocol()
        seen = []
        receive = reading._receive
        reading._receive = lambda data: (seen.append(len(data)), receive(data))
        with pytest.raises(CallError, match="nobody on this hub"):
            await calls.call("t.nobody", {"text": "x" * 1_000_000})
        assert seen[0] <= 32 * 2**10 < max(seen) <= 256 * 2**10
        seen.clear()
        for _ in range(5):
            with pytest.raises(CallError, match="nobody on this hub"):
                await calls.call("t.nobody", {"text": "x" * 10_000})
        assert max(seen) <= 32 * 2**10


@given(
    turns=st.lists(st.lists(st.binary(min_size=1, max_size=3), max_size=5), max_size=6),
    together=st.integers(1, 4),
)
def test_frames_are_written_in_order_and_none_is_lost(turns, together):
    async def write():
        wire = Wire()
        corked = Corked(wire, lambda: together)
        for frames in turns:
            for frame in frames:
                corked.write(frame)
            await asyncio.sleep(0)
        return b"".join(wire.writes)

    assert asyncio.run(write()) == b"".join(frame for frames in turns for frame in frames)


async def test_nothing_is_written_to_a_transport_that_closes():
    wire = Wire()
    corked = Corked(wire)
    corked._is_burst = True
    corked.write(b"a")
    wire.closing = True
    corked.flush()
    assert wire.writes == []


# --- messages taken as they are parsed ---------------------------------------------------------------


async def test_this_aiohttp_lets_messages_be_taken_as_they_are_parsed():
    """Where it does not, everything works as well, and more slowly."""
    async with Hub(port=0) as hub, ClientSession() as session:
        socket = await connect(WebSocketTransport(hub.url), session)
        with _direct.taking(socket, lambda message: None, lambda: None) as directly:
            assert directly
        for connection in hub._connections:
            assert isinstance(connection._socket._reader, _direct.DirectQueue)
        await socket.close()


async def test_an_aiohttp_with_other_insides_works_as_well(monkeypatch):
    registry = OperationRegistry()
    registry.register(OperationSpec(namespace="a", name="b", type="query"), echo)
    monkeypatch.setattr(_direct, "Queue", None)
    async with (
        Hub(port=0) as hub,
        CallHandler(registry, WebSocketTransport(hub.url)),
        PendingRequestMap(WebSocketTransport(hub.url)) as calls,
    ):
        assert all(not isinstance(item._socket._reader, _direct.DirectQueue) for item in hub._connections)
        assert (await calls.call("a.b", {"value": 1})).data == {"value": 1}


async def echo(input, context):
    return input


async def test_messages_that_came_before_they_are_taken_come_first():
    queue, taken = _direct.DirectQueue(Paused(), 2**16, loop=asyncio.get_running_loop()), []
    for data in (b"1", b"2"):
        queue.feed_data(WSMessage(WSMsgType.BINARY, data, None), 1)
    queue.start(taken.append)
    queue.feed_data(WSMessage(WSMsgType.TEXT, "3", None), 1)
    assert taken == [b"1", b"2", "3"]


async def test_what_is_no_message_stays_for_whoever_receives():
    """A ping or the end of the connection may come before messages are taken, and after."""
    queue, taken = _direct.DirectQueue(Paused(), 2**16, loop=asyncio.get_running_loop()), []
    queue.feed_data(WSMessage(WSMsgType.BINARY, b"1", None), 1)
    queue.feed_data(WSMessage(WSMsgType.PING, b"here?", None), 5)
    queue.feed_data(WSMessage(WSMsgType.CLOSE, 1000, ""), 2)
    queue.start(taken.append)
    queue.start(_direct._drop)
    assert taken == [b"1"]
    assert [(await queue.read()).type for _ in range(2)] == [WSMsgType.PING, WSMsgType.CLOSE]


@pytest.mark.parametrize(
    ("sent", "received"),
    [(b"\x89\x82\0\0\0\0hi", b"\x8a\x02hi"), (b"\x88\x82\0\0\0\0\x03\xe8", b"\x88\x02\x03\xe8")],
    ids=["ping", "close"],
)
async def test_a_control_frame_that_comes_with_the_handshake_is_answered(sent, received):
    async with Hub(port=0) as hub:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(hub.url).port)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==\r\n\r\n" + sent
        )
        async with asyncio.timeout(10):
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(received)) == received
        writer.close()
        await writer.wait_closed()


async def test_a_message_that_cannot_be_taken_is_logged_and_the_next_one_comes(caplog):
    queue, taken = _direct.DirectQueue(Paused(), 2**16, loop=asyncio.get_running_loop()), []

    def take(data):
        taken.append(data)
        raise RuntimeError("no room")

    queue.start(take)
    for data in (b"1", b"2"):
        queue.feed_data(WSMessage(WSMsgType.BINARY, data, None), 1)
    assert taken == [b"1", b"2"]
    assert "no room" in caplog.text


class Paused:
    """A protocol that never has to pause reading."""

    _reading_paused = False


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 300_000])
async def test_a_frame_of_any_size_arrives_as_it_was_written(size):
    """The length has three forms, and each frame a mask of its own; also where it is written in parts."""
    data, come = b"%0*d" % (size, 7) if size else b"", asyncio.Queue()

    async def receive(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            come.put_nowait(message)
        return socket

    app = web.Application()
    app.router.add_get("/", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = site._server.sockets[0].getsockname()[1]
        async with ClientSession() as session, session.ws_connect(f"ws://127.0.0.1:{port}/") as socket:
            writer = Writer(socket)
            for written in (data, data, Parts(data[:1], memoryview(data)[1:-1], data[1:][-1:])):
                if (unwritten := writer.put(written)) is not None:
                    await unwritten
                assert (await come.get()) == WSMessage(WSMsgType.BINARY, data, "")
            await socket.close()
            with pytest.raises(ConnectionError):
                writer.put(data)
    finally:
        await runner.cleanup()
