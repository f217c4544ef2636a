"""What transports log of their peers, and whom they tell what cannot be read."""

from __future__ import annotations

import logging

import pytest

from operad.words import printable
from operad_calls.transport import Reports, unreadable

logger = logging.getLogger("operad.test")


def test_what_a_peer_wrote_is_one_line_without_escape_sequences() -> None:
    assert printable("a\nb\x1b[2J\u202e") == "a\\x0ab\\x1b[2J\\x202e"
    assert (printable("x" * 200), printable("x" * 201)) == ("x" * 200, "x" * 200 + "…")
    assert (printable("ab", 2), printable("a\tb")) == ("ab", "a\\x09b")
    assert printable("größe 日本") == "größe 日本"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"junk", None),
        (b'{"type":"call.requested","payload":{"requestId":1}}', None),
        (b'{"type":"news","payload":{"requestId":"r"}}', None),
        (b'{"type":"call.requested","payload":{"requestId":"%s"}}' % (b"x" * 600), None),
        (b'{"type":"call.requested","payload":{"requestId":"r","input":1e999}}', (True, None)),
        (b'{"type":"call.requested","payload":{"requestId":"r","replyTo":"inbox:a"}}', (True, "inbox:a")),
        (b'{"type":"call.responded","payload":{"requestId":"r","output":{"a":1,"a":2}}}', (False, None)),
        (
            b'{"type":"call.requested","payload":{"requestId":"r","input":NaN,"replyTo":"inbox:a"}}',
            (True, "inbox:a"),
        ),
        (b'{"type":"call.responded","payload":{"requestId":"r","output":-Infinity}}', (False, None)),
        (b'{"type":"call.requested","payload":{"requestId":"r","input":"\\ud800"}}', (True, None)),
        (b'{"type":"call.requested","payload":{"requestId":"\\ud800","input":1}}', None),
        (b'{"type":"call.requested","payload":{"requestId":"r","input":NaN,"replyTo":7}}', (True, None)),
        (b'{"type":7,"payload":{"requestId":"r","input":NaN}}', None),
        (b'{"type":"call.requested","payload":[NaN]}', None),
        (b'{"type":"call.requested","payload":{"requestId":"r","input":[NaN,"%s"]}}' % (b"x" * 70_000), None),
        (b"[" * 50_000, None),
    ],
)
def test_who_is_told_of_what_cannot_be_read(data: bytes, found: tuple[bool, str | None] | None) -> None:
    made = unreadable(data, "why")
    if found is None:
        assert made is None
        return
    assert made is not None
    assert (made.is_request, made.reply_to) == found
    payload = made.event["payload"]
    assert (payload["requestId"], payload["code"]) == ("r", "SERIALIZATION_ERROR")
    assert "why" in payload["message"]


def test_a_line_about_a_peer_is_cut_at_400_characters(caplog: pytest.LogCaptureFixture) -> None:
    reports = Reports(logger)
    reports.warn("eve", "x" * 400)
    reports.warn("eve", "x" * 401)
    assert caplog.messages == ["x" * 400, "x" * 400 + "…"]


@pytest.mark.parametrize(("more", "read"), [(0, True), (1, False)])
def test_what_only_pythons_parser_reads_is_looked_into_up_to_64_kib(more: int, read: bool) -> None:
    text = b'{"type":"call.requested","payload":{"requestId":"r","replyTo":"inbox:a","input":NaN%s}}'
    data = text % (b" " * (65_536 - len(text) + 2 + more))
    assert len(data) == 65_536 + more
    assert (unreadable(data, "why") is not None) is read
