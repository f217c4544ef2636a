"""Operations as tools of each model API, within what that API publishes of its limits."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from operad import (
    AccessControl,
    ConfigError,
    Identity,
    OperationRegistry,
    OperationSpec,
    from_schema,
    load_plugins,
)
from operad_llm import tools
from operad_llm.tools import FORMATS
from operad_testing import hostile_schemas
from plugins.llm.tests.limits import schema_of, within_limits

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))

DOCUMENTS = Path(os.environ.get("OPERAD_DOCUMENTS", "/nowhere")) / "specs"


def registry(**schemas: Any) -> OperationRegistry:
    made = OperationRegistry()
    for name, schema in schemas.items():
        spec = OperationSpec(namespace="m", name=name, description=f"Does {name}.", input_schema=schema)
        made.register(spec, lambda _input, context: None)
    return made


HARD = TABLES["hard"]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_every_schema_is_within_the_limits_that_the_format_publishes(format, strict):
    listed = tools(registry(**HARD), format, strict=strict)
    assert len(listed) == len(HARD)
    within_limits(listed, format)
    assert sorted(listed.names.values()) == sorted(f"m.{name}" for name in HARD)


@pytest.mark.parametrize("format", FORMATS)
def test_what_a_format_cannot_say_is_in_the_report(format):
    lost = {one.operation_id: one.lost for one in tools(registry(**HARD), format, strict=True).lossy}
    if format == "gemini":
        assert lost == {"m.plain": ("exclusiveMinimum",)}
    elif format == "mcp":
        assert lost == {}
    else:
        reasons = {
            "m.mapped": "not strict: expected an object with fixed properties, got a map of names; use a list of objects",
            "m.open": "not strict: expected a schema with a type, got one for any value; add a type",
            "m.none": "not strict: expected an object with properties, got one with any fields; declare its properties",
        }
        assert {id: lost[id][0] for id in reasons} == reasons
    if format == "anthropic":
        assert lost["m.odd"][-1].startswith("names of arguments: ")
        assert "not strict: expected a schema that does not contain itself; limit its depth" in lost["m.recursive"]


def test_strict_mode_of_openai_requires_everything_and_lets_what_was_optional_be_null():
    listed = tools(registry(t=TABLES["strict"]["given"]), strict=True)
    assert listed[0]["function"]["strict"] is True
    assert schema_of(listed[0]) == TABLES["strict"]["shown"]


def test_strict_mode_of_anthropic_tells_in_words_what_it_has_no_keyword_for():
    fields = {"n": {"type": "integer", "minimum": 1, "description": "How many."}}
    listed = tools(registry(t={"type": "object", "properties": fields}), "anthropic", strict=True)
    assert listed[0]["strict"] is True
    number = schema_of(listed[0])["properties"]["n"]
    assert number == {"type": "integer", "description": "How many.\n\n{minimum: 1}"}


def test_what_strict_mode_does_not_hold_the_model_to_is_in_the_report():
    fields = {
        "n": {"type": "integer", "minimum": 1},
        "l": {"type": "array", "items": {"type": "string", "format": "iri"}, "uniqueItems": True},
    }
    made = registry(t={"type": "object", "properties": fields})
    assert tools(made, "openai", strict=True).report[0].lost == ("not enforced: format, uniqueItems",)
    assert tools(made, "anthropic", strict=True).report[0].lost == ("not enforced: format, minimum, uniqueItems",)
    assert tools(made, "openai").lossy == []


def test_a_schema_is_only_changed_in_the_copy_that_is_shown():
    made = registry(**HARD)
    before = json.dumps([spec.input_schema.raw for spec in made.specs()])
    for format in FORMATS:
        tools(made, format, strict=True)
    assert json.dumps([spec.input_schema.raw for spec in made.specs()]) == before


def test_who_may_not_call_an_operation_gets_no_tool_of_it():
    made = registry(open=None)
    guard = AccessControl(required_scopes=("write",))
    made.register(OperationSpec(namespace="m", name="guarded", access_control=guard), lambda _input, context: None)
    assert list(tools(made).names.values()) == ["m.open"]
    assert len(tools(made, identity=Identity("me", {"write"}))) == 2
    assert len(tools(made, trusted=True)) == 2


def test_tools_are_chosen_by_patterns_and_by_the_words_of_a_prompt():
    made = registry(**dict.fromkeys(("create_order", "list_orders", "delete_user")))
    assert list(tools(made, include=["*order*"], exclude=["m.list*"]).names.values()) == ["m.create_order"]
    assert list(tools(made, query="create a new order", max_tools=1).names.values()) == ["m.create_order"]
    with pytest.raises(ConfigError, match=r'write \["…"\]'):
        tools(made, include="m.*")


def test_more_tools_than_a_request_takes_are_refused_with_a_way_out():
    made = registry(**{f"n{number}": None for number in range(129)})
    with pytest.raises(ConfigError, match="at most 128 tools for one request, got 129 operations"):
        tools(made)
    assert len(tools(made, max_tools=129)) == 129
    assert len(tools(made, "anthropic")) == 129
    with pytest.raises(ConfigError, match="expected one of"):
        tools(made, "cohere")


def test_a_name_means_the_same_operation_whatever_is_included_and_whoever_asks():
    made = registry(**{"a.b": None, "a/b": None})
    (alone,) = tools(made, include=["m.a.b"]).names
    assert tools(made).names[alone] == "m.a.b"


LARGE = [pytest.param(name, marks=pytest.mark.long) for name in ("stripe", "discord", "openai", "opencode")]


@pytest.mark.parametrize("name", ["petstore3", *LARGE])
async def test_the_operations_of_a_real_document_are_tools_of_every_format(name):
    if not DOCUMENTS.exists():
        pytest.skip("OPERAD_DOCUMENTS names no folder")
    async with OperationRegistry(load_plugins(only=["openapi"])) as made:
        path = str(DOCUMENTS / f"{name}.json")
        specs = await made.load("openapi", namespace="api", spec=path, base_url="http://127.0.0.1:9")
        for format in FORMATS:
            for strict in (False, True):
                listed = tools(made, format, strict=strict, max_tools=10_000)
                within_limits(listed, format)
                assert sorted(listed.names.values()) == sorted(spec.id for spec in specs)
                for tool in listed[:: max(1, len(listed) // 20)]:
                    assert from_schema(schema_of(tool)).is_valid([]) is False


HOSTILE = hostile_schemas()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("strict", [False, True])
def test_hostile_schemas_give_text_in_utf8_and_leave_the_other_tools(format, strict):
    made = tools(registry(good=HARD["plain"], **HOSTILE), format, strict=strict)
    assert json.loads(json.dumps(made, ensure_ascii=False, allow_nan=False).encode()) == made
    assert made.names.keys() == {"m_good", *(f"m_{name}" for name in HOSTILE)}
    lost = {one.operation_id: one.lost for one in made.lossy}
    assert "the schema: no such document" in lost["m.unbuilt"]
