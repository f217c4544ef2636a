"""What each keyword means, in every draft and every engine, and what is ignored, with a warning that says why."""

from typing import Any

import pytest

from operad_schema import from_schema

INTEGER = {"type": "integer"}

Case = tuple[Any, list[Any], list[Any]]
CASES: list[Case] = [
    (True, [1, None, {}], []),
    (False, [], [1, None, {}]),
    ({"type": "integer"}, [1, 1.0, -0.0, 10**30], [1.5, "1", True, None]),
    ({"type": "number"}, [1, 1.5], ["1", False]),
    ({"type": ["string", "null"]}, ["", None], [1, [], {}]),
    ({"type": "boolean"}, [True, False], [0, 1, "true"]),
    ({"type": "null"}, [None], [0, "", False]),
    ({"type": "array"}, [[], (1,)], [{}, "x"]),
    ({"type": "object"}, [{}], [[], None]),
    ({"const": 1}, [1, 1.0], [True, "1"]),
    ({"const": False}, [False], [0, None]),
    ({"const": {"a": [1]}}, [{"a": [1.0]}], [{"a": [True]}, {"a": [1], "b": 2}, {}]),
    ({"enum": ["a", "b"]}, ["a"], ["c", 1, ["a"]]),
    ({"enum": [[0], None]}, [[0], None, [0.0]], [[False], [], 0]),
    ({"enum": ["a"], "const": "b"}, [], ["a", "b"]),
    ({"enum": ["a", "b"], "const": "b"}, ["b"], ["a"]),
    ({"minimum": 2}, [2, 2.5, "x"], [1, 1.99]),
    ({"maximum": 2}, [2, -1], [2.01]),
    ({"exclusiveMinimum": 2}, [2.01], [2, 1]),
    ({"exclusiveMaximum": 2}, [1.99], [2]),
    ({"exclusiveMinimum": 1, "exclusiveMaximum": 3, "minimum": 2}, [2], [1, 1.5, 3]),
    ({"minLength": 2}, ["ab", "é" * 2, 5], ["a", ""]),
    ({"minLength": 2.0}, ["ab"], ["a"]),
    ({"maxLength": 1}, ["", "😀"], ["ab"]),
    ({"pattern": "b"}, ["abc", 1], ["ac"]),
    ({"type": "string", "pattern": "^a", "maxLength": 2}, ["a", "ab"], ["b", "abc", 1]),
    ({"items": INTEGER}, [[], [1, 2], "x"], [["a"], [1, "a"]]),
    ({"items": False}, [[]], [[1]]),
    ({"prefixItems": [INTEGER, {"type": "string"}]}, [[], [1], [1, "a", None]], [["a"], [1, 1]]),
    ({"prefixItems": [INTEGER], "items": {"type": "null"}}, [[1, None]], [[1, 1], [None]]),
    ({"prefixItems": [{}], "items": False}, [[], [1]], [[1, 2]]),
    ({"minItems": 1}, [[1], "x"], [[]]),
    ({"maxItems": 1}, [[], [1]], [[1, 2]]),
    ({"items": {}, "minItems": 0}, [[]], []),
    ({"uniqueItems": True}, [[1, True], [1, "1"], [{"a": 1}, {"a": 2}], [[]]], [[1, 1.0], [{"a": 1}, {"a": 1}]]),
    ({"uniqueItems": False}, [[1, 1]], []),
    ({"contains": INTEGER}, [[1], ["a", 1], "x"], [[], ["a"]]),
    ({"contains": INTEGER, "minContains": 0}, [[], ["a"]], []),
    ({"contains": INTEGER, "minContains": 2}, [[1, 2]], [[1], ["a", 1]]),
    ({"contains": INTEGER, "maxContains": 1}, [[1], [1, "a"]], [[], [1, 2]]),
    ({"minContains": 2}, [[]], []),
    ({"properties": {"a": INTEGER}}, [{}, {"a": 1}, {"b": "x"}, 5], [{"a": "x"}]),
    ({"properties": {"a": False}}, [{}, {"b": 1}], [{"a": 1}]),
    ({"required": ["a", "b"]}, [{"a": 1, "b": None}, []], [{}, {"a": 1}]),
    ({"required": []}, [{}], []),
    ({"properties": {"a": INTEGER}, "additionalProperties": False}, [{}, {"a": 1}], [{"b": 1}]),
    ({"properties": {"a": INTEGER}, "additionalProperties": INTEGER}, [{"b": 1}], [{"b": "x"}]),
    ({"patternProperties": {"^x": INTEGER}}, [{"x1": 1}, {"y": "a"}], [{"x1": "a"}]),
    ({"patternProperties": {"^x": INTEGER}, "additionalProperties": False}, [{"x": 1}], [{"y": 1}, {"x": "a"}]),
    ({"patternProperties": {"a": {"minimum": 3}, "b": {"maximum": 5}}}, [{"ab": 4}], [{"ab": 2}, {"ab": 6}]),
    ({"propertyNames": {"maxLength": 1}}, [{"a": 1}, 5], [{"ab": 1}]),
    ({"propertyNames": False}, [{}], [{"a": 1}]),
    ({"minProperties": 1}, [{"a": 1}, []], [{}]),
    ({"maxProperties": 1}, [{}, {"a": 1}], [{"a": 1, "b": 2}]),
    ({"dependentRequired": {"a": ["b"]}}, [{}, {"b": 1}, {"a": 1, "b": 2}], [{"a": 1}]),
    ({"dependentRequired": {"a": []}}, [{"a": 1}], []),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, [{}, {"a": 1, "b": 2}], [{"a": 1}]),
    ({"dependentSchemas": {"a": False}, "dependentRequired": {"a": ["b"]}}, [{}], [{"a": 1, "b": 1}]),
    ({"allOf": [INTEGER, {"minimum": 3}]}, [3], [2, "x"]),
    ({"anyOf": [INTEGER, {"minLength": 2}]}, [1, "ab"], ["a"]),
    ({"anyOf": [False, {"type": "null"}]}, [None], [1]),
    ({"oneOf": [INTEGER, {"minimum": 3}]}, [1, 3.5, "x"], [3]),
    ({"oneOf": [True, True, False]}, [], [1]),
    ({"not": INTEGER}, ["x"], [1]),
    ({"not": {}}, [], [1, "x"]),
    ({"if": INTEGER, "then": {"minimum": 3}, "else": {"minLength": 2}}, [3, "ab"], [2, "a"]),
    ({"if": INTEGER, "then": {"minimum": 3}}, [3, "a"], [2]),
    ({"if": INTEGER, "else": {"minLength": 2}}, [1, "ab"], ["a"]),
    ({"if": INTEGER}, [1, "a"], []),
    ({"then": False, "else": False}, [1], []),
    ({"unevaluatedProperties": False, "properties": {"a": {}}}, [{"a": 1}], [{"b": 1}]),
    ({"unevaluatedProperties": INTEGER, "patternProperties": {"^x": {}}}, [{"x": "a", "b": 1}], [{"b": "x"}]),
    ({"unevaluatedProperties": False, "allOf": [{"properties": {"a": {}}}]}, [{"a": 1}], [{"b": 1}]),
    ({"unevaluatedProperties": False, "allOf": [{"patternProperties": {"^x": {}}}]}, [{"x": 1}], [{"b": 1}]),
    ({"unevaluatedProperties": False, "allOf": [{"additionalProperties": True}]}, [{"b": 1}], []),
    ({"unevaluatedProperties": False, "allOf": [{"unevaluatedProperties": True}]}, [{"b": 1}], []),
    ({"unevaluatedProperties": False, "additionalProperties": INTEGER}, [{"b": 1}], [{"b": "x"}]),
    ({"unevaluatedProperties": False, "anyOf": [{"properties": {"a": INTEGER}}, {"properties": {"b": INTEGER}}]},
     [{"a": 1, "b": 1}, {"a": 1}, {"b": 1}], [{"c": 1}, {"a": 1, "b": "x"}]),
    ({"unevaluatedProperties": False, "if": {"required": ["a"]}, "then": {"properties": {"a": {}, "c": {}}}},
     [{"a": 1, "c": 1}, {}], [{"c": 1}, {"a": 1, "b": 1}]),
    ({"unevaluatedProperties": False, "dependentSchemas": {"a": {"properties": {"a": {}, "b": {}}}}},
     [{"a": 1, "b": 1}], [{"b": 1}]),
    ({"unevaluatedProperties": False, "not": {"properties": {"a": INTEGER}, "required": ["a"]}}, [{}], [{"a": "x"}]),
    ({"unevaluatedProperties": False, "$ref": "#/$defs/o", "$defs": {"o": {"properties": {"a": INTEGER}}}},
     [{"a": 1}], [{"a": "x"}, {"b": 1}]),
    ({"unevaluatedItems": False}, [[]], [[1]]),
    ({"unevaluatedItems": False, "prefixItems": [{}]}, [[1]], [[1, 2]]),
    ({"unevaluatedItems": False, "prefixItems": [{}], "allOf": [{"prefixItems": [{}, {}]}]}, [[1, 2]], [[1, 2, 3]]),
    ({"unevaluatedItems": False, "items": INTEGER}, [[1, 2]], [["x"]]),
    ({"unevaluatedItems": INTEGER, "prefixItems": [{}]}, [["x", 1]], [["x", "x"]]),
    ({"unevaluatedItems": False, "contains": INTEGER}, [[1]], [[1, "x"]]),
    ({"unevaluatedItems": False, "allOf": [{"items": INTEGER}]}, [[1, 2]], [["x"]]),
    ({"unevaluatedItems": False, "anyOf": [{"prefixItems": [INTEGER]}, {"prefixItems": [{}, INTEGER]}]},
     [[1], [1, 1], ["x", 1]], [["x", "x"], [1, 1, 1]]),
    ({"format": "email", "title": "x", "contentEncoding": "base64", "unknown": 5}, ["x", 1], []),
]  # fmt: skip
BESIDE: list[dict[str, Any]] = [{}, {"minProperties": 0}, {"contains": {}, "minContains": 0, "maxContains": 99}]


