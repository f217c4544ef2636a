"""Envelopes: made by factories, told apart by source, the same after a trip over the wire."""

from __future__ import annotations

import json
import time
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, ClassVar

import attrs
import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.kit import giving, registry_of
from operad import (
    CallError,
    EnvelopeKind,
    LocalResponseMeta,
    OpaqueMeta,
    OperadError,
    ResponseEnvelope,
    is_response_envelope,
    local_envelope,
    unwrap,
)
from operad.envelopes import EnvelopeKinds
from operad.testing import envelope_schema
from operad.wire import from_json, to_json

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))


@attrs.frozen
class Ring:
    leg_side: str
    meta: int | None = None


@attrs.frozen
class PigeonMeta:
    source: ClassVar[str] = "pigeon"
    flight_time: float
    rings: list[Ring] = attrs.field(factory=list)
    meta: dict[str, Any] | None = attrs.field(default=None, metadata={"wire": "_meta"})
    note: Any = msgspec.UNSET


KINDS = EnvelopeKinds([EnvelopeKind("pigeon", PigeonMeta)])

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())
values = st.recursive(scalars, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)))
metas = st.one_of(
    st.builds(LocalResponseMeta, st.text(min_size=1), st.integers(0)),
    st.builds(
        PigeonMeta,
        st.floats(allow_nan=False, allow_infinity=False),
        st.lists(st.builds(Ring, st.text(), st.one_of(st.none(), st.integers()))),
        st.one_of(st.none(), st.dictionaries(st.text(), scalars)),
        st.one_of(st.just(msgspec.UNSET), st.none(), st.integers()),
    ),
)
envelopes = st.builds(ResponseEnvelope, st.one_of(values, st.binary()), metas)


@given(envelopes)
def test_an_envelope_is_the_same_after_a_trip_over_the_wire(envelope: ResponseEnvelope[Any]) -> None:
    assert KINDS.from_wire(json.loads(json.dumps(envelope.to_wire()))) == envelope


@given(envelopes)
def test_the_json_form_matches_the_published_schema(envelope: ResponseEnvelope[Any]) -> None:
    jsonschema.Draft202012Validator(envelope_schema(KINDS)).validate(json.loads(json.dumps(envelope.to_wire())))


def test_names_are_camel_case_absent_values_left_out_and_the_source_first() -> None:
    wire = ResponseEnvelope(1, PigeonMeta(1.5, [Ring("left", 1)], {"a": 1})).to_wire()
    rings = [{"legSide": "left", "meta": 1}]
    assert wire == {"data": 1, "meta": {"source": "pigeon", "flightTime": 1.5, "rings": rings, "_meta": {"a": 1}}}
    assert next(iter(wire["meta"])) == "source"
    assert "note" in ResponseEnvelope(1, PigeonMeta(1.5, note=None)).to_wire()["meta"]


def test_a_field_s_own_wire_name_is_not_another_class_s() -> None:
    definitions = envelope_schema(KINDS)["$defs"]
    assert "_meta" in definitions["PigeonMeta"]["properties"]
    assert set(definitions["Ring"]["properties"]) == {"legSide", "meta"}


def test_two_meta_types_of_one_name_are_told_apart() -> None:
    def made(name: str) -> type[Any]:
        cls: Any = attrs.make_class("Meta", {f"{name}_field": attrs.field(type=int)}, frozen=True)
        cls.__qualname__, cls.source = f"{name}.Meta", name
        return cls

    definitions = envelope_schema([EnvelopeKind(name, made(name)) for name in ("one", "two")])["$defs"]
    names = [set(body.get("properties", ())) for name, body in definitions.items() if name.endswith("Meta")]
    assert {"source", "oneField", "encoding"} in names
    assert {"source", "twoField", "encoding"} in names


def test_unknown_fields_are_ignored() -> None:
    wire = {"data": 1, "meta": {"source": "local", "operationId": "a.b", "timestamp": 5, "new": 1}, "more": 2}
    assert KINDS.from_wire(wire) == ResponseEnvelope(1, LocalResponseMeta("a.b", 5))
    foreign = {"source": "strange", "operationId": "a.b", "timestamp": 5}
    assert KINDS.from_wire({"data": 1, "meta": foreign}).meta == OpaqueMeta("strange", foreign)


