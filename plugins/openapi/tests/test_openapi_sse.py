"""The SSE parser: the cases of the WHATWG text, chunking, bounds."""

import base64
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operad_openapi import SSEEvent, SSEEventTooLargeError, SSEParser

CASES = Path(os.environ.get("OPERAD_DOCUMENTS", "documents")) / "sse_cases.jsonl"


def parse(*chunks: bytes) -> list[SSEEvent]:
    parser = SSEParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def datas(*chunks: bytes) -> list[str]:
    return [event.data for event in parse(*chunks)]


def _shared_cases() -> list[dict]:
    return [json.loads(line) for line in CASES.read_text().splitlines()] if CASES.exists() else []


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
@pytest.mark.parametrize("case", _shared_cases(), ids=lambda case: case["id"])
def test_shared_case(case):
    parser = SSEParser()
    counts, events = [], []
    for chunk in case["chunks"]:
        events += parser.feed(base64.b64decode(chunk))
        counts.append(len(events))
    expected = [SSEEvent(**event) for event in case["events"]]
    assert [(e.data, e.event, e.id) for e in events] == [(e.data, e.event, e.id) for e in expected]
    for got, want in zip(events, case["events"], strict=True):
        if "retry" in want:
            assert got.retry == want["retry"]
    assert (
        counts == case["events_by_chunk"]
        or [after - before for before, after in zip([0, *counts], counts, strict=False)] == case["events_by_chunk"]
    )
    assert parser.last_event_id == case["final"]["last_event_id"]
    assert parser.retry == case["final"]["retry"]


@pytest.mark.parametrize("newline", [b"\n", b"\r", b"\r\n"])
def test_all_three_line_ends(newline):
    assert datas(newline.join([b"data: a", b"data: b", b"", b"data: c", b"", b""])) == ["a\nb", "c"]


def test_cr_ends_a_line_at_once_and_a_following_lf_belongs_to_it():
    parser = SSEParser()
    assert parser.feed(b"data: a\r\r") == [SSEEvent("a")]
    assert parser.feed(b"\ndata: b\n\n") == [SSEEvent("b")]


def test_one_bom_is_stripped_even_in_pieces():
    assert datas(b"\xef", b"\xbb", b"\xbfdata: a\n\n") == ["a"]
    assert datas(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n") == ["b"]


def test_a_chunk_that_only_begins_like_a_bom_is_kept():
    assert datas(b"\xef", b"data: a\n\ndata: b\n\n") == ["b"]


def test_nothing_is_dispatched_at_the_end_of_the_stream():
    assert datas(b"data: a\n\ndata: b\n") == ["a"]


def test_the_id_is_committed_by_the_blank_line_only():
    parser = SSEParser()
    parser.feed(b"id: 1\n")
    assert parser.last_event_id == ""
    parser.feed(b"\n")
    assert parser.last_event_id == "1"


def test_an_id_stays_until_another_comes_and_an_empty_one_clears_it():
    assert [e.id for e in parse(b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n")] == ["1", "1", ""]


def test_an_id_with_nul_is_ignored():
    assert parse(b"id: 1\nid: a\0b\ndata: a\n\n")[0].id == "1"


def test_the_event_type_does_not_leak_into_the_next_event():
    events = parse(b"event: x\n\ndata: a\n\nevent: y\ndata: b\n\ndata: c\n\n")
    assert [event.event for event in events] == ["message", "y", "message"]


@pytest.mark.parametrize("value", [b"1x", b"-1", b"", b"1.5", "１".encode(), b"9" * 5000])
def test_retry_takes_ascii_digits_only(value):
    parser = SSEParser()
    parser.feed(b"retry: " + value + b"\n\n")
    assert parser.retry is None


def test_retry_counts_without_a_blank_line():
    parser = SSEParser()
    parser.feed(b"retry: 250\n")
    assert parser.retry == 250


def test_data_without_colon_is_an_empty_line_of_data():
    assert datas(b"data\n\n", b"data\ndata\n\n", b"data:\n\n") == ["", "\n", ""]


def test_an_event_beyond_the_limit_is_refused_in_every_form():
    def feed(chunks):
        parser = SSEParser(max_event_size=1000)
        for chunk in chunks:
            parser.feed(chunk)

    for chunks in (
        [b"data: " + b"x" * 2000 + b"\n\n"],
        [b"data: "] + [b"x" * 100] * 20,
        [b"data: xxxxxxxxxxxx\n"] * 200,
        [b"\n\ndata: " + b"x" * 2000],
    ):
        with pytest.raises(SSEEventTooLargeError, match="max_event_size"):
            feed(chunks)


def test_many_small_events_in_one_chunk_do_not_count_together():
    parser = SSEParser(max_event_size=100)
    assert len(parser.feed(b"data: 0123456789\n\n" * 1000)) == 1000


_TOKENS = st.sampled_from(
    [b"data", b"event", b"id", b"retry", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"1", b"\xef\xbb\xbf",
     b"\xe2\x82", "é".encode(), b"\0", b"x"]
)  # fmt: skip


@given(st.lists(_TOKENS, max_size=60), st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_the_events_do_not_depend_on_how_the_stream_is_cut(tokens, sizes):
    stream = b"".join(tokens)
    whole, cut = SSEParser(), SSEParser()
    chunks, position, turn = [], 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        chunks.append(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert whole.feed(stream) == [event for chunk in chunks for event in cut.feed(chunk)]
    assert (whole.last_event_id, whole.retry) == (cut.last_event_id, cut.retry)


@given(st.lists(_TOKENS, max_size=60))
def test_agrees_with_the_standard_read_line_by_line(tokens):
    stream = b"".join(tokens)
    assert [(e.data, e.event, e.id) for e in parse(stream)] == reference(stream)


def reference(stream: bytes) -> list[tuple[str, str, str]]:
    """The standard's algorithm, literally."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    events, data, event, last_id = [], "", "", ""
    for line in lines:
        if line == "":
            if data:
                events.append((data.removesuffix("\n"), event or "message", last_id))
            data = event = ""
            continue
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ") if colon else ""
        if name == "event":
            event = value
        elif name == "data":
            data += value + "\n"
        elif name == "id" and "\0" not in value:
            last_id = value
    return events