@pytest.mark.parametrize(("schema", "good", "bad"), CASES)
def test_a_keyword_means_the_same_in_every_engine(schema: Any, good: list[Any], bad: list[Any]) -> None:
    forms = [schema]
    if isinstance(schema, dict):
        mixes = [
            more
            for more in BESIDE
            if more.keys().isdisjoint({*schema, *(["minContains"] if "unevaluatedItems" in schema else [])})
        ]
        forms = [{**schema, **more} for more in mixes if not ("contains" in more and "unevaluatedItems" in schema)]
        forms += [{"allOf": [schema], **{key: schema[key] for key in ("$defs",) if key in schema}}]
    for form in forms or [schema]:
        compiled = from_schema(form)
        assert compiled.warnings == ()
        for value, valid in [*((one, True) for one in good), *((one, False) for one in bad)]:
            if (
                "contains" in (form if isinstance(form, dict) else {})
                and "contains" not in schema
                and isinstance(value, list | tuple)
            ):
                continue
            assert compiled.is_valid(value) is valid, (form, value)
            assert bool(compiled.errors(value)) is not valid, (form, value)


DRAFTS: list[tuple[str, dict[str, Any], list[Any], list[Any]]] = [
    ("draft4", {"minimum": 2, "exclusiveMinimum": True}, [2.1], [2, 1]),
    ("draft4", {"maximum": 2, "exclusiveMaximum": True}, [1], [2, 3]),
    ("draft4", {"maximum": 2, "exclusiveMaximum": False}, [2], [3]),
    ("draft4", {"exclusiveMaximum": True}, [5], []),
    ("draft4", {"const": 1, "contains": False, "propertyNames": False, "if": False, "else": False}, [[], {"a": 1}], []),
    ("draft6", {"const": 1}, [1], [2]),
    ("draft6", {"if": True, "then": False}, [1], []),
    ("draft6", {"exclusiveMaximum": 2}, [1], [2]),
    ("draft7", {"if": True, "then": False}, [], [1]),
    ("draft7", {"dependencies": {"a": ["b"]}}, [{}, {"a": 1, "b": 1}], [{"a": 1}]),
    ("draft7", {"dependencies": {"a": {"required": ["b"]}}}, [{}, {"a": 1, "b": 1}], [{"a": 1}]),
    ("draft7", {"dependencies": {"a": False}}, [{}], [{"a": 1}]),
    ("draft7", {"dependencies": {"a": "b"}}, [{}, {"a": 1, "b": 1}], [{"a": 1}]),
    ("2019-09", {"dependencies": {"a": ["b"]}}, [{"a": 1}], []),
    ("draft7", {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": False}}, [{"a": 1}], []),
    ("draft7", {"items": [INTEGER], "additionalItems": False}, [[1], []], [[1, 2], ["x"]]),
    ("draft7", {"items": INTEGER, "additionalItems": False}, [[1, 2]], [["x"]]),
    ("draft7", {"items": [INTEGER], "additionalItems": {"type": "null"}}, [[1, None]], [[1, 1]]),
    ("draft7", {"items": []}, [[1, "x"]], []),
    ("draft7", {"additionalItems": False}, [[1]], []),
    ("2020-12", {"items": [INTEGER], "additionalItems": False}, [[1, 2]], [["x"]]),
    ("draft7", {"prefixItems": [INTEGER], "unevaluatedItems": False}, [["x"]], []),
    ("2019-09", {"prefixItems": [INTEGER]}, [["x"]], []),
    ("2019-09", {"unevaluatedProperties": False}, [{}], [{"a": 1}]),
    ("draft7", {"contains": INTEGER, "minContains": 0}, [[1]], [[]]),
    ("openapi-3.0", {"type": "integer", "nullable": True}, [1, None], ["x"]),
    ("openapi-3.0", {"type": "integer", "nullable": False}, [1], [None]),
    ("openapi-3.0", {"type": ["integer"], "nullable": True}, [1, None], ["x"]),
    ("openapi-3.0", {"enum": ["a"], "nullable": True, "type": "string"}, ["a", None], ["b"]),
    ("openapi-3.0", {"allOf": [INTEGER], "nullable": True}, [1, None], ["x"]),
    ("openapi-3.0", {"anyOf": [INTEGER], "nullable": True}, [1, None], ["x"]),
    ("openapi-3.0", {"anyOf": [INTEGER], "minimum": 3, "nullable": True}, [3, None], [1]),
    ("openapi-3.0", {"nullable": True}, [1, None], []),
    ("openapi-3.1", {"type": "integer", "nullable": True}, [1], [None]),
    ("2020-12", {"type": "integer", "nullable": True}, [1], [None]),
    ("openapi-3.0", {"required": True, "type": "object"}, [{}], []),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "schema", "good", "bad"), DRAFTS)
def test_a_keyword_means_what_its_draft_says(dialect: Any, schema: Any, good: list[Any], bad: list[Any]) -> None:
    compiled = from_schema(schema, dialect=dialect)
    assert compiled.warnings == ()
    for made in (compiled, from_schema(compiled.bundled())):
        assert [made.is_valid(value) for value in good] == [True] * len(good)
        assert [made.is_valid(value) for value in bad] == [False] * len(bad)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": "any"}, "#: type: expected a type of JSON Schema or a list of them, got str 'any': it is ignored"),
    ({"type": []}, "type: expected a type"),
    ({"type": ["string", 5]}, "type: expected a type"),
    ({"type": {"a": 1}}, "type: expected a type"),
    ({"enum": "abc"}, "enum: expected an array, got str 'abc': it is ignored"),
    ({"enum": [{1}]}, "enum: expected a JSON value, got set: it is ignored"),
    ({"const": object}, "const: expected a JSON value, got type: it is ignored"),
    ({"default": float("nan")}, "default: expected a JSON value, got float: it is ignored"),
    ({"enum": [{1: 2}]}, "enum: expected a JSON value, got dict: it is ignored"),
    ({"minimum": "1"}, "minimum: expected a number, got str '1'"),
    ({"minimum": True}, "minimum: expected a number, got bool True"),
    ({"maximum": float("inf")}, "maximum: expected a number"),
    ({"multipleOf": 0}, "multipleOf: expected a number above 0, got int 0"),
    ({"multipleOf": -1}, "multipleOf: expected a number above 0, got int -1"),
    ({"exclusiveMaximum": True}, "exclusiveMaximum: expected a number, got bool True"),
    ({"minLength": -1}, "minLength: expected a whole number of at least 0, got int -1"),
    ({"maxLength": 1.5}, "maxLength: expected a whole number of at least 0, got float 1.5"),
    ({"minItems": "1"}, "minItems: expected a whole number"),
    ({"maxItems": True}, "maxItems: expected a whole number"),
    ({"minContains": float("nan")}, "minContains: expected a whole number"),
    ({"uniqueItems": "yes"}, "uniqueItems: expected a boolean, got str 'yes'"),
    ({"pattern": 5}, "pattern: expected a string, got int 5"),
    ({"pattern": "(?=a)a"}, "pattern '(?=a)a' is not checked: look-around"),
    ({"required": "a"}, "required: expected an array of strings, got str 'a'"),
    ({"required": [1]}, "required: expected an array of strings"),
    ({"required": True}, "required: expected an array of strings"),
    ({"properties": []}, "properties: expected an object of schemas, got list []"),
    ({"properties": {1: {}}}, "properties: expected an object of schemas"),
    ({"patternProperties": {1: {}}}, "patternProperties: expected an object of schemas"),
    ({"patternProperties": {"(": {}}}, "patternProperties '(' is not checked: unbalanced"),
    ({"properties": {"a": 5}}, "#/properties/a: expected a schema (object or boolean), got int: it is unknown"),
    ({"items": 5}, "#/items: expected a schema"),
    ({"allOf": {}}, "allOf: expected an array of schemas, got dict {}"),
    ({"anyOf": []}, "anyOf: expected an array of schemas, got list []"),
    ({"oneOf": [5]}, "#/oneOf/0: expected a schema"),
    ({"not": None}, "#/not: expected a schema (object or boolean), got NoneType"),
    ({"prefixItems": {}}, "prefixItems: expected an array of schemas"),
    ({"dependentRequired": []}, "dependentRequired: expected an object, got list []"),
    ({"dependentSchemas": {"a": 5}}, "#/dependentSchemas/a: expected a schema"),
    ({"$defs": {"a~/b": {"type": 5}}, "$ref": "#/$defs/a~0~1b"}, "#/$defs/a~0~1b: type: expected a type"),
]


