"""What becomes of each value, by a cast and by one that keeps; and what is ignored of each schema, with the reason."""

import logging
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operad_schema import UNKNOWN, from_schema
from operad_schema.compiling import _text_key, compiled
from operad_schema.groups import components
from operad_schema.limits import Limits
from operad_schema.references import dialect_of, follow, join, parse_pointer
from operad_schema.unions import branch_types
from schema.tests.tables import tables

TABLES = tables("each_cast")

INT, STR, NUM, BOOL = ({"type": name} for name in ("integer", "string", "number", "boolean"))

Traced = Sequence[Any]

CASTS: list[tuple[Any, Any, Traced, Traced]] = [
    *TABLES["casts"],
    ({"type": "array"}, (1, 2), ([1, 2], True, False, False), ([1, 2], True, False, False)),
    ({"items": {}, "type": "array"}, (1,), ([1], True, False, False), ([1], True, False, False)),
    (STR, math.inf, (math.inf, False, False, False), (math.inf, False, False, False)),
]


@pytest.mark.parametrize(("schema", "value", "cast", "kept"), CASTS)
def test_a_value_is_cast_to_this(schema: Any, value: Any, cast: Traced, kept: Traced) -> None:
    before = repr(value)
    made = from_schema(schema)
    assert repr(made.tracer("complete")(value)) == repr(tuple(cast))  # by text: 1 is neither 1.0 nor True here
    assert repr(made.tracer("keep")(value)) == repr(tuple(kept))
    assert repr(made.cast(value, complete=True)) == repr(cast[0])
    plain = made.tracer()(value)
    assert repr(made.cast(value)) == repr(plain[0])
    assert plain[3] is False, "a cast invents nothing"
    if not cast[3]:
        assert repr(plain) == repr(tuple(cast))
    assert repr(value) == before


WARNINGS: list[tuple[Any, list[str]]] = [
    *TABLES["warnings"],
    ({"const": {1: 2}}, ["#: const: expected a JSON value, got dict: it is ignored"]),
    ({"enum": [object]}, ["#: enum: expected a JSON value, got type: it is ignored"]),
    ({"default": object}, ["#: default: expected a JSON value, got type: it is ignored"]),
    ({"properties": {1: {}}}, ["#: properties: expected an object of schemas, got dict {1: {}}: it is ignored"]),
]


@pytest.mark.parametrize(("schema", "warnings"), WARNINGS)
def test_what_is_ignored_of_a_schema_is_told_with_the_reason(schema: Any, warnings: list[str]) -> None:
    assert list(from_schema(schema).warnings) == warnings


def test_a_warning_is_logged_once_for_all_schemas_of_a_document(caplog: pytest.LogCaptureFixture) -> None:
    document: Any = {"a": {"type": "strin"}, "b": {"$ref": "#/a"}}
    one = from_schema(document["a"], document=document, pointer="/a")
    other = from_schema(document["b"], document=document, pointer="/b")
    assert one.is_unknown
    assert other.is_unknown
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "schema /a: #/a: type: expected a type of JSON Schema or a list of types, got str 'strin': it is ignored"
    ]


@pytest.mark.parametrize(("schema", "limits", "warning"), TABLES["a_schema_beyond_a_bound_is_unknown_there"])
def test_a_schema_beyond_a_bound_is_unknown_there(schema: Any, limits: Any, warning: str) -> None:
    ((name, value),) = limits.items()
    (told,) = from_schema(schema, limits=Limits(**limits)).warnings
    assert warning in told
    assert from_schema(schema, limits=Limits(**{name: value + (300 if "bytes" in name else 1)})).warnings == ()
    is_lifted = name.startswith("max_schema") and name != "max_schema_depth"
    assert (from_schema(schema, limits=Limits(**limits), trusted=True).warnings == ()) is is_lifted
    assert from_schema(schema, trusted=True).limited(Limits(**limits)).warnings != ()


# --- what a value can meet ------------------------------------------------------------------------


def crowd(schema: Any) -> tuple[int, bool, bool, bool]:
    root = compiled(from_schema(schema).origin).closure.root
    return root.crowd, root.is_heavy, root.counts, root.is_recursive


@pytest.mark.parametrize(("schema", "met"), TABLES["how_many_schemas_one_part_of_a_value_can_meet"])
def test_how_many_schemas_one_part_of_a_value_can_meet(schema: Any, met: int) -> None:
    assert crowd(schema) == (met, met >= 1_000, met > 64, "'#'" in str(schema))


@pytest.mark.parametrize(("schema", "met"), TABLES["a_tree_that_holds_itself_meets_each_part_a_few_times"])
def test_a_tree_that_holds_itself_meets_each_part_a_few_times(schema: Any, met: int) -> None:
    assert crowd(schema) == (met, False, False, True)


