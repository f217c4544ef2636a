"""What a call costs is bounded, however large or hostile a schema, a pattern or a value is."""

import logging
from typing import Any

import pytest

from operad_schema import from_schema
from operad_schema.limits import DEFAULT, Limits
from operad_schema.zeros import Fill


def test_text_of_any_length_is_checked_by_its_pattern() -> None:
    schemas: list[Any] = [
        {"pattern": "^a{0,4096}a*[bc]$"},
        {"patternProperties": {"^a{0,4096}a*[bc]$": {}}, "additionalProperties": False},
        {"propertyNames": {"pattern": "^a{0,4096}a*[bc]$"}},
    ]
    for schema in schemas:
        compiled = from_schema({"type": ["string", "object"], **schema})
        text = "a" * 50_000
        value = text if "pattern" in schema else {text: 1}
        assert not compiled.is_valid(value)
        assert compiled.errors(value)
        assert compiled.is_valid(text + "b" if "pattern" in schema else {text + "b": 1})


def test_many_strings_draw_on_one_budget_and_the_error_names_it() -> None:
    compiled = from_schema(
        {"items": {"pattern": "([a-z]{1,9}-?)*[0-9]$"}}, limits=Limits(max_pattern_steps=1_000_000)
    )
    text = "a" * 3_000
    for _ in range(2):
        assert compiled.is_valid([text + "1"]), "the budget is each call's own"
        assert not compiled.is_valid([text + "1"] * 20)
        [error] = compiled.errors([text + "1"] * 20)
        assert error.keyword == "max_pattern_steps"
        assert (
            "a value whose patterns take at most 1000000 steps (max_pattern_steps), got more at $" in error.message
        )
        assert [error.path for error in compiled.errors([text + "1", text])] == ["$[1]"]
    value = [text + "1"] * 20
    assert compiled.cast(value) is not None, "a cast never raises"
    assert compiled.warnings == ()


def test_ordinary_lists_of_strings_are_checked_to_the_last() -> None:
    patterns = {
        "https?://.+": "https://example.com/" + "x" * 100,
        "^[^@]+@[a-z.]{1,60}$": "somebody.with.a.name@example.com",
        r"^(acct|cus)_[A-Za-z0-9]+$": "cus_" + "A1b2" * 10,
        r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$": "2024-01-02T03:04:05.678+00:00",
    }
    for pattern, good in patterns.items():
        compiled = from_schema({"items": {"pattern": pattern}})
        assert compiled.warnings == ()
        assert compiled.is_valid([good] * 10_000)
        assert not compiled.is_valid([good] * 9_999 + ["\n"])


def zeros_that_double(levels: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"d{levels}": {"type": "integer"}}
    for level in range(levels):
        below = {"$ref": f"#/$defs/d{level + 1}"}
        defs[f"d{level}"] = {"type": "object", "properties": {"a": below, "b": below}, "required": ["a", "b"]}
    return {"items": {"$ref": "#/$defs/d0"}, "$defs": defs}


def test_zero_values_end_at_their_bound_and_one_error_says_so() -> None:
    compiled = from_schema(zeros_that_double(12))
    value: list[Any] = [{} for _ in range(130)]
    assert len(repr(compiled.cast(value, complete=True))) < 20 * DEFAULT.max_filled
    first = compiled.mismatches(value, "complete")[0]
    assert (first.keyword, first.path) == ("max_filled", "$")
    assert (
        first.message == "expected at most 10000 missing parts (max_filled), got more at $: the rest stays absent"
    )


def test_defaults_that_are_scalars_are_filled_in_however_many() -> None:
    schema = {"items": {"properties": {name: {"default": 0} for name in "abcdefghij"}}}
    assert from_schema(schema).cast([{}] * 3_000)[-1] == dict.fromkeys("abcdefghij", 0)


def test_errors_are_found_without_a_walk_through_what_is_valid() -> None:
    row = {"type": "object", "properties": {name: {"type": "integer"} for name in "abcdefghij"}}
    compiled = from_schema({"items": {"items": row}})
    rows: list[list[dict[str, Any]]] = [[dict.fromkeys("abcdefghij", 1)] * 100 for _ in range(100)]
    rows[99] = [*rows[99][:99], {"a": 1, "j": "x"}]
    assert [error.path for error in compiled.errors(rows)] == ["$[99][99].j"]


def test_a_search_for_errors_ends_with_what_it_has() -> None:
    wide = {
        "anyOf": [{"allOf": [{"type": "object", "minProperties": i + j} for j in range(40)]} for i in range(2, 60)]
    }
    compiled = from_schema({"items": {"items": wide}})
    value = [[{"a": 1}] * 60] * 60
    assert compiled.errors(value)


def test_an_integer_that_python_would_not_write_out_is_ignored_and_said() -> None:
    endless = 10**5_000
    compiled = from_schema({"maximum": endless, "enum": [endless], "default": endless})
    assert compiled.is_valid(endless * 2)
    assert compiled.cast(1) == 1
    assert compiled.errors(1) == []
    assert len(compiled.warnings) == 3
    assert from_schema({"type": "string"}).errors(endless)[0].got == "int"
    assert from_schema({"maximum": 3}).errors(endless) != []


def test_a_lone_surrogate_in_a_name_does_not_fail_the_bundle() -> None:
    definitions = {"\ud800": {"type": "integer"}, "?": {"type": "string"}}
    schema = {"items": {"$ref": "#/$defs/\ud800"}, "not": {"$ref": "#/$defs/?"}, "$defs": definitions}
    bundled = from_schema(schema).bundled()
    assert isinstance(bundled, dict)
    assert "\ud800" not in repr(bundled)
    assert from_schema(bundled).is_valid([1])
    assert not from_schema(bundled).is_valid(["x"])


