"""The connection below nats-py: the server's stream, in whatever pieces it comes, and its end."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest
from nats import errors

from operad.plugin import LinkDownError
from operad_nats import NATSTransport
from operad_nats._connection import LARGE, Connection, Reader
from operad_nats.testing import NATSServer

LARGEST = bytes(range(32, 127)) * (10 * LARGE // 95)
STREAM = b"".join(
    [
        b"INFO {}\r\n",
        b"MSG a.b 1 5\r\nhello\r\n",
        b"MSG a.b 1 reply.to 0\r\n\r\n",
        b"PING\r\n",
        b"HMSG a.b 1 reply.to 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
        b"HMSG a.b 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"MSG a.b 1 9\r\nMSG a\r\n\r\n\r\n",
        b"MSG large 1 %d\r\n%b\r\n" % (len(LARGEST), LARGEST),
        b"MSG middle 1 %d\r\n%b\r\n" % (LARGE, LARGEST[:LARGE]),
        b"HMSG large 1 r 12 %d\r\nNATS/1.0\r\n\r\n%b\r\n" % (len(LARGEST) + 12, LARGEST),
        b"-ERR 'Permissions Violation'\r\n",
        b"MSG a.b 1 4\r\nlast\r\n",
    ]
)
MESSAGES = [
    (b"a.b", b"", b"hello", None),
    (b"a.b", b"reply.to", b"", None),
    (b"a.b", b"reply.to", b"hello", b"NATS/1.0\r\n\r\n"),
    (b"a.b", b"", b"", b"NATS/1.0 503\r\n\r\n"),
    (b"a.b", b"", b"MSG a\r\n\r\n", None),
    (b"large", b"", LARGEST, None),
    (b"middle", b"", LARGEST[:LARGE], None),
    (b"large", b"r", LARGEST, b"NATS/1.0\r\n\r\n"),
    (b"a.b", b"", b"last", None),
]


def feed(reader: Reader, data: bytes) -> None:
    """As the event loop does it."""
    at = 0
    while at < len(data):
        room = reader.get_buffer(-1)
        count = min(len(room), len(data) - at)
        room[:count] = data[at : at + count]
        at += count
        reader.buffer_updated(count)


def pieces(seed: int) -> list[bytes]:
    if seed == 0:
        return [STREAM]
    cuts = sorted(random.Random(seed).sample(range(1, len(STREAM)), min(seed * 7, 200)))
    return [STREAM[a:b] for a, b in pairwise([0, *cuts, len(STREAM)])]


@pytest.mark.parametrize("seed", range(25))
async def test_messages_and_control_lines_are_the_same_in_whatever_pieces_they_come(seed: int) -> None:
    received: list[tuple[Any, ...]] = []
    reader = Reader(lambda *message: received.append((*message[:2], bytes(message[2]), message[3])))
    for piece in pieces(seed):
        feed(reader, piece)
    assert received == MESSAGES
    assert await reader.all_lines() == b"INFO {}\r\nPING\r\n-ERR 'Permissions Violation'\r\n"


async def test_a_line_end_alone_may_come_with_each_byte() -> None:
    received: list[tuple[Any, ...]] = []
    reader = Reader(lambda *message: received.append(message))
    begin = STREAM[: STREAM.index(b"MSG large")]
    for at in range(len(begin)):
        feed(reader, begin[at : at + 1])
    assert received == MESSAGES[:5]


@pytest.mark.parametrize(
    "line",
    [b"MSG", b"MSG a", b"MSG a 1", b"MSG a 1 -5", b"MSG a 1 1_0", b"MSG a 1 r x", b"MSG a 1 r s 5", b"HMSG a 1 5",
     b"HMSG a 1 12 5", b"HMSG a 1 r s 5 5", b"MSG a 1 \xd9\xa5"],
)  # fmt: skip
async def test_a_malformed_message_ends_the_connection_with_a_protocol_error(line: bytes) -> None:
    received: list[tuple[Any, ...]] = []
    reader = Reader(lambda *message: received.append(message))
    feed(reader, line + b"  \r\nhello\r\nMSG a 1 5\r\nhello\r\n")
    reader.lines.clear()
    with pytest.raises(errors.ProtocolError):
        await reader.all_lines()
    assert received == []


@pytest.mark.parametrize("end", [b"\n\r", b"XX", b"\rX", b"XX\r\n", b"X\r\n"])
@pytest.mark.parametrize("size", [5, LARGE, 200_000, 5_000_000])
async def test_a_message_of_another_size_than_it_claims_is_not_taken(size: int, end: bytes) -> None:
    """Where it ends decides what the next one is."""
    received: list[int] = []
    reader = Reader(lambda subject, reply, data, headers: received.append(len(data)))
    stream = b"MSG a 1 %d\r\n%b" % (size, bytes(size))
    feed(reader, stream + b"\r\n")
    feed(reader, stream[:100_000])
    feed(reader, stream[100_000:] + end + stream + b"\r\n")
    reader.lines.clear()
    with pytest.raises(errors.ProtocolError):
        await reader.all_lines()
    assert received == [size]


@pytest.mark.parametrize("size", [0, 5, 200_000])
async def test_an_empty_line_between_messages_says_nothing(size: int) -> None:
    received: list[int] = []
    reader = Reader(lambda subject, reply, data, headers: received.append(len(data)))
    for _ in range(3):
        feed(reader, b"MSG a 1 %d\r\n%b\r\n\r\n" % (size, bytes(size)))
    assert received == [size] * 3
    assert not reader.lines


async def test_nothing_that_follows_a_malformed_message_is_read() -> None:
    received: list[tuple[Any, ...]] = []
    reader = Reader(lambda *message: received.append(message))
    feed(reader, b"MSG a 1 5\r\n12345XX\r\n")
    feed(reader, b'INFO {"connect_urls":["elsewhere:1"]}\r\n')
    feed(reader, b"MSG a 1 1000000\r\nx")
    with pytest.raises(errors.ProtocolError):
        await reader.all_lines()
    assert received == []
    assert not reader._room


async def test_a_control_line_without_an_end_ends_the_connection() -> None:
    reader = Reader(lambda *message: None)
    feed(reader, b"INFO " + b"x" * 2**20)
    with pytest.raises(errors.ProtocolError):
        await reader.all_lines()


async def test_large_messages_are_read_to_one_place_which_a_huge_one_does_not_keep() -> None:
    received: list[bytes] = []
    reader = Reader(lambda subject, reply, data, headers: received.append(bytes(data)))
    rooms, sent = [], [b"a" * 200_000, b"b" * 300_000, b"c" * 5_000_000, b"d" * 250_000]
    for data in (sent[1], *sent):
        feed(reader, b"MSG a 1 %d\r\n" % len(data) + data[:100_000])
        rooms.append(len(reader._room))
        feed(reader, data[100_000:] + b"\r\n")
    assert received == [sent[1], *sent]
    assert rooms[0] == rooms[1] == rooms[2] == len(sent[1]) + 2
    assert rooms[4] == len(sent[3]) + 2


async def test_a_size_that_a_server_only_claims_takes_no_memory() -> None:
    reader = Reader(lambda *message: None)
    feed(reader, b"MSG a 1 99999999999999\r\nx")
    assert len(reader.get_buffer(-1)) < 5 * 2**20


async def test_whatever_a_connection_ends_with_is_one_that_is_followed_by_another() -> None:
    reader = Reader(lambda *message: None)
    reader.connection_lost(RuntimeError("no event loop expects this"))
    with pytest.raises(OSError, match="no event loop expects this"):
        await reader.all_lines()


async def test_to_cancel_one_who_waits_for_room_cancels_no_other() -> None:
    reader = Reader(lambda *message: None)
    reader.pause_writing()
    waiting = [asyncio.ensure_future(reader.room()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    reader.resume_writing()
    assert [type(end) for end in await asyncio.gather(*waiting, return_exceptions=True)] == [
        asyncio.CancelledError, type(None), type(None)
    ]  # fmt: skip


async def test_who_waits_for_room_learns_that_the_connection_is_lost() -> None:
    reader = Reader(lambda *message: None)
    reader.pause_writing()
    waiting = asyncio.ensure_future(reader.room())
    await asyncio.sleep(0)
    reader.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await waiting


async def test_a_connection_that_is_given_up_delivers_nothing_more() -> None:
    received: list[bytes] = []
    ended = asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"MSG a 1 5\r\nhello\r\n")
        await reader.read()
        writer.close()
        ended.set()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        connection = Connection(lambda subject, reply, data, headers: received.append(bytes(data)))
        uri = urlsplit(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await connection.connect(uri, 0, 5)  # type: ignore[arg-type]  # split or parsed, it has both parts
        connection.write(b"PING\r\n")
        connection.close()
        await connection.wait_closed()
        await ended.wait()
    assert received == []


@pytest.mark.nats
async def test_a_server_that_stands_still_with_much_unread_is_given_up() -> None:
    states: asyncio.Queue[str] = asyncio.Queue()
    with NATSServer() as server:
        transport = NATSTransport(servers=server.url, ping_interval=0.1)
        link = await transport.open(lambda event, delivery: None, lambda state, epoch: states.put_nowait(state))
        assert await states.get() == "up"
        server.freeze()
        event = {"type": "news", "id": "", "payload": {"text": "x" * 900_000}}
        sending = [asyncio.ensure_future(link.send("all:news", event)) for _ in range(20)]
        async with asyncio.timeout(20):
            assert await states.get() == "down"
            ends = await asyncio.gather(*sending, return_exceptions=True)
            assert LinkDownError in map(type, ends)
            await link.close()
