"""Dialogues of peers with a hub, from a table: each step, and what comes to which peer; nothing else comes.

A step is a frame of a peer (its name, type, payload, ``to``), or with ``<`` before the name one that comes to it.
Peers named ``bob…`` and ``alice…`` have an identity. A ``small…`` one takes no requests and news, a ``slow…`` one does
not read. After ``=`` are figures of the switch; an ``x*n`` in a payload is so many letters.
"""

import json
import re

import pytest

from operad.transports import PayloadTooLargeError
from operad_websocket import Limits
from operad_websocket._frames import read
from operad_websocket._switch import Switch
from plugins.websocket.tests.kit import TABLES
from plugins.websocket.tests.test_websocket_switch import ALICE, ASKED, BOB, Spoke


class Member(Spoke):
    def __init__(self, switch, name):
        identity = {"bob": BOB, "alice": ALICE}.get(name.rstrip("0123456789"))
        super().__init__(switch, identity)
        self.peer.is_slow = lambda: name.startswith("slow")
        if name.startswith("small"):
            self.peer.deliver = self.take

    def take(self, data):
        if read(data).type in ("call.requested", "news"):
            raise PayloadTooLargeError("too large")
        self.texts.append(data)


@pytest.mark.parametrize("title", TABLES["dialogues"])
def test_dialogue(title):
    steps = json.loads(
        re.sub(r"x\*(\d+)", lambda found: "x" * int(found[1]), json.dumps(TABLES["dialogues"][title]))
    )
    limits = steps.pop(0)[1] if steps[0][0] == "limits" else {}
    switch, members = Switch(Limits(**limits)), {}
    for number, (who, what, *more) in enumerate(steps):
        if who == "=":
            assert {name: getattr(switch, name) for name in what} == what, f"step {number}"
            continue
        name = who.removeprefix("<")
        if name not in members:
            members[name] = Member(switch, name)
        member = members[name]
        if what in ("breaks", "leaves"):
            member.peer.said_goodbye = what == "leaves"
            switch.leave(member.peer)
        elif who.startswith("<"):
            assert member.texts, f"step {number}: nothing came"
            event = json.loads(member.texts.pop(0))
            payload = {key: event["payload"].get(key) for key in more[0]}
            assert (event["type"], payload) == (what, more[0]), f"step {number}"
        else:
            member.send(what, *more[1:], **more[0])
    assert {name: member.events for name, member in members.items() if member.texts} == {}


def test_what_is_dropped_or_refused_is_logged(caplog):
    switch = Switch()
    sender, small, bob = (Member(switch, name) for name in ("sender", "small", "bob"))
    small.serves("all:x", "op:operad.list", "op:t.x")
    sender.send("news", "all:x")
    assert f"anonymous ({small.peer.inbox[6:14]}) did not receive a frame: too large" in caplog.text
    caplog.clear()
    bob.serves("op:operad.list")
    assert not caplog.records, "each handler tries to serve it"
    for topics, reported in ((["op:t.x"], "'op:t.x': it is"), (["op:t.x", "x"], "'op:t.x', and 1 more: it is")):
        bob.serves(*topics)
        assert f"it may not serve {reported}" in caplog.records[-1].getMessage()


def test_a_request_that_is_too_large_ends_by_its_id_unless_another_one_has_it():
    spoke = Member(switch := Switch(), "bob")
    for request_id, answers in ((b"", 0), (b"y", 1), (b"y" * 512, 2), (b"y" * 513, 2)):
        switch.on_too_large(spoke.peer, read(ASKED.replace(b'"1"', b'"%s"' % request_id)), 2, 1)
        assert len(spoke.texts) == answers
    spoke.serves("op:t.x")
    spoke.asks()
    switch.on_too_large(spoke.peer, read(ASKED), 2, 1)
    assert spoke.events[-1]["type"] == "call.requested"
