"""The codec's strict profile, in both directions, and the shapes of the events."""

import copy
import json
import math
import pickle
import subprocess
import sys
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operad import CallError, CallEventMap, ErrorCode, from_schema, local_envelope, protocol
from operad.envelopes import LocalResponseMeta, ResponseEnvelope
from operad.protocol import ProtocolError, call_error, decode, encode, error_event


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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"type":"a","type":"b","payload":{}}', '"type" is there twice'),
        (b'{"type":"a","payload":{"x":{"k":1,"k":1}}}', '"k" is there twice'),
        (b'{"type":"a","payload":{"k":1, "\\u006b":2}}', '"k" is there twice'),
        (b'{"type":"a","payload":{"k":1,"k":2,"s":"' + b"x" * 70_000 + b'"}}', "a key is there twice"),
        (rb'{"type":"a","payload":{"a\\":1, "b":"\\\":", "a\\":2}}', "is there twice"),
        (b'{"type":"a","payload":{"n":NaN}}', "strict profile"),
        (b'{"type":"a","payload":{"n":1e999}}', "strict profile"),
        (b'{"type":"a","payload":{"n":Infinity}}', "strict profile"),
        (b'{"type":"a","payload":{"s":"\\ud800"}}', "strict profile"),
        (b'{"type":"a","payload":{"s":"\xff"}}', "strict profile"),
        (b"", "strict profile"),
        (b"[]", "expected an object"),
        (b'{"payload":{}}', "$.type: expected a string, got NoneType"),
        (b'{"type":1,"payload":{}}', "$.type: expected a string, got int"),
        (b'{"type":"a","payload":[]}', "$.payload: expected an object, got list"),
        (b'{"type":"a"}', "$.payload: expected an object, got NoneType"),
    ],
)
def test_what_is_no_event_is_refused_with_the_reason(text, reason):
    """Bad input names what was expected and where."""
    with pytest.raises(ProtocolError) as caught:
        decode(text)
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


def test_the_first_event_of_a_process_is_written_as_all_others():
    """The encoder is imported with it."""
    program = (
        "from operad import local_envelope, protocol; from operad.protocol import encode;"
        "made = [encode({'type': 't', 'id': '', 'payload': {'output': local_envelope({'a': 1}, 'm.a')}})"
        " for _ in 'ab'];"
        "print([protocol.decode(text)['payload']['output']['data'] for text in made])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[{'a': 1}, {'a': 1}]"


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
    assert set(CallEventMap) == {
        "call.requested",
        "call.responded",
        "call.error",
        "call.aborted",
        "call.completed",
        "call.credit",
        "operad.changed",
    }
    required = {
        name: set(schema["properties"]["payload"].get("required", ())) for name, schema in CallEventMap.items()
    }
    assert required["call.requested"] == {"requestId", "operationId", "input"}
    assert required["call.responded"] == {"requestId", "output"}
    assert required["call.error"] == {"requestId", "code", "message"}
    assert required["call.aborted"] == {"requestId"}
    schema = from_schema(dict(CallEventMap["call.error"]))
    assert schema.is_valid(error_event("1", "X", "m", {"a": 1}))
    assert not schema.is_valid({"type": "call.error", "payload": {"requestId": "1"}})
    with pytest.raises(TypeError):
        CallEventMap["x"] = {}


LONG = "a text: of some length " * 2_000


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([LONG, math.nan], id="NaN"),
        pytest.param({"text": LONG, 1: "one"}, id="a key that is a number"),
        pytest.param([LONG, {1}], id="a set"),
        pytest.param([LONG, b"bytes"], id="bytes"),
        pytest.param([LONG, "\ud800"], id="a lone surrogate"),
    ],
)
def test_a_large_text_hides_nothing_that_has_no_json_form(value):
    """Where few values make a large text, each of them is looked at."""
    with pytest.raises(CallError, match="SERIALIZATION_ERROR"):
        encode(event(input=value))


@pytest.mark.parametrize("value", [LONG, [LONG, (1, 2.5, None, True)], {"a:b": [LONG, {"c": 2**70}]}])
def test_a_large_text_of_few_values_decodes_to_the_same(value):
    """Colons in texts and keys make no difference."""
    back = decode(encode(event(input=value)))["payload"]["input"]
    assert back == json.loads(json.dumps(value))


def test_a_key_that_is_twice_beside_a_large_text_is_found():
    """Also where every colon is a member's."""
    text = b'{"type":"a","payload":{"k":1,"k":2,"s":"%s"}}' % (b"x" * 30_000)
    with pytest.raises(ProtocolError, match="is there twice"):
        decode(text)


@pytest.mark.parametrize("value", ["1e6", "[1e-4,1e-4,1e-4]"])
def test_a_number_in_a_short_form_makes_no_room_for_a_key_that_is_twice(value):
    """The text is as long as one that says 1000000.0, or 0.0001, and nothing twice."""
    text = f'{{"type":"a","payload":{{"k":0,"k":{value},"s":"{"x" * 30_000}"}}}}'
    with pytest.raises(ProtocolError, match="is there twice"):
        decode(text)


