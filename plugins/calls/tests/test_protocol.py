"""The codec's strict profile, in both directions, and the shapes of the events."""

import copy
import json
import math
import pickle
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operad import CallError, CallEventMap, ErrorCode, from_schema, local_envelope
from operad.envelopes import LocalResponseMeta, ResponseEnvelope
from operad.wire import from_json, to_json
from operad_calls import protocol
from operad_calls.protocol import ProtocolError, call_error, decode, encode, error_event
from operad_calls.transport import FrameCheck
from plugins.calls.tests.parts import TABLES


def event(**payload):
    return {"type": "call.requested", "id": "", "payload": payload}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_what_is_encoded_decodes_to_the_same(value):
    """Any JSON value survives; 1 stays an integer and 1.0 a float."""
    back = decode(encode(event(input=value)))["payload"]["input"]
    assert back == value
    assert repr(back) == repr(value)


@given(json_values)
def test_what_another_writer_wrote_decodes_to_the_same(value):
    """White space and escapes of other writers make no difference."""
    text = json.dumps(event(input=value), indent=1)
    assert decode(text)["payload"]["input"] == value


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        {1, 2},
        {1: 2},
        {None: 1},
        b"bytes",
        Decimal("1.5"),
        object(),
        "\ud800",
        [{"deep": [math.nan]}],
        {"a": {"b": ({"c": {3}},)}},
    ],
)
def test_what_json_cannot_hold_is_refused(value):
    """An encoder that bends NaN to null or a set to a list would change what arrives."""
    with pytest.raises(CallError) as caught:
        encode(event(input=value))
    assert caught.value.code == ErrorCode.SERIALIZATION_ERROR


