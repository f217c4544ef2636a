"""Links over a broker, whatever the broker: what they do after a loss, and which messages they pass on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from operad.plugin import Delivery, Event, LinkDownError
from operad_calls import broker
from operad_calls.transport import BrokerLink, encode

logger = logging.getLogger("operad.test")


class Link(BrokerLink):
    """A link over no broker at all, which connects as often as it is told to."""

    def __init__(self, *outcomes: Exception | None, reconnect_wait: float = 0.001) -> None:
        self.events: list[Event] = []
        self.states: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.steps: list[str] = []
        self.replies: list[tuple[str, Event]] = []
        self.outcomes = [*outcomes]
        super().__init__(self.on_event, self.on_link, reconnect_wait=reconnect_wait, logger=logger)

    def on_event(self, event: Event, delivery: Delivery) -> None:
        self.events.append(event)
        if event["type"] == "defect":
            raise RuntimeError("a defect of the owner")

    def on_link(self, state: str, epoch: int) -> None:
        self.states.put_nowait((state, epoch))

    def host(self) -> str:
        return "broker.example"

    async def establish(self) -> None:
        self.steps.append("establish")
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome

    async def disconnect(self) -> None:
        self.steps.append("disconnect")

    async def sign_off(self) -> None:
        self.steps.append("sign off")

    def reply(self, to: str, event: Event) -> None:
        self.replies.append((to, event))

    def come(self, event: Event, *, is_address: bool = True) -> list[str]:
        """Take an event; return what was done with its delivery."""
        done: list[str] = []
        self.take(encode(event), Delivery(done=lambda: done.append("done")), lambda _: is_address, "here")
        return done


def event(type_: str, **payload: Any) -> Event:
    return {"type": type_, "id": "", "payload": payload}


async def test_it_reconnects_after_a_loss_until_it_succeeds_whatever_goes_wrong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "operad.test")
    link = Link(None, OSError("refused"), RuntimeError("unexpected"), None)
    await link.connect()
    assert await link.states.get() == ("up", 1)
    link.lost(ConnectionError("cut"))
    assert await link.states.get() == ("down", 1)
    with pytest.raises(LinkDownError, match=r"the connection to broker\.example is down"):
        await link.check_up()
    assert await link.states.get() == ("up", 2)
    await link.check_up()
    assert link.steps.count("establish") == 4
    assert caplog.messages == [
        "the connection to broker.example is lost: ConnectionError('cut')",
        "no connection to broker.example: OSError('refused')",
        "connecting to broker.example failed",
    ]
    await link.close()
    with pytest.raises(LinkDownError, match=r"the connection to broker\.example is closed; open a new link"):
        await link.check_up()


async def test_a_connection_that_is_lost_while_it_is_made_is_made_again() -> None:
    link = Link()
    await link.connect()
    plain, link.establish = link.establish, lambda: lose()  # type: ignore[method-assign]  # one time

    async def lose() -> None:
        link.establish = plain  # type: ignore[method-assign]  # as it was
        link.lost(ConnectionError("cut again"))

    link.lost(None)
    assert [await link.states.get() for _ in range(3)] == [("up", 1), ("down", 1), ("up", 2)]
    await link.close()


async def test_a_first_connection_that_fails_is_an_error_that_names_the_broker() -> None:
    link = Link(OSError("refused"))
    with pytest.raises(LinkDownError, match=r"no connection to broker\.example: refused"):
        await link.connect()
    assert link.steps == ["establish", "disconnect"]


async def test_closing_signs_off_and_disconnects_once_also_while_it_reconnects() -> None:
    link = Link(None, *[OSError("refused")] * 10_000)
    await link.connect()
    link.lost(None)
    await asyncio.gather(link.close(), link.close())
    assert link.steps[-2:] == ["sign off", "disconnect"]
    assert link.steps.count("sign off") == 1
    link.lost(None)
    assert not link.is_up


@pytest.mark.parametrize(("first", "pauses"), [(0.3, [0.3, 0.6, 1.2, 2.0, 2.0]), (5.0, [5.0] * 5)])
async def test_the_pauses_of_a_reconnection_double_up_to_two_seconds(first, pauses, monkeypatch):
    taken, sleep = [], asyncio.sleep
    link = Link(None, *[OSError("refused")] * 4, reconnect_wait=first)
    await link.connect()
    monkeypatch.setattr(broker.random, "uniform", lambda low, high: high)
    monkeypatch.setattr(broker.asyncio, "sleep", lambda seconds: taken.append(seconds) or sleep(0))
    link.lost(None)
    assert [await link.states.get() for _ in range(3)] == [("up", 1), ("down", 1), ("up", 2)]
    assert taken == pauses
    await link.close()


async def test_a_link_that_cannot_sign_off_is_closed_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "operad.test")
    link = Link()
    await link.connect()
    link.sign_off = lambda: link.establish()  # type: ignore[method-assign]  # which fails this time
    link.outcomes = [OSError("gone")]
    await link.close()
    assert (link.steps[-1], link.is_up) == ("disconnect", False)
    assert caplog.messages == ["signing off at broker.example failed: OSError('gone')"]


async def test_a_cancelled_caller_does_not_stop_closing() -> None:
    link = Link()
    await link.connect()
    closing = asyncio.ensure_future(link.close())
    await asyncio.sleep(0)
    closing.cancel()
    await link.close()
    assert link.steps[-2:] == ["sign off", "disconnect"]


async def test_an_event_is_passed_on_and_done_unless_a_handler_works_on_it() -> None:
    link = Link()
    assert link.come(event("news")) == ["done"]
    assert link.come(event("call.requested", requestId="r", operationId="t.op")) == []
    assert [one["type"] for one in link.events] == ["news", "call.requested"]


async def test_a_request_at_another_address_than_its_operations_is_refused() -> None:
    link = Link()
    request = event("call.requested", requestId="r", operationId="t.op", replyTo="inbox:a")
    assert link.come(request, is_address=False) == ["done"]
    ((to, reply),) = link.replies
    assert (to, reply["type"], reply["payload"]["code"]) == ("inbox:a", "call.error", "ACCESS_DENIED")
    assert link.events == []


async def test_an_answer_that_cannot_be_read_fails_its_call() -> None:
    link, done = Link(), []
    data = b'{"type":"call.responded","payload":{"requestId":"r","output":NaN}}'
    link.take(data, Delivery(done=lambda: done.append(1)), lambda _: True, "here")
    ((failed),) = link.events
    assert (failed["type"], failed["payload"]["requestId"]) == ("call.error", "r")
    assert (done, link.replies, link.reports.count) == ([1], [], 1)


async def test_a_peer_cannot_send_what_only_a_link_makes(caplog: pytest.LogCaptureFixture) -> None:
    link = Link()
    link.come(event("link.error"))
    link.take(b"\xff", Delivery(), lambda _: True, "here")
    assert link.events == []
    assert "dropped a message at 'here'" in caplog.text


async def test_a_defect_of_the_owner_does_not_reach_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    link = Link()
    link.come(event("defect"))
    assert "handling an event (defect) failed" in caplog.text
