"""The result pipeline: envelopes pass, everything else is wrapped; data are cast, mismatches are told."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import attrs
import pytest

from operad import CallError, EnvelopeKind, OperationRegistry, OperationSpec, ResponseEnvelope, local_envelope
from operad.testing import make_plugin, plugins_of

INTEGER = {"type": "integer"}
PET = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "default": []}},
    "required": ["id"],
    "additionalProperties": False,
}


@attrs.frozen
class PigeonMeta:
    source: ClassVar[str] = "pigeon"
    lost: bool = False


def plugins() -> Any:
    kind = EnvelopeKind("pigeon", PigeonMeta, lambda meta: meta.lost)
    return plugins_of(make_plugin("pigeons", operad_envelope_kinds=[kind]))


async def result_of(result: Any, schema: Any = None, **switches: Any) -> ResponseEnvelope[Any]:
    async def handler(input: Any, context: Any) -> Any:
        return result

    registry = OperationRegistry(plugins(), **switches)
    registry.register(OperationSpec(namespace="p", name="f", output_schema=schema), handler)
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

    made = ResponseEnvelope("seven", Unknown())
    assert await result_of(made, {"type": "integer"}) is made
    assert "carrier" in caplog.text


async def test_a_mismatch_is_logged_with_id_and_paths_and_the_data_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        envelope = await result_of({"id": "seven"}, PET)
    assert envelope.data["id"] == "seven"
    (record,) = caplog.records
    assert '"p.f"' in record.getMessage()
    assert "$.id" in record.getMessage()
    assert record.__dict__["paths"] == ["$.id"]


async def test_a_value_that_the_cast_had_to_invent_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    envelope = await result_of({}, PET)
    assert envelope.data == {"id": 0, "tags": []}
    assert "'id'" in caplog.text


async def test_on_mismatch_raise_and_ignore(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(CallError, match="EXECUTION_ERROR.*does not match") as caught:
        await result_of({"id": "seven"}, PET, on_mismatch="raise")
    assert caught.value.details is not None
    assert caught.value.details["errors"][0]["path"] == "$.id"
    assert (await result_of({"id": "seven"}, PET, on_mismatch="ignore")).data["id"] == "seven"
    assert not caplog.records


async def test_normalize_off_leaves_data_alone_but_checks_them(caplog: pytest.LogCaptureFixture) -> None:
    assert (await result_of("7", INTEGER, normalize="off")).data == "7"
    assert len(caplog.records) == 1
    assert (await result_of(7, INTEGER, normalize="off")).data == 7
    assert (await result_of("7", INTEGER, normalize="off", on_mismatch="ignore")).data == "7"
    assert len(caplog.records) == 1


async def test_bytes_are_data() -> None:
    assert (await result_of(b"\x00\x01")).data == b"\x00\x01"


@pytest.mark.parametrize("switch", [{"normalize": "yes"}, {"on_mismatch": "shout"}])
def test_an_unknown_switch_is_refused(switch: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be in"):
        OperationRegistry(**switch)


async def test_a_local_envelope_made_by_the_handler_passes() -> None:
    given = local_envelope(1, "elsewhere.op")
    assert (await result_of(given)).meta.operation_id == "elsewhere.op"