@pytest.mark.parametrize("schema", TABLES["what_holds_itself_and_is_no_plain_tree_is_heavy"])
def test_what_holds_itself_and_is_no_plain_tree_is_heavy(schema: Any) -> None:
    assert crowd(schema) == (1_000, True, True, True)


def test_the_groups_of_a_graph_come_after_what_they_refer_to() -> None:
    edges = {"a": ["b", "c"], "b": ["a"], "c": ["d", "x"], "d": ["d"], "e": ["a"]}
    found = [set(group) for group in components(edges)]
    assert found == [{"d"}, {"c"}, {"a", "b"}, {"e"}]


@given(st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=4), max_size=8))
def test_a_group_is_those_that_reach_one_another(edges: dict[int, list[int]]) -> None:
    def reached(start: int) -> set[int]:
        seen, stack = set(), [start]
        while stack:
            for other in edges.get(stack.pop(), ()):
                if other in edges and other not in seen:
                    seen.add(other)
                    stack.append(other)
        return seen

    reach = {one: reached(one) for one in edges}
    groups = list(components(edges))
    assert sorted(one for group in groups for one in group) == sorted(edges)
    order = {one: number for number, group in enumerate(groups) for one in group}
    for one in edges:
        for other in edges:
            together = one == other or (other in reach[one] and one in reach[other])
            assert (order[one] == order[other]) is together
            assert together or other not in reach[one] or order[other] < order[one]


# --- unions, references, characters ---------------------------------------------------------------


@pytest.mark.parametrize(("branch", "types"), TABLES["the_types_of_a_branch"])
def test_the_types_of_a_branch(branch: Any, types: list[str] | None) -> None:
    schema = {"anyOf": [branch, False]}
    body = compiled(from_schema(schema).origin).root
    found = branch_types(body["anyOf"][0])  # type: ignore[index]  # not a bool: it is the union above
    assert found == (None if types is None else {*types})


@pytest.mark.parametrize(("schema", "dialect"), TABLES["the_dialect_that_a_schema_names"])
def test_the_dialect_that_a_schema_names(schema: Any, dialect: str | None) -> None:
    assert dialect_of(schema) == dialect


@pytest.mark.parametrize(
    ("pointer", "tokens"),
    [("", ()), ("#", ()), ("/a/b", ("a", "b")), ("#/a%20b/~0~1", ("a b", "~/")), ("/", ("",)), ("/~01", ("~1",))],
)
def test_the_tokens_of_a_pointer(pointer: str, tokens: tuple[str, ...]) -> None:
    assert parse_pointer(pointer) == tokens


@pytest.mark.parametrize("pointer", ["a", "#a", "a/b"])
def test_what_is_no_pointer_is_refused(pointer: str) -> None:
    with pytest.raises(ValueError, match="expected a JSON Pointer such as '/components/schemas/Pet', got"):
        parse_pointer(pointer)


def test_a_pointer_leads_through_objects_and_arrays() -> None:
    document = {"a": [{"b": 1}, 2], "0": 5}
    assert follow(document, ("a", "0", "b")) == 1
    assert follow(document, ("a", "1")) == 2
    assert follow(document, ("0",)) == 5
    assert follow(document, ()) is document
    for tokens in (("a", "2"), ("a", "-1"), ("a", "٣"), ("a", "x"), ("b",), ("a", "1", "c")):
        with pytest.raises(LookupError):
            follow(document, tokens)


@pytest.mark.parametrize(
    ("base", "url", "joined"),
    [
        ("", "a", "a"),
        ("http://x/y/z", "a", "http://x/y/a"),
        ("http://x/", "http://[", "http://["),
        ("urn:x", "#a", "urn:x#a"),
    ],
)
def test_a_reference_is_resolved_against_its_base(base: str, url: str, joined: str) -> None:
    assert join(base, url) in (joined, url)


def test_an_object_is_read_by_what_it_has_or_by_what_is_declared() -> None:
    """From 32 declared properties on: both ways answer the same, required or not, declared or not."""
    for count in (31, 32, 40):
        names = [f"p{number}" for number in range(count)]
        schema = from_schema({"properties": dict.fromkeys(names, INT), "required": ["p0"]})
        for size in (0, 1, 8, 9, 10, 11, count):
            value: dict[str, Any] = dict.fromkeys(names[:size], 1)
            assert schema.is_valid(value) is (size > 0)
            assert schema.is_valid({**value, "p0": 1, "z": "x"})
            assert not schema.is_valid({**value, "p0": 1, names[-1]: "x"})


