"""What transports log of their peers, and whom they tell what cannot be read."""

from __future__ import annotations

import logging

import pytest

from operad.words import printable
from operad_calls.transport import Reports, unreadable
from plugins.calls.tests.parts import TABLES

logger = logging.getLogger("operad.test")


def test_what_a_peer_wrote_is_one_line_without_escape_sequences() -> None:
    assert printable("a\nb\x1b[2J\u202e") == "a\\x0ab\\x1b[2J\\x202e"
    assert (printable("x" * 200), printable("x" * 201)) == ("x" * 200, "x" * 200 + "…")
    assert (printable("ab", 2), printable("a\tb")) == ("ab", "a\\x09b")
    assert printable("größe 日本") == "größe 日本"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *TABLES["messages that cannot be read"],
        ('{"type":"call.requested","payload":{"requestId":"%s"}}' % ("x" * 600), None),
        ('{"type":"call.requested","payload":{"requestId":"r","input":[NaN,"%s"]}}' % ("x" * 70_000), None),
        ("[" * 50_000, None),
    ],
)
def test_who_is_told_of_what_cannot_be_read(text, found):
    made = unreadable(text.encode(), "why")
    assert (made and [made.is_request, made.reply_to]) == found
    if made:
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
