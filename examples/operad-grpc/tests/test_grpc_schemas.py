"""Schemas of messages against ProtoJSON itself: what the schema accepts, protobuf parses, and the other way round."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import json_format
from loft import message, pool, serve_loft
from operad_grpc.schemas import input_schema, output_schema

from operad import CallError, OperationRegistry, from_schema, load_plugins
from operad_testing import run

EVERYTHING = pool().FindMessageTypeByName("loft.v1.Everything")
INPUT = from_schema(input_schema(EVERYTHING))
OUTPUT = from_schema(output_schema(EVERYTHING))

GOOD: list[dict[str, Any]] = [
    {},
    {"aDouble": 1.5, "aFloat": 3, "anInt32": -1, "aUint32": 2**32 - 1},
    {"aDouble": "NaN", "aFloat": "-Infinity"},
    {"anInt64": str(-(2**63)), "aUint64": str(2**64 - 1)},
    {"anInt64": 2**60, "aUint64": 2**64 - 1},
    {"aBool": True, "aString": "ü", "someBytes": "AAH/"},
    {"anEnum": "GREY", "enums": ["GREY", 2, "COLOUR_UNSPECIFIED"]},
    {"byName": {"a": {"ring": "1"}}, "byNumber": {"-7": "x"}, "byFlag": {"true": "yes"}},
    {"maybe": 0},
    {"chosenText": "x"},
    {"chosenNumber": "12"},
    {"chosenBird": {"ring": "b", "chicks": [{"ring": "c"}]}},
    {"at": "2026-01-02T03:04:05.678Z", "lasts": "1.500s"},
    {"object": {"a": [1, None, {"b": True}]}, "value": [1, "x"], "list": [1, {}]},
    {"value": None},
    {"any": {"@type": "type.googleapis.com/loft.v1.Bird", "ring": "a"}},
    {"mask": "aBool,anEnum", "wrapped": "5", "empty": {}, "nothing": None},
    {"inner": {"inner": {"inner": {"aString": "deep"}}}, "calledThis": "n"},
]
BAD: list[dict[str, Any]] = [
    {"anInt32": 2**31},
    {"aUint32": -1},
    {"anInt64": "many"},
    {"anInt32": "x"},
    {"aBool": "perhaps"},
    {"anEnum": "PURPLE"},
    {"chosenText": "x", "chosenNumber": "1"},
    {"chosenText": "x", "chosenBird": {}},
    {"byNumber": {"x": "y"}},
    {"byFlag": {"perhaps": "y"}},
    {"lasts": "soon"},
    {"unknownField": 1},
    {"enums": "GREY"},
    {"inner": {"inner": {"nope": 1}}},
]


@pytest.mark.parametrize("value", GOOD)
def test_what_protobuf_parses_the_schema_accepts_and_both_agree_on_the_way_back(value: dict[str, Any]) -> None:
    assert not INPUT.errors(value)
    parsed = json_format.ParseDict(value, message("Everything")(), descriptor_pool=pool())
    written = json_format.MessageToDict(parsed, always_print_fields_with_no_presence=True, descriptor_pool=pool())
    assert not OUTPUT.errors(written), written
    assert OUTPUT.cast(written) == written  # the result pipeline must not change what arrived


@pytest.mark.parametrize("value", BAD)
def test_what_protobuf_refuses_the_schema_refuses(value: dict[str, Any]) -> None:
    assert INPUT.errors(value)
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict(value, message("Everything")(), descriptor_pool=pool())


def test_what_only_protobuf_knows_to_be_wrong_is_a_validation_error_too() -> None:
    async def body() -> None:
        async with serve_loft() as (target, _), OperationRegistry(load_plugins(only=["grpc"])) as registry:
            await registry.load("grpc", namespace="g", target=target)
            for value in ({"at": "yesterday"}, {"any": {"@type": "type.googleapis.com/no.Such"}}):
                with pytest.raises(CallError) as caught:
                    await registry.execute("g.Loft.Echo", value)
                assert caught.value.code == "VALIDATION_ERROR"

    run(body())


@pytest.mark.parametrize("value", GOOD)
def test_messages_arrive_as_they_were_sent(value: dict[str, Any]) -> None:
    async def body() -> None:
        async with serve_loft() as (target, _), OperationRegistry(load_plugins(only=["grpc"])) as registry:
            await registry.load("grpc", namespace="g", target=target)
            data = (await registry.execute("g.Loft.Echo", value)).data
            again = json_format.ParseDict(data, message("Everything")(), descriptor_pool=pool())
            assert again == json_format.ParseDict(value, message("Everything")(), descriptor_pool=pool())

    run(body())
