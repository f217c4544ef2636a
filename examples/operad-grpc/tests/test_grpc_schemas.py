"""Schemas of messages against ProtoJSON itself: what the schema accepts, protobuf parses, and the other way round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from loft import loaded, message, pool
from operad_grpc.schemas import input_schema, output_schema

from operad import CallError, from_schema

EVERYTHING = pool().FindMessageTypeByName("loft.v1.Everything")
INPUT = from_schema(input_schema(EVERYTHING))
OUTPUT = from_schema(output_schema(EVERYTHING))

MESSAGES: dict[str, list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("messages.json").read_text("utf-8")
)


@pytest.mark.parametrize("value", MESSAGES["good"])
def test_what_protobuf_parses_the_schema_accepts_and_both_agree_on_the_way_back(value: dict[str, Any]) -> None:
    assert not INPUT.errors(value)
    parsed = json_format.ParseDict(value, message("Everything")(), descriptor_pool=pool())
    written = json_format.MessageToDict(parsed, always_print_fields_with_no_presence=True, descriptor_pool=pool())
    assert not OUTPUT.errors(written), written
    assert OUTPUT.cast(written) == written  # the result pipeline must not change what arrived


@pytest.mark.parametrize("value", MESSAGES["bad"])
def test_what_protobuf_refuses_the_schema_refuses(value: dict[str, Any]) -> None:
    assert INPUT.errors(value)
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict(value, message("Everything")(), descriptor_pool=pool())


async def test_what_only_protobuf_knows_to_be_wrong_is_a_validation_error_too() -> None:
    async with loaded() as (registry, _):
        for value in ({"at": "yesterday"}, {"any": {"@type": "type.googleapis.com/no.Such"}}):
            with pytest.raises(CallError) as caught:
                await registry.execute("g.Loft.Echo", value)
            assert caught.value.code == "VALIDATION_ERROR"


@pytest.mark.parametrize("value", MESSAGES["good"])
async def test_messages_arrive_as_they_were_sent(value: dict[str, Any]) -> None:
    async with loaded() as (registry, _):
        data = (await registry.execute("g.Loft.Echo", value)).data
        again = json_format.ParseDict(data, message("Everything")(), descriptor_pool=pool())
        assert again == json_format.ParseDict(value, message("Everything")(), descriptor_pool=pool())
