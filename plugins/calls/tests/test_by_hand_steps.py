"""Serving by hand step by step: the names of requests, what goes back, and how each of them ends."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from operad import CallError, ErrorCode, Identity, ResponseEnvelope, local_envelope
from operad.envelopes import OpaqueMeta
from operad.transports import Capabilities, Delivery, LinkDownError, PayloadTooLargeError
from operad_calls import CallSettings
from operad_calls.serving.byhand import ByHand, IncomingRequest

BROKER = Capabilities(detects_no_responders=True)
HUB = Capabilities(detects_peer_loss=True)
STORE = Capabilities(redelivers=True)
INSIDE = Capabilities(same_process=True, detects_peer_loss=True)


class Wire:
    """A link that keeps what is sent."""

    inbox = "inbox:me"

    def __init__(self):
        self.sent, self.registered, self.errors = [], [], []

    async def send(self, to, event):
        if self.errors:
            error = self.errors.pop(0)
            if error is not None:
                raise error
        self.sent.append((to, event["type"], dict(event["payload"])))

    async def register(self, topic, group=None):
        self.registered.append((topic, group))


class Side:
    """Serving by hand, and all that comes and goes."""

    def __init__(self, capabilities=BROKER, **settings):
        self.asked = []
        transport = SimpleNamespace(capabilities=capabilities)
        self.hand = ByHand(self.asked.append, transport, CallSettings(**settings))
        self.link = Wire()
        self.hand.start(self.link)

    def comes(self, type_, request_id="1", peer="inbox:a", delivery=None, **payload):
        payload = {"requestId": request_id, "replyTo": peer, **payload}
        return self.hand.on_event(type_, payload, delivery or Delivery())

    def request(self, request_id="1", peer="inbox:a", delivery=None, **payload):
        payload = {"operationId": "t.op", "input": {"a": 1}, **payload}
        assert self.comes("call.requested", request_id, peer, delivery, **payload) is True
        return self.asked[-1] if self.asked else None

    def told(self):
        found, self.link.sent = self.link.sent, []
        return found


@pytest.fixture(autouse=True)
def no_notices(monkeypatch):
    """Requests that take long, as all do on a busy machine, are given notice of: that is not what is tested here."""
    monkeypatch.setattr("operad_calls.serving.served._NOTICE_AFTER", 60.0)


@pytest.fixture
async def side():
    made = Side()
    yield made
    await made.hand.close()


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


def answer(data=5):
    return local_envelope(data, "t.op")


async def test_a_request_is_handed_over_with_all_that_is_known_of_it(side):
    ann = Identity(id="ann", scopes=frozenset())
    deadline = (time.time() + 50) * 1000
    side.request("7", deadline=deadline, credit=3, delivery=Delivery(identity=ann))
    assert side.asked == [
        IncomingRequest(
            request_id="7",
            operation_id="t.op",
            input={"a": 1},
            identity=ann,
            deadline=deadline,
            is_subscription=True,
        )
    ]
    assert "7" in side.hand
    assert "8" not in side.hand
    plain = side.request("8")
    assert (plain.identity, plain.is_subscription) == (None, False)
    assert 0 < (time.time() + 30) * 1000 - plain.deadline < 10_000, "a single call that says nothing ends, too"
    assert side.request("9", credit=1).deadline is None


async def test_requests_of_two_callers_with_one_id_have_two_names(side):
    side.request("1", "inbox:a")
    other = side.request("1", "inbox:b")
    assert other.request_id == "1 of inbox:b"
    await side.hand.respond("1 of inbox:b", answer("b"))
    await side.hand.respond("1", answer("a"))
    assert [(to, payload["requestId"], payload["output"].data) for to, _, payload in side.told()] == [
        ("inbox:b", "1", "b"),
        ("inbox:a", "1", "a"),
    ]
    assert "1" not in side.hand
    assert "1 of inbox:b" not in side.hand


@pytest.mark.parametrize(("capabilities", "told"), [(BROKER, False), (INSIDE, True)])
async def test_a_taker_that_fails_fails_the_request_and_says_why_within_its_process_alone(
    capabilities, told, caplog
):
    side = Side(capabilities)
    side.hand._on_request = lambda request: 1 / 0
    side.request("1")
    await settle()
    assert "on_request failed for t.op" in caplog.text
    ((to, type_, payload),) = side.told()
    assert (to, type_, payload["requestId"]) == ("inbox:a", "call.error", "1")
    assert ("division by zero" in payload["message"]) is told
    assert "1" not in side.hand
    await side.hand.close()


async def test_a_taker_that_fails_after_it_has_answered_fails_nothing(side):
    def take(request):
        task = asyncio.ensure_future(side.hand.respond(request.request_id, answer()))
        side.hand._forget(side.hand._named[request.request_id])
        task.cancel()
        raise ValueError("too late")

    side.hand._on_request = take
    side.request("1")
    await settle()
    assert side.told() == []


async def test_no_caller_chooses_the_name_of_anothers_request(side):
    side.request("1 of inbox:b", "inbox:c")
    side.request("1", "inbox:a")
    names = ["1 of inbox:b", "1", side.request("1", "inbox:b").request_id]
    assert len(set(names)) == 3
    for name in names:
        await side.hand.respond(name, answer(name))
    assert [to for to, _, _ in side.told()] == ["inbox:c", "inbox:a", "inbox:b"]


@pytest.mark.parametrize("name", ["2", "1 of inbox:b"])
async def test_what_is_not_under_way_cannot_be_answered(side, name):
    side.request("1")
    for act in (
        side.hand.respond(name, answer()),
        side.hand.complete(name),
        side.hand.emit_error(name, CallError("X", "")),
        side.hand.abort(name),
    ):
        with pytest.raises(LookupError, match=f'no request "{name}" is in flight on this link'):
            await act
    assert side.told() == []


@pytest.mark.parametrize(
    "value",
    [None, 5, {}, {"data": 1}, {"data": 1, "meta": 5}, {"data": 1, "meta": {}}, {"data": 1, "meta": {"source": 5}},
     {"meta": {"source": "local"}}, [("data", 1)]],
)  # fmt: skip
async def test_an_answer_that_is_no_envelope_is_refused_and_the_request_stays(side, value):
    side.request("1")
    with pytest.raises(TypeError, match=f"expected a response envelope, got {type(value).__name__}"):
        await side.hand.respond("1", value)
    assert "1" in side.hand
    assert side.told() == []


@pytest.mark.parametrize(
    "value",
    [
        answer(),
        ResponseEnvelope(5, OpaqueMeta("strange", {})),
        {"data": 5, "meta": {"source": "strange"}},
        {"data": None, "meta": {"source": "local", "operationId": "t.op", "timestamp": 1}},
    ],
)
async def test_an_envelope_of_any_kind_is_an_answer(side, value):
    side.request("1")
    await side.hand.respond("1", value)
    assert side.told() == [("inbox:a", "call.responded", {"requestId": "1", "output": value})]


async def test_the_items_of_a_stream_are_numbered_and_the_first_says_where_they_come_from(side):
    side.request("1", credit=5)
    for data in "abc":
        await side.hand.respond("1", answer(data))
    notice, *items = side.told()
    assert notice == ("inbox:a", "call.credit", {"requestId": "1", "total": 5, "replyTo": "inbox:me"}), (
        "who dies after its first item is missed then: where nobody tells of losses, its consumer waits for a word"
    )
    assert [(payload["seq"], payload.get("replyTo"), payload["output"].data) for _, _, payload in items] == [
        (0, "inbox:me", "a"),
        (1, None, "b"),
        (2, None, "c"),
    ]
    await side.hand.complete("1")
    assert side.told() == [("inbox:a", "call.completed", {"requestId": "1", "count": 3})]
    assert "1" not in side.hand


async def test_an_item_waits_for_credit_and_the_next_one_for_its_turn(side):
    side.request("1", credit=1)
    await side.hand.respond("1", answer("a"))
    later = [asyncio.ensure_future(side.hand.respond("1", answer(data))) for data in "bc"]
    await settle()
    assert [payload["output"].data for _, _, payload in side.told()[1:]] == ["a"]
    assert side.comes("call.credit", total=2) is True
    await settle()
    assert [row[2].get("seq") for row in side.told() if row[1] == "call.responded"] == [1]
    side.comes("call.credit", total=3)
    await asyncio.gather(*later)
    assert [row[2].get("seq") for row in side.told() if row[1] == "call.responded"] == [2]


async def test_who_waits_for_credit_learns_that_the_stream_is_over(side):
    side.request("1", credit=1)
    await side.hand.respond("1", answer())
    later = asyncio.ensure_future(side.hand.respond("1", answer()))
    await settle()
    assert side.comes("call.aborted") is True
    with pytest.raises(LookupError):
        await later
    assert "1" not in side.hand


async def test_on_a_broker_credit_of_a_stream_is_answered_by_a_sign_of_life(side):
    side.request("1", credit=1)
    side.comes("call.credit", total=1)
    await settle()
    assert side.told() == [
        ("inbox:a", "call.credit", {"requestId": "1", "total": 1, "replyTo": "inbox:me"}),
    ]
    side.request("2")
    assert side.comes("call.credit", "2", total=1) is True
    assert side.comes("call.credit", "3", total=1) is False
    await settle()
    assert side.told() == []


async def test_events_that_are_about_no_request_are_left_to_others(side):
    assert side.comes("call.aborted") is False
    assert side.comes("call.credit") is False
    assert side.comes("call.responded") is False
    assert side.comes("link.lost") is False


async def test_the_loss_of_a_peer_ends_its_requests_alone():
    side = Side(HUB)
    side.request("1", "a")
    side.request("2", "b")
    assert side.hand.on_event("call.error", {"peer": "a"}, Delivery()) is False
    assert "1" in side.hand
    assert side.hand.on_event("link.lost", {"peer": "a"}, Delivery()) is False
    assert "1" not in side.hand
    assert "2" in side.hand
    assert side.told() == [], "whoever asked is gone"
    await side.hand.close()


async def test_an_answer_that_is_too_large_is_told_to_both_sides(side):
    done = []
    side.request("1", delivery=Delivery(done=lambda: done.append(1)))
    side.link.errors = [PayloadTooLargeError("9 of 5 bytes")]
    with pytest.raises(CallError, match=r'the response of "t\.op" is too large: 9 of 5 bytes') as caught:
        await side.hand.respond("1", answer())
    assert caught.value.code == ErrorCode.PAYLOAD_TOO_LARGE
    ((to, type_, payload),) = side.told()
    assert (to, type_, payload["code"]) == ("inbox:a", "call.error", "PAYLOAD_TOO_LARGE")
    assert done == [1]


async def test_an_answer_that_has_no_wire_form_is_told_to_both_sides(side):
    side.request("1", credit=2)
    side.link.errors = [None, CallError("SERIALIZATION_ERROR", "no JSON")]
    with pytest.raises(CallError, match="no JSON"):
        await side.hand.respond("1", answer())
    assert [row[2]["code"] for row in side.told()[1:]] == ["SERIALIZATION_ERROR"]
    assert "1" not in side.hand


async def test_who_answers_a_request_that_ended_meanwhile_tells_its_caller_nothing(side):
    side.request("1", credit=2, creditBytes=1)
    later = asyncio.ensure_future(side.hand.respond("1", answer()))
    await settle()
    side.told()
    side.comes("call.aborted")
    with pytest.raises(CallError) as caught:
        await later
    assert caught.value.code == ErrorCode.ABORTED
    await settle()
    assert side.told() == []


async def test_an_error_and_an_abort_end_a_request(side):
    done = []
    side.request("1", delivery=Delivery(done=lambda: done.append(1)))
    await side.hand.emit_error("1", CallError("BROKEN", "it is", {"a": 1}))
    side.request("2", delivery=Delivery(done=lambda: done.append(2)))
    await side.hand.abort("2")
    wrong = {"requestId": "1", "code": "BROKEN", "message": "it is", "details": {"a": 1}}
    assert side.told() == [("inbox:a", "call.error", wrong), ("inbox:a", "call.aborted", {"requestId": "2"})]
    assert done == [1, 2]
    assert not side.hand._named
    assert not side.hand.active


async def test_a_request_ends_at_its_deadline_and_not_after_its_answer(side):
    side.request("2", timeoutMs=50_000)
    await side.hand.respond("2", answer())
    side.told()
    side.request("1", timeoutMs=1_000)
    served = side.hand._named["1"]
    side.hand._expire(served)
    await settle()
    ((to, type_, payload),) = side.told()
    assert (to, type_, payload["requestId"], payload["code"]) == ("inbox:a", "call.error", "1", "TIMEOUT")
    assert payload["details"] == {"deadline": served.deadline}
    assert "1" not in side.hand


async def test_a_request_that_is_refused_is_answered_and_acknowledged(side):
    done = []
    side.request("1", operationId="", delivery=Delivery(done=lambda: done.append(1)))
    side.request("2", operationId="")
    await settle()
    assert [(row[2]["requestId"], row[2]["code"]) for row in side.told()] == [
        ("1", "VALIDATION_ERROR"),
        ("2", "VALIDATION_ERROR"),
    ]
    assert (done, side.asked) == ([1], [])


async def test_what_is_delivered_again_runs_only_where_it_may():
    side = Side(STORE)
    await side.hand.serve("t.twice", "g", idempotent=True)
    await side.hand.serve("t.once", "g", idempotent=False)
    assert side.link.registered == [("op:t.twice", "g"), ("op:t.once", "g")]
    side.request("1", operationId="t.twice", delivery=Delivery(redelivered=True))
    side.request("2", operationId="t.once", delivery=Delivery(redelivered=True))
    await settle()
    assert [request.operation_id for request in side.asked] == ["t.twice"]
    assert [(row[2]["requestId"], row[2]["code"]) for row in side.told()] == [("2", "UNAVAILABLE")]
    await side.hand.close()


async def test_a_stream_whose_consumer_is_silent_ends_on_both_sides():
    side = Side(HUB, lease=0.02)
    side.request("1", credit=1)
    for _ in range(200):
        await asyncio.sleep(0.005)
        if side.link.sent:
            break
    assert [(row[2]["requestId"], row[2]["code"]) for row in side.told()] == [("1", "ABORTED")]
    assert "1" not in side.hand
    await side.hand.close()


async def test_when_the_link_closes_all_is_forgotten_and_nothing_is_sent(side):
    side.request("1", credit=1)
    side.request("2", timeoutMs=50_000)
    await side.hand.respond("1", answer())
    side.told()
    later = asyncio.ensure_future(side.hand.respond("1", answer()))
    await settle()
    await side.hand.close()
    with pytest.raises(LookupError):
        await later
    assert (side.told(), side.hand._named) == ([], {})
    assert side.hand.answers.link is None
    assert side.hand._sweep is None


async def test_what_is_being_sent_is_sent_before_the_link_closes(side):
    side.request("1", operationId="")
    await side.hand.close()
    assert [row[2]["code"] for row in side.told()] == ["VALIDATION_ERROR"]


async def test_without_a_link_ends_are_silent(side):
    for name in "123":
        side.request(name, credit=1)
    side.hand.answers.link = None
    await side.hand.respond("1", answer())
    await side.hand.complete("1")
    await side.hand.abort("2")
    await side.hand.emit_error("3", CallError("X", ""))
    assert not side.hand._named


async def test_an_error_that_cannot_be_sent_is_none_of_the_callers(side):
    side.request("1")
    side.link.errors = [LinkDownError("gone")]
    await side.hand.emit_error("1", CallError("X", ""))