@pytest.mark.parametrize(("schema", "warning"), REFUSED)
def test_nonsense_is_ignored_where_it_stands_and_said(schema: dict[str, Any], warning: str) -> None:
    compiled = from_schema({**schema, "maxProperties": 1})
    assert any(warning in text for text in compiled.warnings), compiled.warnings
    assert compiled.is_valid({"a": "x"})
    assert not compiled.is_valid({"a": "x", "b": 1}) or "$ref" in schema


def test_what_an_unsafe_pattern_claims_may_not_be_called_undeclared() -> None:
    schema = from_schema(
        {"properties": {"a": {}}, "patternProperties": {"(?=b)b": {}}, "additionalProperties": False}
    )
    assert schema.is_valid({"bb": 1})
    assert schema.cast({"bb": 1}) == {"bb": 1}
    other = from_schema({"patternProperties": {"(?=b)b": {}}, "unevaluatedProperties": False})
    assert other.is_valid({"bb": 1})


def test_at_most_twenty_warnings_are_kept_of_one_schema() -> None:
    assert len(from_schema({"properties": {f"p{i}": {"type": "any"} for i in range(50)}}).warnings) == 20


MESSAGES: list[tuple[Any, Any, str]] = [
    ({"type": ["integer", "null"]}, "x", "expected integer or null, got str at $"),
    ({"properties": {"a b": INTEGER}}, {"a b": None}, 'expected integer, got null at $["a b"]'),
    ({"items": {"properties": {"id": INTEGER}}}, [{}, {"id": "x"}], "expected integer, got str at $[1].id"),
    ({"enum": []}, "b", "expected no value (the enum is empty), got 'b' at $"),
    ({"enum": ["a", 2]}, "b", "expected one of 'a', 2, got 'b' at $"),
    ({"enum": list(range(12))}, -1, "expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …, got -1 at $"),
    ({"const": {"a": 1}}, 2, "expected {'a': 1}, got 2 at $"),
    ({"minLength": 1}, "", "expected at least 1 character, got 0 at $"),
    ({"maxLength": 2}, "abc", "expected at most 2 characters, got 3 at $"),
    ({"minItems": 2}, [1], "expected at least 2 items, got 1 at $"),
    ({"maxItems": 1}, [1, 2], "expected at most 1 item, got 2 at $"),
    ({"minProperties": 1}, {}, "expected at least 1 property, got 0 at $"),
    ({"maxProperties": 0}, {"a": 1}, "expected at most 0 properties, got 1 at $"),
    ({"minimum": 3}, 2, "expected a number >= 3, got 2 at $"),
    ({"maximum": 3}, 4.5, "expected a number <= 3, got 4.5 at $"),
    ({"exclusiveMinimum": 3}, 3, "expected a number > 3, got 3 at $"),
    ({"exclusiveMaximum": 3}, 3, "expected a number < 3, got 3 at $"),
    ({"multipleOf": 0.1}, 0.25, "expected a multiple of 0.1, got 0.25 at $"),
    ({"pattern": "^a\\d$"}, "b", "expected a string that matches '^a\\\\d$', got 'b' at $"),
    ({"required": ["a", "b"]}, {"a": 1}, "expected the property 'b', got none at $"),
    (
        {"additionalProperties": False, "properties": {"a": {}}},
        {"a": 1, "b": 2},
        "expected no undeclared property, got 'b' at $",
    ),
    ({"unevaluatedProperties": False}, {"b": 2}, "expected no undeclared property, got 'b' at $"),
    ({"unevaluatedItems": False}, [1], "expected no further items, got some at $"),
    ({"uniqueItems": True}, [1, 1], "expected unique items, got the same item twice at $"),
    ({"contains": INTEGER}, ["x"], "expected an array with a matching item, got none at $"),
    ({"not": INTEGER}, 1, "expected a value outside the excluded schema, got 1 at $"),
    (
        {"dependentRequired": {"a": ["b"]}},
        {"a": 1},
        "expected the properties that others depend on, got some missing at $",
    ),
    ({"properties": {"a": False}}, {"a": 5}, "expected nothing here, got 5 at $.a"),
    ({"anyOf": [INTEGER, {"type": "null"}]}, "x", "expected integer or null, got str at $"),
    ({"oneOf": [True, True]}, 1, "expected exactly one of 2 alternatives, got a match of several at $"),
    ({"anyOf": [{"const": 1}, {"properties": {"a": INTEGER}, "required": ["b"]}]}, {"a": "x"}, "(closest: "),
]