TEXT_OF_COLONS = "a: text: " * 3_000


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(f'"k":2,"s":"inbox:1","t":"{"x" * 30_000}"', id="few colons in strings"),
        pytest.param(f'"k":2,"s":"{TEXT_OF_COLONS}"', id="many colons in strings"),
        pytest.param(f'"k":2,"k:":"{"x" * 30_000}"', id="a colon in a key"),
        pytest.param(f'"k":2,"s":"\\u003a","t":"{"x" * 30_000}"', id="a colon that is escaped"),
    ],
)
def test_colons_in_large_texts_hide_no_key_that_is_twice(rest):
    assert decode('{"type":"a","payload":{' + rest + "}}")["payload"]["k"] == 2
    with pytest.raises(ProtocolError, match="is there twice"):
        decode('{"type":"a","payload":{"k":1,' + rest + "}}")


def shortest(value):
    """JSON with each number in the shortest of its forms."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{shortest(key)}:{shortest(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(shortest, value)) + "]"
    if isinstance(value, float):
        digits, exponent = f"{value:.16e}".split("e")
        forms = [repr(value), f"{value:e}", f"{value:g}e0", f"{digits.replace('.', '')}e{int(exponent) - 16}"]
        forms += [f"{value:.{places}e}".replace("e+", "e").replace("e0", "e") for places in range(17)]
        forms += [form.replace("e-0", "e-") for form in forms]
        whole = [(str(int(value) // 10**zeros) + f"e{zeros}") for zeros in range(1, 30) if value.is_integer()]
        return min((form for form in forms + whole if reads_as(form, value)), key=len)
    return json.dumps(value, ensure_ascii=False)


def reads_as(text, value):
    try:
        read = json.loads(text)
    except ValueError:
        return False
    return type(read) is float and read == value


@given(st.dictionaries(st.text(), json_values, min_size=1, max_size=4), st.data())
def test_no_number_is_so_short_that_a_key_that_is_twice_has_room(value, data):
    """Beside a large text, which is not written again: its size says whether it is the shortest there is."""
    key = data.draw(st.sampled_from(list(value)))
    text = shortest({"type": "a", "payload": value})
    large = f',"payload":{{"":"{LONG}",'
    for more, is_fine in (("", "" not in value), (f"{json.dumps(key)}:0,", False)):
        written = text.replace(',"payload":{', large + more, 1)
        if is_fine:
            assert decode(written)["payload"] == {"": LONG, **value}
        else:
            with pytest.raises(ProtocolError, match="is there twice"):
                decode(written)


@pytest.mark.parametrize(
    "value", ["x", ":", "ä", 0.5, -12.25, -(2**62), True, False, None, [], {}, [[], {"a": 1}]]
)
def test_a_large_text_that_is_as_short_as_can_be_is_not_written_again(value, monkeypatch):
    """To compare it with what came takes as long as to read it."""
    sent = encode(event(input=["ä:" * 50_000, value], replyTo="inbox:1"))

    def write(value):
        raise AssertionError("written again")

    monkeypatch.setattr(protocol, "_encode", write)
    assert decode(sent)["payload"]["replyTo"] == "inbox:1"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_large_text_with_no_more_colons_than_keys_is_not_written_again(kind, monkeypatch):
    """Such as lines of base64, or what another writer puts white space into."""
    sent = event(input="a\n" * 50_000, floats=[1.0, 1e300])
    text = json.dumps(sent).encode()

    def write(value):
        raise AssertionError("written again")

    monkeypatch.setattr(protocol, "_encode", write)
    assert decode(kind(text)) == sent
    with pytest.raises(AssertionError, match="written again"):
        decode(kind(text.replace(b'"floats"', b'"floats": 1, "floats"')))


@pytest.mark.parametrize("input", ["a:\n" * 50_000, list(range(20_000))])
def test_a_view_of_a_text_that_is_written_again_is_compared_as_bytes(input, monkeypatch):
    """A view is compared item by item."""
    sent, compared = encode(event(input=input)), []

    class Written(bytes):
        def __ne__(self, other):
            compared.append(type(other))
            return bytes.__ne__(self, other)

    monkeypatch.setattr(protocol, "_encode", lambda value: Written(sent))
    assert decode(memoryview(sent))["payload"]["input"] == input
    assert compared == [bytes]


@pytest.mark.parametrize("input", [['\n: {"a": 1}\\' * 5_000, {}], [[{"a": {"b:": ":"}}] * 10_000]])
@pytest.mark.parametrize("separators", [(", ", ": "), (",", " :"), (" ,", ":")])
def test_a_large_text_with_white_space_is_taken_but_for_a_key_that_is_twice(input, separators):
    text = json.dumps(event(input=input, last=1), separators=separators)
    assert decode(text)["payload"]["input"] == input
    for twice in ('{"last":1,', '{"l\\u0061st":"last",'):
        at = text.rindex("{", 0, text.index('"input"'))
        with pytest.raises(ProtocolError, match="is there twice"):
            decode(text[:at] + twice + text[at + 1 :])


LARGE = "x" * 100_000


@pytest.mark.parametrize("data", [LARGE, {"text": LARGE, "nul": "\0"}, [LARGE, {"a": [1, LARGE]}]])
def test_the_json_of_a_large_result_is_copied_nowhere(data):
    """What is written in parts is what is written in one piece; with its bytes counted as well."""
    answer = {"type": "call.responded", "id": "\0", "payload": {"output": local_envelope(data, "a")}}
    whole, parts = encode(answer), protocol.encode_in_parts(answer)
    assert parts.pieces[1] == protocol.to_json(data)
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