def test_depth_is_an_error_not_a_crash():
    """Nesting beyond what the parser takes is refused in both directions."""
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CallError, match="deeply"):
        encode(event(input=deep))
    with pytest.raises(ProtocolError, match="deeply"):
        decode(b'{"type":"x","payload":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}")
    while deep:  # taken apart by hand: the garbage collector would recurse
        deep = deep[0]


@pytest.mark.parametrize(("text", "reason"), TABLES["texts that are no event"])
def test_what_is_no_event_is_refused_with_the_reason(text, reason):
    """Bad input names what was expected and where."""
    with pytest.raises(ProtocolError) as caught:
        decode(text.encode("latin-1"))
    assert reason in str(caught.value)


def test_large_integers_stay_exact():
    """Integers beyond 64 bits are neither refused nor turned into floats."""
    assert decode(encode(event(input=10**30)))["payload"]["input"] == 10**30


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_an_error(data):
    """Nothing that a peer sends raises anything else."""
    with suppress(ProtocolError):
        decode(data)


def test_an_envelope_is_converted_where_it_stands():
    """``payload.output`` may be the object; bytes travel as base64."""
    text = json.loads(encode(event(output=local_envelope({"a": 1}, "m.a"))))
    assert text["payload"]["output"]["data"] == {"a": 1}
    assert text["payload"]["output"]["meta"]["operationId"] == "m.a"
    binary = ResponseEnvelope(b"\x00", LocalResponseMeta("m.a", 1))
    assert json.loads(encode(event(output=binary)))["payload"]["output"]["meta"]["encoding"] == "base64"


def test_the_short_way_of_local_envelopes_is_the_long_one():
    """What only looks at the data, and `ResponseEnvelope.to_wire`, agree."""
    for data in ({"a": [1, {"b": None}]}, None, b"x", "x", (1, 2)):
        made = event(output=local_envelope(data, "m.a"))
        assert encode(made) == encode(event(output=made["payload"]["output"].to_wire()))


@pytest.mark.parametrize(
    "envelope",
    [
        local_envelope({"a": {1, 2}}, "m.a"),
        local_envelope([float("nan")], "m.a"),
        local_envelope({1: "a"}, "m.a"),
        local_envelope(None, "m.\ud800"),
        ResponseEnvelope(None, LocalResponseMeta("m.a", float("nan"))),
        ResponseEnvelope(None, LocalResponseMeta({1}, 1)),
    ],
)
def test_an_envelope_without_a_json_form_is_refused_whatever_part_of_it_has_none(envelope):
    with pytest.raises(CallError, match="no JSON form") as caught:
        encode(event(output=envelope))
    assert caught.value.code == ErrorCode.SERIALIZATION_ERROR


def test_an_error_without_a_usable_code_is_unknown():
    """What a peer sends as an error always becomes a `CallError`."""
    for payload in ({}, {"code": 7}, {"code": ""}, {"code": None, "message": "m"}):
        error = call_error(payload)
        assert error.code == ErrorCode.UNKNOWN_ERROR
        assert error.details == {"raw": payload}
    error = call_error({"code": "X", "message": 5, "details": [1]})
    assert (error.code, error.message, error.details) == ("X", "5", [1])


def test_the_event_map_describes_the_events():
    """`CallEventMap` has a schema for each event, and the shapes of the original four stay as they were."""
    required = TABLES["fields that an event requires"]
    payloads = {name: schema["properties"]["payload"] for name, schema in CallEventMap.items()}
    assert {name: required[name] and sorted(payload["required"]) for name, payload in payloads.items()} == required
    schema = from_schema(dict(CallEventMap["call.error"]))
    assert schema.is_valid(error_event("1", "X", "m", {"a": 1}))
    assert not schema.is_valid({"type": "call.error", "payload": {"requestId": "1"}})
    assert json.loads(json.dumps(dict(CallEventMap))) == dict(CallEventMap)
    with pytest.raises(TypeError):
        CallEventMap["x"] = {}


@pytest.fixture(scope="module")
def frames():
    return FrameCheck()


@pytest.mark.parametrize(("type_", "fields", "valid"), TABLES["fields of events at their bounds"])
def test_a_frame_check_enforces_the_bounds_of_fields(frames, type_, fields, valid):
    payload = {"requestId": "r", **fields}
    for name in TABLES["fields that an event requires"][type_] or ():
        payload.setdefault(name, {"data": 1, "meta": {"source": "x"}} if name == "output" else "x")
    if type_ == "call.credit":
        payload.setdefault("total", 0)
    error = frames.error({"type": type_, "id": "", "payload": payload})
    assert (error is None, (error or type_).startswith(type_)) == (valid, True)


def test_a_frame_check_changes_no_event_and_checks_no_formats():
    properties = {"a": {"default": 5}, "when": {"type": "string", "format": "date-time"}}
    check = FrameCheck({"x": {"type": "object", "properties": {"payload": {"properties": properties}}}})
    sent = {"type": "x", "payload": {"when": "soon"}}
    assert check.error(sent) is None
    assert sent == {"type": "x", "payload": {"when": "soon"}}
    assert check.error({"type": "unknown", "payload": {}}) is None


@pytest.mark.parametrize(("length", "kind"), [(16_384 - 2, bytes), (16_384 - 1, protocol.Parts)])
def test_data_of_more_than_16_kib_are_not_copied(length, kind):
    answer = {"type": "call.responded", "id": "", "payload": {"output": local_envelope("x" * length, "t.op")}}
    assert type(protocol.encode_in_parts(answer)) is kind


LONG = "a text: of some length " * 2_000


@pytest.mark.parametrize("value", [LONG, [LONG, (1, 2.5, None, True)], {"a:b": [LONG, {"c": 2**70}]}])
def test_a_large_text_of_few_values_decodes_to_the_same(value):
    """Colons in texts and keys make no difference."""
    back = decode(encode(event(input=value)))["payload"]["input"]
    assert back == json.loads(json.dumps(value))


@pytest.mark.parametrize("rest", ["", f',"s":"{LONG}"'])
def test_of_a_key_that_is_there_twice_the_last_one_wins(rest):
    """As in every mainstream parser, so that hub and worker read the same."""
    text = '{"type":"a","payload":{"k":1,"x":{"k":1,"k":2},"\\u006b":2' + rest + "}}"
    assert decode(text)["payload"] == {**json.loads(text)["payload"]}
    assert decode(text)["payload"]["k"] == 2


LARGE = "x" * 100_000


@pytest.mark.parametrize("data", [LARGE, {"text": LARGE, "nul": "\0"}, [LARGE, {"a": [1, LARGE]}]])
def test_the_json_of_a_large_result_is_copied_nowhere(data):
    """What is written in parts is what is written in one piece; with its bytes counted as well."""
    answer = {"type": "call.responded", "id": "\0", "payload": {"output": local_envelope(data, "a")}}
    whole, parts = encode(answer), protocol.encode_in_parts(answer)
    assert parts.pieces[1] == to_json(data)
    assert bytes(parts) == whole
    assert len(parts) == len(whole)
    counted = protocol.with_sent_bytes(answer, parts, 7)
    assert counted.data.pieces[1] is parts.pieces[1]
    assert decode(encode(counted)) == {**decode(whole), "payload": {**decode(whole)["payload"], "sentBytes": 7}}
    assert type(answer["payload"]["output"]) is ResponseEnvelope


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda event: pickle.loads(pickle.dumps(event))])
@pytest.mark.parametrize("data", ["x", LARGE])
def test_an_event_with_its_json_is_copied_as_any_other(data, copied):
    """A tap keeps what it sees by a copy of it."""
    answer = {"type": "call.responded", "id": "", "payload": {"output": local_envelope(data, "a")}}
    sent = protocol.with_sent_bytes(answer, protocol.encode_in_parts(answer), 7)
    kept = copied(sent)
    assert kept == sent
    assert encode(kept) == encode(sent)


@pytest.mark.parametrize(
    "bad",
    [math.nan, {1: "one"}, {1}, b"bytes", "\ud800"],
    ids=["NaN", "a key that is a number", "a set", "bytes", "a lone surrogate"],
)
@pytest.mark.parametrize("text", [LONG, LARGE], ids=["colons", "no colons"])
def test_a_large_text_does_not_hide_a_value_that_has_no_json_form(text, bad):
    """Few values beside a long text are checked one by one, many by reading the text again."""
    for more in ({}, {"many": list(range(1_000))}):
        value = {"text": text, **more}
        assert from_json(to_json(value)) == value
        for write in (to_json, lambda value: encode(event(input=value))):
            with pytest.raises(CallError, match="SERIALIZATION_ERROR"):
                write({**value, "bad": bad})