@pytest.mark.parametrize(("schema", "value", "message"), MESSAGES)
def test_an_error_says_what_was_expected_what_came_and_where(schema: Any, value: Any, message: str) -> None:
    [error] = from_schema(schema).errors(value)
    assert message in error.message
    assert error.message.startswith(f"expected {error.expected}, got {error.got} at {error.path}")


UNSAFE = {"type": "string", "pattern": "^(?=a)a+$"}
OTHER = {"type": "string", "pattern": "^b"}


@pytest.mark.parametrize("branch", [UNSAFE, {"$ref": "#/$defs/u"}, {"allOf": [{"$ref": "#/$defs/v"}]}])
def test_what_a_pattern_that_is_not_run_may_not_match_is_no_second_match(branch: Any) -> None:
    """A registry of schemas has a good many unions of texts that are told apart by patterns."""
    defs = {"u": UNSAFE, "v": {"$ref": "#/$defs/u"}}
    schema = from_schema({"oneOf": [branch, OTHER], "$defs": defs})
    assert schema.is_valid("b")
    assert schema.cast("b") == "b"
    assert not schema.is_valid(5)
    nested = from_schema({"items": {"oneOf": [{"properties": {"n": branch}}, {"required": ["n"]}]}, "$defs": defs})
    assert nested.is_valid([{"n": "b"}])
    assert from_schema({"not": branch, "$defs": defs}).is_valid("b")
    assert not from_schema({"oneOf": [{"type": "string"}, OTHER], "$defs": defs}).is_valid("b")