@pytest.mark.parametrize(
    ("wire", "got"),
    [
        ({"meta": {}}, "object, got no data"),
        ({"data": 1, "meta": 2}, "object, got meta of type int"),
        ([], "object, got list"),
        ({"data": 1, "meta": {"source": ""}}, "meta.source: expected a non-empty string, got ''"),
    ],
)
def test_an_error_of_an_envelope_names_what_is_wrong(wire: Any, got: str) -> None:
    with pytest.raises(CallError, match=got):
        KINDS.from_wire(wire)


@pytest.mark.parametrize("wire", TABLES["what_is_no_envelope_is_a_serialization_error"], ids=str)
def test_what_is_no_envelope_is_a_serialization_error(wire: Any) -> None:
    with pytest.raises(CallError, match="SERIALIZATION_ERROR: not a response envelope"):
        KINDS.from_wire(wire)


class Word(StrEnum):
    C = "c"


class Level(IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1: 2}, "the key 1 is not a string"),
        ([float("nan")], "nan is not a JSON number"),
        ({"a": (float("-inf"),)}, "-inf is not a JSON number"),
        ([{1}], "set is not a JSON type"),
        (b"a", "bytes is not a JSON type"),
        ([object()], "Encoding objects of type object is unsupported"),
        (["x" * 70_000, {1}], "set is not a JSON type"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_value_that_an_encoder_would_convert_has_no_json_form(value: Any, why: str) -> None:
    with pytest.raises(CallError, match=f"SERIALIZATION_ERROR: a value has no JSON form: {why}"):
        to_json(value)


def test_values_of_the_strict_profile_have_a_json_form() -> None:
    large = "x" * 70_000
    assert to_json({"a": (1, 2.5, None, True), "b": Word.C}) == b'{"a":[1,2.5,null,true],"b":"c"}'
    assert to_json([large, (1.5, Word.C, Level.LOW)]) == f'["{large}",[1.5,"c",1]]'.encode()


@pytest.mark.parametrize(
    ("given", "kinds", "counts"),
    [
        (local_envelope(1, "a.b"), (), True),
        ({"data": None, "meta": {"source": "local"}}, (), True),
        ({"data": None, "meta": {"source": "local"}}, (["pigeon"],), False),
        ({"data": 1, "meta": {"source": "mcp"}}, (), True),
        ({"data": 1, "meta": {"source": "pigeon"}}, (), False),
        ({"data": 1, "meta": {"source": "pigeon"}}, (KINDS,), True),
        ({"data": 1, "meta": {"source": "pigeon"}}, (["pigeon"],), True),
        *((other, (), False) for other in TABLES["what_is_no_envelope_in_form"]),
    ],
)
def test_what_counts_as_an_envelope(given: Any, kinds: Any, counts: bool) -> None:
    assert is_response_envelope(given, *kinds) is counts, "false, and not just empty"


def test_unwrap_and_immutability() -> None:
    envelope = local_envelope([1], "a.b")
    assert unwrap(envelope) == [1]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        envelope.data = 2  # type: ignore[misc]  # the mistake under test
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        envelope.meta.timestamp = 2
    assert attrs.evolve(envelope, data=2).data == 2


def test_a_kind_has_to_be_declared_properly_and_once() -> None:
    class Plain:
        source = "plain"

    with pytest.raises(OperadError, match="attrs class"):
        EnvelopeKind("plain", Plain)
    with pytest.raises(OperadError, match="must be \"other\", got 'pigeon'"):
        EnvelopeKind("other", PigeonMeta)

    @attrs.frozen
    class Rival:
        source: ClassVar[str] = "pigeon"

    with pytest.raises(OperadError, match=r"claimed twice: by .*PigeonMeta and by .*Rival"):
        EnvelopeKinds([EnvelopeKind("pigeon", PigeonMeta), EnvelopeKind("pigeon", Rival)])
    assert KINDS.sources == ("local", "pigeon")
    assert "pigeon" in KINDS
    assert KINDS.get("nothing") is None


@attrs.frozen
class FlagMeta:
    source: ClassVar[str] = "flag"
    is_error: bool = False
    content: list[dict[str, Any]] = attrs.field(factory=list)


@pytest.mark.parametrize("meta", [{"isError": "false"}, {"content": "abc"}, {"isError": 1}])
def test_metadata_from_the_wire_are_checked_and_not_coerced(meta: dict[str, Any]) -> None:
    kinds = EnvelopeKinds([EnvelopeKind("flag", FlagMeta)])
    wrong = "SERIALIZATION_ERROR: not a response envelope: meta does not fit .*FlagMeta"
    with pytest.raises(CallError, match=wrong):
        kinds.from_wire({"data": 1, "meta": {"source": "flag", **meta}})
    assert kinds.from_wire({"data": 1, "meta": {"source": "flag", "isError": True}}).meta == FlagMeta(True)


def test_an_envelope_is_as_old_as_now_or_as_it_says() -> None:
    before = time.time_ns() // 1_000_000
    made = local_envelope(1, "a.b").meta.timestamp
    assert before <= made <= time.time_ns() // 1_000_000
    assert local_envelope(1, "a.b", 0).meta.timestamp == 0


def test_an_envelope_of_an_unknown_kind_is_kept_as_it_came_and_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kinds, fields = EnvelopeKinds(), {"source": "http", "encoding": "base64", "n": 1}
    made = kinds.from_wire({"data": "no base64!", "meta": fields})
    assert (made.data, made.meta.to_wire()) == ("no base64!", fields)
    with pytest.raises(TypeError):
        made.meta.fields["n"] = 2
    assert kinds.from_wire({"data": "YQ==", "meta": fields}).data == b"a"
    assert kinds.passes(made) is True
    assert kinds.is_error(made) is False
    assert kinds.passes(local_envelope(1, "a.b")) is False
    (warning,) = caplog.messages
    assert "pip install operad-openapi" in warning
    caplog.clear()
    for number in range(200):
        kinds.from_wire({"data": 1, "meta": {"source": f"s{number}"}})
    assert len(caplog.messages) == 99, "100 sources are warned of"
    assert "install the plugin that declares it" in caplog.text


def test_bytes_of_every_kind_are_read_back() -> None:
    pigeon = ResponseEnvelope(b"a", PigeonMeta(1.5))
    assert KINDS.from_wire(pigeon.to_wire()) == pigeon
    for meta in (pigeon.to_wire()["meta"], {**local_envelope(1, "a.b").to_wire()["meta"], "encoding": "base64"}):
        for data, why in ((1, "data: expected a string"), ("!", "data is not valid base64")):
            with pytest.raises(CallError, match=f"SERIALIZATION_ERROR: not a response envelope: {why}"):
                KINDS.from_wire({"data": data, "meta": meta})


@attrs.frozen
class Own:
    value: int

    def to_wire(self) -> list[int]:
        return [self.value]

    @classmethod
    def from_wire(cls, wire: list[int]) -> Own:
        return cls(wire[0])


@attrs.frozen
class OwnMeta:
    source: ClassVar[str] = "own"
    own: Own


def test_a_part_of_metadata_may_have_a_json_form_of_its_own() -> None:
    envelope = ResponseEnvelope(1, OwnMeta(Own(3)))
    assert envelope.to_wire()["meta"] == {"source": "own", "own": [3]}
    assert EnvelopeKinds([EnvelopeKind("own", OwnMeta)]).from_wire(envelope.to_wire()) == envelope


def test_json_of_the_strict_profile_is_read_back_and_other_text_is_an_error() -> None:
    assert from_json(b'{"a":[1,"x"]}') == from_json('{"a":[1,"x"]}') == {"a": [1, "x"]}
    for text, why in (
        ("[" * 100_000, "nested too deeply"), ('"\ud800"', "not valid Unicode"), ("NaN", "strict profile"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=why):
            from_json(text)
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CallError, match="nested too deeply for JSON"):
        to_json(deep)


async def test_a_handler_s_envelope_of_an_unknown_kind_is_passed_on_and_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = ResponseEnvelope(1, OpaqueMeta("strange", {"source": "strange"}))
    assert await registry_of(op=giving(made)).execute("t.op") is made
    assert "no plugin declares the envelope source 'strange'" in caplog.text
