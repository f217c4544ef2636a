"""What the hub makes of frames: what goes on, what is rewritten, what is refused, and who is told."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from operad import Identity
from operad.transports import PayloadTooLargeError
from operad_calls import protocol
from operad_calls.transport import ProtocolError
from operad_websocket import Limits
from operad_websocket._frames import read
from operad_websocket._peers import Peer
from operad_websocket._switch import Switch
from plugins.websocket.tests.kit import TABLES

ALICE, BOB = Identity("alice", ["kit"], {"doc": ["1"]}), Identity("bob")
ASKED = (
    b'{"type":"call.requested","id":"","payload":{"requestId":"1","operationId":"t.x","input":{"a":1},'
    b'"timeoutMs":1000}}'
)
OUTPUT = b'"output":{"data":1,"meta":{"source":"local"}}'
PLAIN = b'{"type":"call.responded","id":"","payload":{"requestId":"1",' + OUTPUT + b"}}"


class Spoke:
    """A peer of a switch, and what came to it."""

    def __init__(self, switch: Switch, identity: Identity | None = None, address: str = "") -> None:
        self.switch = switch
        self.texts: list[bytes] = []
        self.peer = Peer(self.texts.append, identity, address=address)
        switch.join(self.peer)

    def says(self, data: bytes) -> None:
        try:
            frame = read(data)
        except ProtocolError as error:
            self.switch.on_unreadable(self.peer, data, error)
        else:
            self.switch.route(self.peer, frame)

    def send(self, type_: str, to: Any = None, **payload: Any) -> None:
        self.says(json.dumps({"type": type_, "id": "7", "to": to, "payload": payload}).encode())

    def serves(self, *topics: str) -> dict[str, Any]:
        self.send("link.register", topics=list(topics))
        return self.last("link.registered")

    @property
    def events(self) -> list[Any]:
        return [json.loads(text) for text in self.texts]

    def last(self, type_: str) -> dict[str, Any]:
        event = self.events[-1]
        assert event["type"] == type_
        payload: dict[str, Any] = event["payload"]
        return payload

    def failed(self) -> tuple[str, str]:
        """The id and the code of the error that came last."""
        error = self.last("call.error")
        return error["requestId"], error["code"]

    def asks(self, request_id: str = "1", operation_id: str = "t.x", to: str | None = None, **more: Any) -> None:
        self.send("call.requested", to, requestId=request_id, operationId=operation_id, input={}, **more)


def pair(identity: Identity | None = None) -> tuple[Spoke, Spoke]:
    """A caller, and a handler that serves ``t.x``."""
    switch = Switch()
    caller, handler = Spoke(switch, identity), Spoke(switch, identity)
    handler.serves("op:t.x")
    handler.texts.clear()
    return caller, handler


# --- what goes through ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        PLAIN,
        PLAIN.replace(b'"payload":{', b'"payload":{"replyTo":"inbox:handler",'),
        PLAIN.replace(b'"id":""', b'"id":"","to":"all:x"'),
        PLAIN.replace(b'"id":""', b'"id":"mine","more":1'),
    ],
)
def test_an_answer_goes_on_as_it_came_without_addresses_and_foreign_fields(said: bytes) -> None:
    caller, handler = pair()
    caller.says(ASKED)
    handler.says(said)
    assert caller.texts == [PLAIN]


@pytest.mark.parametrize("value", ["1e999", "1" * 5_000, '{"a":1,"a":2}', '"\\u0000"', "[ 1 , 2 ]", "-0.0"])
def test_what_a_request_carries_is_passed_on_and_not_looked_into(value: str) -> None:
    """Who reads it judges it: the hub would only spend time on it."""
    caller, handler = pair()
    caller.says(ASKED.replace(b'{"a":1}', value.encode()))
    assert f'"input":{value},'.encode() in handler.texts[0]


@pytest.mark.parametrize("timeout", [10**400, -(10**400)], ids=["above", "below"])
def test_a_timeout_that_no_clock_has_is_passed_on(timeout: int) -> None:
    caller, handler = pair()
    caller.says(ASKED.replace(b"1000", str(timeout).encode()))
    assert json.loads(handler.texts[0])["payload"]["timeoutMs"] == timeout


@pytest.mark.parametrize("identity", [None, ALICE])
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(ASKED, id="nothing"),
        pytest.param(ASKED.replace(b"}}", b',"replyTo":"inbox:forged"}}'), id="an address"),
        pytest.param(ASKED.replace(b"}}", b',"identity":{"id":"root","scopes":[]}}}'), id="an identity"),
        pytest.param(ASKED.replace(b"}}", b'},"more":{"replyTo":"x"}}'), id="something behind the payload"),
        pytest.param(ASKED.replace(b'"id":""', b'"id":"mine"'), id="an id of its own"),
        pytest.param(ASKED.replace(b",", b" ,\n "), id="another writer"),
    ],
)
def test_whatever_a_request_claims_the_hub_says_who_asks(asked: bytes, identity: Identity | None) -> None:
    caller, handler = pair(identity)
    caller.says(asked)
    (event,) = handler.events
    assert list(event) == ["type", "id", "payload"]
    payload = event["payload"]
    assert payload.pop("replyTo") == caller.peer.inbox
    assert payload.pop("identity", None) == (None if identity is None else identity.to_wire())
    assert payload == json.loads(ASKED)["payload"]


def test_credit_goes_both_ways_with_all_that_it_says() -> None:
    """The caller grants, and the handler tells how much it wants."""
    caller, handler = pair()
    caller.asks()
    caller.send("call.credit", requestId="1", total=5, totalBytes=1000, replyTo="inbox:forged")
    assert handler.last("call.credit") == {
        "requestId": "1", "total": 5, "totalBytes": 1000, "replyTo": caller.peer.inbox,
    }  # fmt: skip
    handler.send("call.credit", requestId="1", wantsBytes=2000)
    assert caller.last("call.credit") == {"requestId": "1", "wantsBytes": 2000, "replyTo": handler.peer.inbox}


def test_what_another_peer_sends_for_a_request_is_refused_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caller, handler = pair()
    caller.asks()
    eve, before = Spoke(caller.switch, BOB), (len(caller.texts), len(handler.texts))
    for type_ in ("call.responded", "call.error", "call.completed", "call.aborted", "call.credit", "link.lost"):
        eve.send(type_, requestId="1", replyTo=caller.peer.inbox, total=9, peer=caller.peer.inbox)
    assert (len(caller.texts), len(handler.texts), eve.texts) == (*before, [])
    assert (caller.switch.refused, caller.switch.pending) == (4, 1)
    assert caplog.text.count("refused a frame of bob") == 4
    assert "an abort of a request of another peer" in caplog.text


@pytest.mark.parametrize("credit", [None, 5])
def test_only_a_caller_that_grants_credit_hears_of_the_end_of_a_stream_once(credit: int | None) -> None:
    """Another one expects an abort as the last event."""
    caller, handler = pair()
    granted = {} if credit is None else {"credit": credit}
    caller.asks(**granted)
    for number in range(2):
        handler.send("call.responded", requestId="1", seq=number, output=None)
    handler.send("call.completed", requestId="1")
    ends = ["call.completed"] if credit else ["call.completed", "call.aborted"]
    assert [event["type"] for event in caller.events] == ["call.responded", "call.responded", *ends]
    assert caller.switch.pending == 0


def test_a_frame_of_another_type_goes_to_all_who_registered_its_address_or_is_ignored() -> None:
    switch = Switch()
    sender, member = Spoke(switch), Spoke(switch)
    member.serves("all:news")
    member.texts.clear()
    sender.send("news.told", "all:news", n=1)
    assert member.last("news.told") == {"n": 1}
    sender.says(b'{"type":"news.told","id":"2","payload":{}}')
    for nowhere in ("all:none", 7):
        sender.send("news.told", nowhere)
    assert len(member.texts) == 1
    assert sender.texts == []


@pytest.mark.parametrize(
    ("timeout", "seconds", "is_over"),
    [
        (60_000, 61.999, False), (60_000, 62.0005, True), (-1e9, 0, True), (60_000.5, 61, False), (60_000.5, 63, True),
        (0, 1, False), (0, 3, True), (1e10, 1e8, False), (-1e10, 1, False), ("soon", 1e8, False), (10**10, 1e8, False),
        (10**10 - 1, 1e8, True),
        (None, 31.999, False), (None, 32.0005, True),
    ],
)  # fmt: skip
def test_a_request_is_ended_two_seconds_after_its_deadline(
    timeout: Any, seconds: float, is_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, handler = pair()
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)
    caller.asks(timeoutMs=timeout)
    monkeypatch.setattr("time.time", lambda: now + seconds)
    caller.switch.expire()
    assert caller.switch.pending == (0 if is_over else 1)
    if is_over:
        assert caller.failed() == ("1", "TIMEOUT")
        assert handler.last("call.aborted")["requestId"]


def test_a_request_to_all_ends_when_each_handler_has_responded_or_is_gone() -> None:
    switch = Switch()
    caller, first, second = Spoke(switch), Spoke(switch), Spoke(switch)
    for handler in (first, second):
        handler.serves("all:operad.discover")
    caller.asks("d", "operad.discover", "all:operad.discover")
    first.send("call.completed", requestId=first.last("call.requested")["requestId"])
    assert switch.pending == 1
    switch.leave(second.peer)
    assert switch.pending == 0


@pytest.mark.parametrize("reason", ["too large", "too slow"])
def test_a_response_that_its_caller_cannot_take_ends_the_call_for_both(reason: str) -> None:
    caller, handler = pair()
    if reason == "too large":

        def deliver(data: bytes) -> None:
            if b"call.responded" in data:
                raise PayloadTooLargeError(f"{len(data)} bytes")
            caller.texts.append(data)

        caller.peer.deliver = deliver
    else:
        caller.peer.is_slow = lambda: True
    caller.asks()
    handler.send("call.responded", requestId="1", seq=0, output=None)
    code = "PAYLOAD_TOO_LARGE" if reason == "too large" else "SLOW_CONSUMER"
    assert caller.failed() == ("1", code)
    assert handler.last("call.aborted")["requestId"] == "1"
    assert caller.switch.pending == 0


# --- what is refused, and told ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "code"), [*TABLES["frames without a use"], ("[" * 50_000, "SERIALIZATION_ERROR")]
)
def test_a_frame_that_cannot_be_used_is_answered(frame: str, code: str) -> None:
    switch = Switch(Limits(topics=3))
    spoke = Spoke(switch)
    spoke.says(frame.encode("latin-1"))
    assert spoke.last("link.error")["code"] == code
    assert switch.refused == 1


def test_a_frame_that_cannot_be_read_ends_the_request_whose_id_can_be_read() -> None:
    """NaN and half of a surrogate pair, as other writers make them: nobody waits for a deadline."""
    caller, handler = pair()
    caller.says(b'{"type":"call.requested","payload":{"requestId":"1","operationId":"t.x","input":NaN}}')
    assert caller.failed() == ("1", "SERIALIZATION_ERROR")
    assert handler.texts == []
    caller.asks("2")
    caller.says(b'{"type":"call.requested","payload":{"requestId":"2","operationId":"t.x","input":NaN}}')
    assert caller.last("link.error")["code"] == "SERIALIZATION_ERROR", "the one that is under way goes on"
    handler.says(b'{"type":"call.responded","payload":{"requestId":"2","output":{"data":"\\ud800"}}}')
    assert caller.failed() == ("2", "SERIALIZATION_ERROR")
    handler.says(b'{"type":"call.responded","payload":{"requestId":"2","output":{"data":NaN}}}')
    assert handler.last("link.error")["code"] == "SERIALIZATION_ERROR"


def test_a_request_that_cannot_be_routed_is_answered_by_its_id() -> None:
    spoke = Spoke(Switch())
    spoke.says(b'{"type":"call.requested","payload":{"requestId":"r"}}')
    assert spoke.last("call.error") == {
        "requestId": "r", "code": "VALIDATION_ERROR", "message": "operationId: expected a string",
    }  # fmt: skip


def test_a_request_to_everybody_runs_discovery_alone() -> None:
    """Otherwise one frame would run a mutation on every worker."""
    caller, handler = pair()
    handler.serves("all:operad.discover", "all:news")
    handler.texts.clear()
    for to, operation_id in (("all:operad.discover", "t.x"), ("all:news", "operad.discover"), ("all:news", "t.x")):
        caller.asks(f"{to} {operation_id}", operation_id, to)
        assert caller.last("call.error")["code"] == "ACCESS_DENIED"
    assert caller.switch.refused == 3
    assert not handler.texts
    caller.asks("d", "operad.discover", "all:operad.discover")
    assert handler.last("call.requested")["operationId"] == "operad.discover"


def test_a_frame_of_too_many_addresses_is_refused_as_a_whole_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spoke = Spoke(Switch())
    spoke.serves("op:a.b")
    spoke.says(b'{"type":"link.register","payload":{"topics":[' + b'"",' * 1_000_000 + b'""]}}')
    spoke.serves(*(f"x{number}" for number in range(90_000)))
    assert len(caplog.records) == 2
    refused = spoke.last("link.registered")["refused"]
    assert len(refused) == 1_000
    assert len(spoke.texts[-1]) < 200_000
    assert len(caplog.text) < 2_000


def test_log_lines_are_few_and_none_is_a_peers_own(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr("operad_calls.reports.time.monotonic", lambda: now)
    spoke = Spoke(Switch(), BOB)
    for _ in range(100):
        spoke.serves("inbox:\x1b[2J\nERROR root: all is lost" + "x" * 100_000)
    assert len(caplog.records) == 20
    assert spoke.switch.refused == 100
    assert all(record.getMessage().isprintable() for record in caplog.records)
    assert len(caplog.text) < 30_000


def test_an_answer_that_crosses_an_abort_is_no_alarm_and_little_is_remembered_for_it() -> None:
    caller, handler = pair()
    for number in range(2_048):
        caller.asks(f"{number}")
        caller.send("call.aborted", requestId=f"{number}")
        if number >= 1_000:  # that of the last thousand is not forgotten
            handler.send("call.responded", requestId=f"{number - 1_000}", output=None)
    assert caller.switch.refused == 0
    assert handler.peer.recall("1023") is None
    assert handler.peer.recall("1024")
    handler.send("call.responded", requestId="never", output=None)
    assert caller.switch.refused == 1


def test_connections_without_an_identity_are_counted_by_address() -> None:
    """Otherwise one of them would shut out all others."""
    switch = Switch(Limits(links=1, calls=1))
    one, other = Spoke(switch, address="10.0.0.1"), Spoke(switch, address="10.0.0.2")
    for address, has_room in (("10.0.0.1", False), ("10.0.0.2", False), ("10.0.0.3", True)):
        assert switch.has_room(Peer(lambda data: None, address=address)) is has_room
    Spoke(switch, BOB).serves("op:t.x")
    for caller in (one, other):
        caller.asks("1")
        caller.asks("2")
        assert caller.last("call.error")["code"] == "OVERLOADED"
    switch.leave(one.peer)
    assert switch.has_room(Peer(lambda data: None, address="10.0.0.1"))


# --- names -----------------------------------------------------------------------------------------------


def test_the_name_of_an_identity_whose_connection_broke_is_kept_for_it() -> None:
    switch = Switch(Limits(grace=30))
    caller, eve, first = Spoke(switch, ALICE), Spoke(switch, ALICE), Spoke(switch, BOB)
    first.serves("op:t.x", "op:operad.list")
    switch.leave(first.peer)
    assert "reserved" in eve.serves("op:t.x")["refused"][0]["reason"]
    assert eve.serves("op:operad.list")["topics"] == ["op:operad.list"]  # what everybody offers is nobody's
    caller.asks()
    error = caller.last("call.error")
    assert (error["code"], error["details"]["sent"]) == ("UNAVAILABLE", False)
    assert Spoke(switch, BOB).serves("op:t.x")["topics"] == ["op:t.x"]
    caller.asks("2")
    assert caller.texts[-1] == caller.texts[0]  # nothing more came: it is under way


@pytest.mark.parametrize("how", ["goodbye", "unregister", "anonymous", "no grace", "late"])
def test_a_name_is_free_after(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = Switch(Limits(grace=0 if how == "no grace" else 30))
    first = Spoke(switch, None if how == "anonymous" else BOB)
    first.serves("op:t.x")
    first.peer.said_goodbye = how == "goodbye"
    if how == "unregister":
        first.send("link.unregister", topics=["op:t.x"])
    switch.leave(first.peer)
    if how == "late":
        later = time.monotonic() + 31
        monkeypatch.setattr("time.monotonic", lambda: later)
        switch.expire()
    assert Spoke(switch, ALICE).serves("op:t.x")["topics"] == ["op:t.x"]


def test_no_more_names_are_kept_of_an_identity_than_a_connection_may_have() -> None:
    switch = Switch(Limits(topics=2))
    for number in range(5):
        spoke = Spoke(switch, BOB)
        spoke.serves(f"op:t.{number}")
        switch.leave(spoke.peer)
    alice = [Spoke(switch, ALICE).serves(f"op:t.{number}") for number in range(5)]
    assert [len(one["refused"]) for one in alice] == [1, 1, 0, 0, 0]
    back = Spoke(switch, BOB)
    back.serves("op:t.0")
    back.send("link.unregister", topics=["op:t.0"])
    back.serves("op:t.5")
    switch.leave(back.peer)
    assert Spoke(switch, ALICE).serves("op:t.5")["refused"], "a name that came back has left its place to another"


def test_the_hub_tells_what_an_instance_has_registered() -> None:
    """So that nobody can list what others serve."""
    switch = Switch()
    worker, other, asker = Spoke(switch, BOB), Spoke(switch, ALICE), Spoke(switch)
    worker.serves("op:operad.list.one", "op:t.x")
    other.serves("op:operad.list.two", "op:t.y")
    for instance, served in (("one", ["op:t.x"]), ("two", ["op:t.y"]), ("three", [])):
        asker.send("link.topics", instance=instance, topics=["op:t.x", "op:t.y", "op:t.z"])
        told = {"instance": instance, "topics": served}
        assert asker.events[-1] == {"type": "link.topics", "id": "7", "payload": told}


def test_who_may_serve_is_nobody_while_the_application_cannot_tell(caplog: pytest.LogCaptureFixture) -> None:
    """The peer gets its answer, and the log what was raised, once."""

    def authorize(identity: Identity | None, topic: str) -> bool:
        raise KeyError("hunter2")

    spoke = Spoke(Switch(None, authorize), BOB)
    for _ in range(5):
        refused = spoke.serves("op:t.x", "op:t.y")["refused"]
        assert {item["reason"] for item in refused} == {"the hub cannot decide whether this identity may serve it"}
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_a_single_call_without_a_timeout_has_thirty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    caller, handler = pair()
    caller.asks("single")
    caller.asks("stream")
    handler.send("call.responded", requestId="stream", seq=0, output={"data": 1, "meta": {"source": "local"}})
    later = time.time() + 33
    monkeypatch.setattr("time.time", lambda: later)
    caller.switch.expire()
    error = caller.last("call.error")
    assert (error["requestId"], error["code"]) == ("single", protocol.ErrorCode.TIMEOUT)
    assert caller.switch.pending == 1


@pytest.mark.parametrize("identities", [(ALICE, BOB), (None, None)], ids=["identity", "connection of nobody"])
def test_one_caller_cannot_fill_the_queue_of_a_handler(identities: tuple[Identity | None, ...]) -> None:
    """What is ahead of the others at one connection is bounded for each caller, whoever has more under way."""
    switch = Switch(Limits(calls_per_handler=2))
    server, one, other = Spoke(switch), *(Spoke(switch, identity, "::1") for identity in identities)
    server.serves("op:t.x")
    for number in range(3):
        one.asks(str(number))
    assert one.last("call.error")["details"] == {"limit": "calls_per_handler", "value": 2}
    other.asks("b")
    assert server.last("call.requested")["requestId"] == "b"
    server.send("call.responded", requestId="0", output={"data": 1, "meta": {"source": "local"}})
    one.asks("4")
    assert server.last("call.requested")["requestId"] == "4"


def test_an_address_has_at_most_1024_characters() -> None:
    accepted, refused = "op:" + "x" * 1_021, "op:" + "x" * 1_022
    assert Spoke(Switch()).serves(accepted, refused)["topics"] == [accepted]


def test_a_frame_may_name_as_many_addresses_as_the_limit_says() -> None:
    spoke = Spoke(Switch(Limits(topics=3)))
    spoke.serves("op:a.a", "op:a.b", "op:a.c")
    assert not spoke.last("link.registered").get("refused")


@pytest.mark.parametrize("type_", ["call.error", "call.completed", "call.aborted"])
def test_the_end_of_a_call_has_no_address_of_its_handler_and_makes_room_for_another(type_: str) -> None:
    switch = Switch(Limits(calls_per_handler=1))
    caller, handler = Spoke(switch), Spoke(switch)
    handler.serves("op:t.x")
    caller.asks("1")
    caller.asks("2")
    assert caller.failed() == ("2", "OVERLOADED")
    ended = {"code": "X", "message": "m"} if type_ == "call.error" else {}
    handler.send(type_, requestId="1", replyTo="inbox:handler", **ended)
    assert all("replyTo" not in event["payload"] for event in caller.events)
    assert switch.pending == 0
    caller.asks("3")
    assert handler.last("call.requested")["requestId"] == "3"