def test_a_pattern_that_is_not_checked_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for title in "abc":
            from_schema({"title": title, "items": {"pattern": "^(?!once)"}}).is_valid(["once"])
            from_schema({"title": title, "properties": {"p": {"pattern": "^(?!once)"}}}).is_valid(["once"])
    assert caplog.text.count("pattern '^(?!once)' is not checked: look-around") == 1


def test_the_bounds_are_what_the_documentation_says() -> None:
    assert Limits() == DEFAULT == Limits(
        max_schema_bytes=1024 * 1024, max_schema_nodes=20_000, max_schema_depth=64, max_schema_in_place=10_000,
        max_schema_enum=5_000, max_schema_indexed=100_000,
        max_check_steps=30_000, max_pattern_length=1_024, max_pattern_string=4_096, max_pattern_steps=200_000_000, max_data_depth=200,
        max_fill=10_000, max_filled=10_000, max_recasts=100, max_schema_errors=20, max_error_steps=20_000,
    )  # fmt: skip
    lifted = DEFAULT.trusting()
    assert (lifted.max_schema_nodes, lifted.max_schema_depth) == (float("inf"), 64)
    assert Limits(max_schema_bytes=1).max_schema_bytes == 1


def test_a_value_that_takes_too_many_steps_is_not_valid_and_the_error_names_the_limit() -> None:
    none_of_many = {"items": {"not": {"anyOf": [{"const": i, "items": {}} for i in range(200)]}}}
    compiled = from_schema(none_of_many)
    assert compiled.is_valid([-1] * 100)
    assert not compiled.is_valid([-1] * 1_000)
    [error] = compiled.errors([-1] * 1_000)
    assert error.keyword == "max_check_steps"
    assert (
        "at most 30000 steps of checking (max_check_steps), got more at $; [registry.limits] can" in error.message
    )
    assert from_schema(none_of_many, limits=Limits(max_check_steps=10_000_000)).is_valid([-1] * 1_000)


def test_what_a_crowd_refers_to_is_counted_although_it_was_read_before() -> None:
    document = {
        "$defs": {
            "B": {"allOf": [{"items": {"type": "integer"}}] * 30},
            "A": {"allOf": [{"items": {"$ref": "#/$defs/B"}}] * 30},
        }
    }
    steps = Limits(max_check_steps=10)

    def part(name: str) -> Any:
        return from_schema(document["$defs"][name], document=document, pointer=f"/$defs/{name}", limits=steps)

    inner = part("B")
    assert inner.is_valid([1] * 100)
    assert not part("A").is_valid([[1] * 100])


def test_a_cast_that_takes_too_many_steps_leaves_the_value_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    compiled = from_schema({"items": {"anyOf": [{"type": "integer", "minimum": i} for i in range(400)]}})
    value = ["1"] * 2_000
    assert compiled.cast(value) is value
    assert "beyond max_check_steps" in caplog.text
    assert compiled.cast(["1"] * 20) == [1] * 20


def test_a_search_for_errors_that_runs_out_of_steps_tells_what_it_has() -> None:
    compiled = from_schema({"anyOf": [{"items": {"type": "string"}}, {"items": {"type": "null"}}] * 100})
    value = [1] * 48
    [error] = compiled.errors(value)
    assert error.keyword == "anyOf"
    assert "expected string, got int at $[0]" in error.message


def test_members_of_a_large_enum_are_found_not_searched_for() -> None:
    compiled = from_schema({"items": {"enum": list(range(5_000))}})
    assert compiled.cast(["4999", 4999.0, "x", True] * 2_000)[:4] == [4999, 4999, "x", 1]
    assert compiled.is_valid([4999] * 5_000)
    arrays = from_schema({"items": {"enum": [[0, i] for i in range(2_000)]}})
    assert arrays.is_valid([[0, i] for i in range(2_000)])
    assert not arrays.is_valid([[0, True]])


def test_objects_of_few_of_many_properties_are_read_by_what_they_have() -> None:
    wide = {f"p{i}": {"type": "integer"} for i in range(400)}
    compiled = from_schema({"items": {"properties": wide, "required": ["p7"]}})
    assert compiled.is_valid([{"p7": 1}] * 3_000)
    assert not compiled.is_valid([{"p7": "x"}])
    assert not compiled.is_valid([{"p8": 1}])
    assert not compiled.is_valid([{"p7": 1, "p8": "x"}])


def test_scalar_defaults_beyond_what_is_plausible_for_the_value_stay_absent() -> None:
    schema = {"items": {"properties": {f"p{i}": {"default": i} for i in range(40)}}}
    limits = Limits(max_filled=10)
    assert from_schema(schema, limits=limits).cast([{}] * 2) == [{f"p{i}": i for i in range(40)}] * 2, "80 of 100"
    made = from_schema(schema, limits=limits).cast([{}] * 100)
    assert len(made[0]) == 40
    assert made[-1] == {}
    assert sum(map(len, made)) == 10 * 101, "ten for each part of the value"


def test_where_nothing_more_may_be_filled_in_no_further_object_is_looked_at_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    fill = Fill.__call__
    monkeypatch.setattr(
        Fill, "__call__", lambda self, out, key, call: asked.append(key) or fill(self, out, key, call)
    )
    properties = {f"p{number}": {"default": 0} for number in range(1000)}
    found = from_schema({"items": {"properties": properties}}, limits=Limits(max_filled=10)).cast([{}] * 10)
    assert len(asked) == 1000
    assert [bool(each) for each in found] == [True] + [False] * 9
