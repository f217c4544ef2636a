import asyncio

from hypothesis import given
from hypothesis import strategies as st

from operad import protocol
from operad_websocket._corked import Corked
from operad_websocket._routing import Peer, Switch


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


async def test_after_a_burst_a_single_frame_is_written_at_once_again():
    wire = Wire()
    corked = Corked(wire)
    corked._is_burst = True
    corked.write(b"a")
    await asyncio.sleep(0)  # no burst: it was alone
    await asyncio.sleep(0.01)
    corked.write(b"b")
    assert wire.writes == [b"a", b"b"]


@given(turns=st.lists(st.lists(st.binary(min_size=1, max_size=3), max_size=5), max_size=6))
def test_frames_are_written_in_order_and_none_is_lost(turns):
    async def write():
        wire = Wire()
        corked = Corked(wire)
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


# --- answers that the hub passes on as they came -----------------------------------------------------


def answered(*texts, caller_ids=("1",)):
    """What a caller gets as events and as text when its requests are answered with these texts."""
    switch, events, given_texts = Switch(), [], []
    caller = Peer(events.append, deliver_text=given_texts.append)
    handler = Peer(lambda event: None)
    for peer in (caller, handler):
        switch.join(peer)
    register = {"type": "link.register", "id": "", "payload": {"topics": ["op:t.x"]}}
    switch.route(handler, register)
    for request_id in caller_ids:
        payload = {"requestId": request_id, "operationId": "t.x", "input": {}}
        switch.route(caller, {"type": protocol.REQUESTED, "id": "", "payload": payload})
    for text in texts:
        switch.route(handler, *protocol.decode_compared(text))
    return events, given_texts


OUTPUT = b'"output":{"data":1,"meta":{"source":"local"}}'
PLAIN = b'{"type":"call.responded","id":"","payload":{"requestId":"1",' + OUTPUT + b"}}"


def test_an_answer_in_which_nothing_changes_is_passed_on_as_it_came():
    assert answered(PLAIN) == ([], [PLAIN])


def test_an_answer_that_another_writer_formatted_is_written_anew():
    events, texts = answered(PLAIN.replace(b",", b", "))
    assert texts == []
    assert events[0]["payload"]["output"]["data"] == 1


def test_an_answer_with_an_address_or_a_foreign_field_is_stripped_of_it():
    for added in (
        PLAIN.replace(b'"payload":{', b'"payload":{"replyTo":"inbox:handler",'),
        PLAIN.replace(b'"id":""', b'"id":"","to":"all:x"'),
        PLAIN.replace(b'"id":""', b'"id":"mine"'),
    ):
        events, texts = answered(added)
        assert texts == []
        assert events == [protocol.decode(PLAIN)]
