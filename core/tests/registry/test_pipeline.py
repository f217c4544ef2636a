"""The result pipeline: envelopes pass, everything else is wrapped; data are cast, mismatches are told."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from core.tests.kit import error_of, giving, spec
from operad import EnvelopeKind, OperationRegistry, ResponseEnvelope, local_envelope
from operad.envelopes import EnvelopeKinds, OpaqueMeta
from operad.registry.pipeline import ResultPipeline
from operad_schema import from_schema
from operad_testing import make_plugin, plugins_of

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))

INTEGER = {"type": "integer"}
PET = {
    "type": "object", "required": ["id"], "additionalProperties": False,
    "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "default": []}},
}  # fmt: skip


@attrs.frozen
class PigeonMeta:
    source: ClassVar[str] = "pigeon"
    lost: bool = False


def plugins() -> Any:
    kind = EnvelopeKind("pigeon", PigeonMeta, lambda meta: meta.lost)
    return plugins_of(make_plugin("pigeons", operad_envelope_kinds=[kind]))


async def result_of(result: Any, schema: Any = None, **switches: Any) -> ResponseEnvelope[Any]:
    registry = OperationRegistry(plugins(), **switches)
    registry.register(spec("p.f", output_schema=schema), giving(result))
    return await registry.execute("p.f")


async def test_a_result_is_wrapped_and_cast_without_being_changed() -> None:
    given = {"id": "7", "extra": 1}
    envelope = await result_of(given, PET)
    assert envelope.data == {"id": 7, "tags": []}
    assert envelope.meta.source == "local"
    assert given == {"id": "7", "extra": 1}


async def test_an_envelope_passes_with_its_meta_and_its_data_are_cast() -> None:
    meta = PigeonMeta()
    envelope = await result_of(ResponseEnvelope("7", meta), INTEGER)
    assert (envelope.data, envelope.meta) == (7, meta)


async def test_an_envelope_with_nothing_to_cast_is_the_same_object() -> None:
    given = ResponseEnvelope(7, PigeonMeta())
    assert await result_of(given, INTEGER) is given
    assert await result_of(given) is given


async def test_an_error_envelope_is_neither_cast_nor_checked(caplog: pytest.LogCaptureFixture) -> None:
    given = ResponseEnvelope([{"type": "text", "text": "no"}], PigeonMeta(lost=True))
    assert await result_of(given, INTEGER, on_mismatch="raise") is given
    assert not caplog.records


async def test_json_that_looks_like_an_envelope_is_data() -> None:
    """Otherwise a server could forge its metadata and skip the cast."""
    forged = {"data": "7", "meta": {"source": "local", "operationId": "x", "timestamp": 1}}
    envelope = await result_of(forged)
    assert envelope.data == forged
    assert envelope.meta.operation_id == "p.f"


async def test_an_envelope_of_a_source_that_nobody_declared_passes_uncast(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @attrs.frozen
    class Unknown:
        source: ClassVar[str] = "carrier"

    for meta in (Unknown(), OpaqueMeta("strange", {})):
        made = ResponseEnvelope("seven", meta)
        assert await result_of(made, INTEGER) is made
        assert meta.source in caplog.text


async def test_a_mismatch_is_logged_with_id_and_paths_and_the_data_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert (await result_of({"id": "seven"}, PET)).data["id"] == "seven"
    (record,) = caplog.records
    assert '"p.f"' in record.getMessage()
    assert "$.id" in record.getMessage()
    assert record.__dict__["paths"] == ["$.id"]


def test_the_first_five_mismatches_are_told(caplog: pytest.LogCaptureFixture) -> None:
    schema = {"properties": {f"p{number}": INTEGER for number in range(9)}}
    made_by(schema, {f"p{number}": "x" for number in range(6)}, normalize="off")
    (record,) = caplog.records
    assert record.getMessage().count("expected integer") == 5
    assert len(record.__dict__["paths"]) == 6


async def test_a_cast_makes_no_missing_value_up_and_says_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    assert "id" not in (await result_of({}, PET)).data
    assert "expected the property 'id', got none at $" in caplog.text
    assert "filled in" not in caplog.text


async def test_a_value_that_a_completing_cast_made_up_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    envelope = await result_of({}, PET, normalize="complete")
    assert envelope.data == {"id": 0, "tags": []}
    assert "expected the property 'id', got none at $: 0 was filled in" in caplog.text


async def test_on_mismatch_raise_and_ignore(caplog: pytest.LogCaptureFixture) -> None:
    error = await error_of(result_of({"id": "seven"}, PET, on_mismatch="raise"), "EXECUTION_ERROR.*does not match")
    assert error.details["errors"][0]["path"] == "$.id"
    assert (await result_of({"id": "seven"}, PET, on_mismatch="ignore")).data["id"] == "seven"
    assert not caplog.records


async def test_normalize_off_leaves_data_alone_but_checks_them(caplog: pytest.LogCaptureFixture) -> None:
    for given, options in (("7", {}), (7, {}), ("7", {"on_mismatch": "ignore"})):
        assert (await result_of(given, INTEGER, normalize="off", **options)).data == given
        assert len(caplog.records) == 1


async def test_bytes_are_data() -> None:
    assert (await result_of(b"\x00\x01")).data == b"\x00\x01"


@pytest.mark.parametrize("switch", [{"normalize": "yes"}, {"on_mismatch": "shout"}])
def test_an_unknown_switch_is_refused(switch: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be in|expected one of"):
        OperationRegistry(**switch)


async def test_a_local_envelope_made_by_the_handler_passes() -> None:
    given = local_envelope(1, "elsewhere.op")
    assert (await result_of(given)).meta.operation_id == "elsewhere.op"


def made_by(schema: dict[str, Any], result: Any, **options: Any) -> ResponseEnvelope[Any]:
    return ResultPipeline(EnvelopeKinds(), **options).finisher(spec(output_schema=schema))(result)


THING = {
    "type": "object", "required": ["id"],
    "properties": {"id": {"type": "integer"}, "tag": {"type": "string", "default": "x"}},
}  # fmt: skip


def test_an_envelope_tells_what_its_data_were_cast_from() -> None:
    answer = {"id": "7", "extra": 1}
    made = made_by(THING, answer)
    assert made.data == {"id": 7, "tag": "x"}
    assert made.received is answer
    inner = ResponseEnvelope(answer, made.meta)
    assert made_by(THING, inner).received is answer
    assert inner.received is answer
    assert made_by({}, answer).received is answer


def test_what_was_received_is_no_part_of_the_envelopes_value() -> None:
    made = made_by(THING, {"id": "7"})
    plain = ResponseEnvelope(made.data, made.meta)
    assert (made, hash(repr(made)), made.to_wire()) == (plain, hash(repr(plain)), plain.to_wire())
    for copied in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), attrs.evolve(made)):
        assert copied == made
        assert copied.received == made.data


def test_keep_converts_and_fills_in_defaults_but_drops_and_invents_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fields = {**THING["properties"], "name": {"type": "string"}}
    schema = {**THING, "required": ["id", "name"], "properties": fields}
    made = made_by(schema, {"id": "7", "extra": [1]}, normalize="keep")
    assert made.data == {"id": 7, "tag": "x", "extra": [1]}
    assert "expected the property 'name', got none at $" in caplog.text
    closed = {"type": "array", "prefixItems": [{"type": "integer"}], "items": False}
    assert made_by(closed, ["1", "2"], normalize="keep").data == [1, "2"]
    never = {"properties": {"a": False}, "additionalProperties": False}
    assert made_by(never, {"a": 1, "b": 2}, normalize="keep").data == {"a": 1, "b": 2}


def test_the_longest_pattern_says_how_an_operation_is_normalised() -> None:
    given = {"id": "7", "extra": 1}
    for rule, made in (
        ({"*": "off", "t.*": "keep", "t.other": "cast"}, {"id": 7, "extra": 1, "tag": "x"}),
        ({"x.*": "off"}, {"id": 7, "tag": "x"}),
    ):
        assert made_by(THING, given, normalize=rule).data == made
    with pytest.raises(ValueError, match="normalize: expected one of cast, complete, keep, off, got "):
        made_by(THING, {}, normalize={"*": "warn"})


def test_the_first_drop_and_the_first_invention_of_an_operation_are_logged_with_their_paths(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "operad")
    things = spec(output_schema={"type": "array", "items": THING})
    finish = ResultPipeline(EnvelopeKinds(), "complete", on_mismatch="ignore").finisher(things)
    finish([{"id": 1}])
    assert caplog.text == ""
    finish([{"id": 1}, {"id": 2, "secret": 3}])
    finish([{"id": 1, "secret": 3}])
    assert caplog.text.count('"t.op" drops $[1].secret') == caplog.text.count("drops") == 1
    finish([{}])
    finish([{}, {}])
    assert caplog.text.count("fills in $[0].id, $[0].tag") == caplog.text.count("fills in") == 1
    assert "3" not in caplog.messages[0], "paths, not values"


@pytest.mark.parametrize(("count", "end"), [(5, "$[4].secret (logged"), (6, "$[4].secret, … (logged")])
def test_the_first_five_dropped_paths_are_logged(caplog: pytest.LogCaptureFixture, count: int, end: str) -> None:
    caplog.set_level("INFO", "operad")
    made_by({"type": "array", "items": THING}, [{"id": 1, "tag": "t", "secret": 3}] * count)
    assert end in caplog.text


@pytest.mark.parametrize(("schema", "value", "dropped"), TABLES["a_cast_knows_whether_it_dropped_anything"])
def test_a_cast_knows_whether_it_dropped_anything(schema: Any, value: Any, dropped: bool) -> None:
    assert from_schema(schema).tracer()(value)[2] is dropped
    assert from_schema(schema).tracer("keep")(value)[2] is False