def test_a_value_that_is_too_deep_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    tree = from_schema({"type": "object", "properties": {"n": {"$ref": "#"}}}, limits=Limits(max_data_depth=2))
    assert tree.cast({"n": {"x": 1}}) == {"n": {}}
    deep = {"n": {"n": {"x": 1}}}
    assert tree.cast(deep) is deep
    assert tree.tracer()(deep) == (deep, False, False, False)
    assert "expected a value of at most 2 levels (max_data_depth), got more: it is not cast" in caplog.text


def test_a_value_that_is_no_json_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(dict[str, Any]):
        def __contains__(self, key: object) -> bool:
            raise OSError

    caplog.set_level(logging.WARNING)
    odd = Odd(a=1)
    schema = from_schema({"type": "object", "properties": {"a": STR}})
    assert schema.cast(odd) is odd
    assert schema.tracer()(odd) == (odd, False, False, False)
    assert not schema.is_valid(odd)
    assert "a value cannot be cast (OSError): it is returned unchanged" in caplog.text
    (error,) = schema.errors(odd)
    assert error.message == "expected a JSON value, got Odd, which cannot be checked (OSError()) at $"


def test_what_says_nothing_leaves_everything() -> None:
    for schema in (True, {}, {"default": 5}, {"title": "x"}):
        unknown = from_schema(schema)
        value = object()
        assert unknown.is_unknown
        assert unknown.tracer()(value) == (value, True, False, False)
        assert unknown.normalizer(value) == (value, True)
        assert (unknown.caster(value), unknown.validator(value), unknown.errors(value)) == (value, True, [])
    assert UNKNOWN.is_unknown
    assert not from_schema(False).is_unknown
    assert repr(from_schema({"type": "x", "a": 1})) == "<Schema of 'type', 'a'>"
    assert repr(from_schema(True)) == "<Schema of True>"
    assert math.isinf(Limits().trusting().max_schema_nodes)


class Unhashable:
    """An object that is no JSON, and that no set can hold."""

    __hash__ = None  # type: ignore[assignment]  # what is tested


def test_what_cannot_be_hashed_is_no_member_and_no_double() -> None:
    assert not from_schema({"enum": [1, "a", [1]]}).is_valid(Unhashable())
    assert not from_schema({"enum": [[1]]}).is_valid([Unhashable()])
    assert from_schema({"uniqueItems": True}).is_valid([Unhashable(), Unhashable()])


def test_a_value_that_is_larger_than_each_member_of_an_enum_is_not_walked_through() -> None:
    class Watched(int):
        def __hash__(self) -> int:
            asked.append(self)
            return super().__hash__()

    asked: list[Any] = []
    for schema in ({"enum": [[1, [2]], "a"]}, {"enum": [5, "a"]}, {"const": {"a": 1}}):
        compiled = from_schema(schema)
        assert not compiled.is_valid([1, [2, Watched(3)]])
        assert asked == []
    assert from_schema({"enum": [[1, [2]], "a"]}).is_valid([Watched(1), [2]])
    assert asked != []
    assert from_schema({"enum": [[], {}, [[]]]}).is_valid([[]])


def test_a_value_that_cannot_be_looked_at_is_not_clean_and_one_that_is_too_deep_says_so() -> None:
    class Endless(list[Any]):
        def __len__(self) -> int:
            raise OSError

    value = {"a": Endless()}
    assert from_schema({"properties": {"a": {"minItems": 1}}}).tracer()(value) == (value, False, False, False)
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    (error,) = from_schema({"uniqueItems": True}).errors([deep, deep])
    assert error.keyword == "max_data_depth"


def test_what_allows_nothing_changes_nothing_and_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    value = {"a": "1"}
    for schema in (False, {"allOf": [{"properties": {"a": INT}}, False]}, {"items": False}):
        assert from_schema(schema).cast(value) == value
    assert caplog.text == ""


def test_a_short_schema_is_known_by_its_text_and_a_long_one_by_its_digest() -> None:
    for length, kind in ((1_000, str), (1_001, bytes)):
        schema = {"title": "x" * (length - len('{"title":""}'))}
        first, *_ = _text_key(from_schema(schema).origin)
        assert type(first) is kind
    assert _text_key(from_schema({"const": object()}).origin) is None


@pytest.mark.parametrize(
    ("before", "length", "meant"), [(0, 80, True), (63, 80, True), (64, 80, False), (0, 81, False)]
)
def test_what_was_meant_is_looked_for_among_few_and_short_names(before: int, length: int, meant: bool) -> None:
    name = "n" * length
    properties = {**{f"p{number}": {} for number in range(before)}, name: {}}
    (error,) = from_schema({"properties": properties, "additionalProperties": False}).errors({name[:-1]: 1})
    assert ("; did you mean" in error.message) is meant
    (error,) = from_schema({"properties": {"n" * 79: {}}, "additionalProperties": False}).errors({name: 1})
    assert ("; did you mean" in error.message) is (length == 80)
