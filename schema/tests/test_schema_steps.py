"""The engine of schemas piece by piece: conjunctions, budgets, zero values, unions, what is shared and exported."""

import math
from typing import Any

import attrs
import pytest

from operad_schema import Schema, bundling, from_schema, lazy_schema
from operad_schema.bundling import SharedDefinitions, is_larger, is_sendable
from operad_schema.casting import Casting
from operad_schema.compiling import compiled
from operad_schema.conjunctions import Call, Lazy, flatten
from operad_schema.evaluating import is_plain, seen_by
from operad_schema.explaining import changes, path_of
from operad_schema.limits import Limits
from operad_schema.nodes import Node
from operad_schema.patterns import WORK
from operad_schema.unions import Union
from operad_schema.vocabulary import subschemas
from schema.tests.tables import tables

TABLES = tables("schema_steps")

INT, STR = {"type": "integer"}, {"type": "string"}


def root_of(schema: Any, **options: Any) -> Any:
    return compiled(from_schema(schema, **options).origin).root


# --- conjunctions -----------------------------------------------------------------------------------------


def test_the_notes_of_a_call_move_with_what_they_are_about() -> None:
    old_part, old = {"x": 0}, {}
    old.update({"a": old_part, "l": [old_part], "gone": {"y": 0}})
    new_part: dict[str, Any] = {"x": 0}
    new: dict[str, Any] = {"a": new_part, "l": [{"z": 1}]}
    call = Call()
    assert call.mark() == (0, False)
    call.moved((0, False), old, new)
    call.invented = [("kept", "k")]
    mark = call.mark()
    assert mark == (1, False)
    call.moved(mark, old, new)
    row: dict[str, Any] = {"z": 0}
    twin = {**row}
    call.invented += [(row, "z")]
    call.moved(mark, [1, [row, 2]], [1, [twin]])
    assert call.invented[1][0] is twin
    del call.invented[1:]
    call.invented += [(old, "gone"), (old, "a"), (old_part, "x")]
    call.moved(mark, old, {"a": new_part})
    assert call.invented == [("kept", "k"), ({"a": new_part}, "a"), (new_part, "x")]
    assert call.invented[2][0] is new_part
    call.dropped = True
    call.forget(mark)
    assert (call.invented, call.dropped) == ([("kept", "k")], False)
    call.forget((0, True))
    assert (call.invented, call.dropped) == (None, True)
    call.forget((0, False))
    assert call.invented is None


# --- budgets ----------------------------------------------------------------------------------------------


def steps(schema: Any, value: Any) -> float:
    """How many schemas a check applies to a value, by the count of the call's budget."""
    made = compiled(from_schema(schema).origin)
    with WORK.call(math.inf, 1_000_000):
        assert made.checks.remembering(made.checks.of(made.root))(value)
        return 1_000_000 - WORK.steps


CROWD = [{"minimum": number} for number in range(-70, 0)]


@pytest.mark.parametrize(("schema", "value", "count"), TABLES["each_schema_that_is_applied_is_counted"])
def test_each_schema_that_is_applied_is_counted(schema: Any, value: Any, count: int) -> None:
    assert steps(schema, value) == count


def test_what_a_call_may_apply_grows_with_its_value() -> None:
    """To two items 3 + 2 * 71 schemas are applied; of 3 parts, 45 more may be."""
    schema = {"items": {"allOf": CROWD}}
    assert from_schema(schema, limits=Limits(max_check_steps=100)).is_valid([1, 2])
    assert not from_schema(schema, limits=Limits(max_check_steps=99)).is_valid([1, 2])
    assert not from_schema(schema, limits=Limits(max_check_steps=100)).is_valid([1, 2, 3])


def test_a_schema_that_says_the_same_is_compiled_once_and_the_last_512_are_kept() -> None:
    def made(number: int) -> Any:
        return compiled(from_schema({"const": number}).origin)

    first, second, *_ = [made(number) for number in range(512)]
    assert made(0) is first
    made(512)
    assert made(0) is first
    assert made(1) is not second
    assert compiled(from_schema({"const": 0}, dialect="draft7").origin) is not first
    assert compiled(from_schema({"const": 0}, limits=Limits(max_fill=5)).origin) is not first


# --- what is evaluated ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "plain"), TABLES["a_schema_is_plain_where_all_that_sees_the_value_is_a_part_of_it"]
)
def test_a_schema_is_plain_where_all_that_sees_the_value_is_a_part_of_it(schema: Any, plain: bool) -> None:
    assert is_plain(root_of(schema)) is plain


def test_what_sees_a_value_beside_a_schema_is_there_once() -> None:
    a = Node({"minimum": 1})
    b = Node({"allOf": [a, True]})
    whole = Node({"allOf": [b, a, b]})
    assert seen_by(whole) == [whole, b, a]


# --- zero values and defaults -----------------------------------------------------------------------------


def needs(schema: Any, **more: Any) -> Any:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], **more}


@pytest.mark.parametrize(("schema", "zero"), TABLES["the_zero_value_that_a_missing_property_gets"])
def test_the_zero_value_that_a_missing_property_gets(schema: Any, zero: Any) -> None:
    loop = needs({"$ref": "#/$defs/loop"})
    assert from_schema(needs(schema, **{"$defs": {"loop": loop}})).cast({}, complete=True) == zero


# --- unions -----------------------------------------------------------------------------------------------


def union_of(schema: Any) -> tuple[Union, Any]:
    made = compiled(from_schema(schema).origin)
    members, _ = flatten([made.root])
    (member,) = [one for one in members if "anyOf" in one or "oneOf" in one]
    casting = Casting(made.checks)
    return Union(casting, members, member, "anyOf" if "anyOf" in member else "oneOf"), Call()


@pytest.mark.parametrize(
    ("schema", "classes", "is_scalar"),
    TABLES["a_property_of_scalars_is_cast_at_once_and_of_these_classes_not_at_all"],
)
def test_a_property_of_scalars_is_cast_at_once_and_of_these_classes_not_at_all(
    schema: Any, classes: list[str], is_scalar: bool
) -> None:
    made = compiled(from_schema({"properties": {"a": schema}, "additionalProperties": False}).origin)
    members, _ = flatten([made.root])
    ((name, exact, cast, _),) = Casting(made.checks).rows(members)
    found = (name, sorted(each.__name__ for each in exact), isinstance(cast, Lazy))
    assert found == ("a", classes, not is_scalar)


def test_a_cast_that_was_made_late_is_found_at_once_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of properties and further items, and there alone: a part that another schema has too keeps its own."""
    asked = []
    call = Lazy.__call__
    monkeypatch.setattr(Lazy, "__call__", lambda self, *rest: asked.append(self) or call(self, *rest))
    row = {"type": "object", "properties": {"n": INT}}
    for schema, value in (
        ({"type": "array", "items": row}, [{"n": "1"}] * 3),
        ({"properties": {"a": row}}, {"a": {"n": "1"}}),
    ):
        made = from_schema(schema)
        first = made.cast(value)
        assert asked != []
        asked.clear()
        assert made.cast(value) == first == ([{"n": 1}] * 3 if isinstance(value, list) else {"a": {"n": 1}})
        assert asked == []


@pytest.mark.parametrize(("depth", "found"), [(3, True), (8, True), (9, False)])
@pytest.mark.parametrize("key", ["allOf", "anyOf", "oneOf"])
def test_tags_are_looked_for_eight_levels_deep(key: str, depth: int, found: bool) -> None:
    branch: Any = {"properties": {"k": {"const": "a"}}}
    for _ in range(depth):
        branch = {key: [branch]}
    given = root_of({"oneOf": [branch], "discriminator": {"propertyName": "k"}})["discriminator"]
    assert (given["tags"] == {"a": 0}) is found


# --- what is shared and exported --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        *TABLES["what_a_cast_has_changed"],
        ("ab", "".join(["a", "b"]), []),
        ((1,), ["1", 5], [("$[1]", "filled", None, 5), ("$[0]", "converted", 1, "1")]),
    ],
)
def test_what_a_cast_has_changed(before: Any, after: Any, found: list[Any]) -> None:
    assert [attrs.astuple(one) for one in changes(before, after)] == [*map(tuple, found)]


@pytest.mark.parametrize(
    ("parts", "path"),
    [((), "$"), (("a", 0, "b c"), '$.a[0]["b c"]'), ((5, "x1", "1x"), '$[5].x1["1x"]'), ((None,), '$["None"]')],
)
def test_a_path_is_written_so(parts: Any, path: str) -> None:
    assert path_of(parts) == path


def test_what_can_be_sent() -> None:
    for value in ({"a": [1, 1.5, None, True, "x"]}, (1,), "größe", 2**13_999):
        assert is_sendable(value)
        assert is_sendable({"const": value})
    for value in ({1: 2}, object(), math.inf, "\ud800", {"\ud800": 1}, 2**14_000, -(2**14_000)):
        assert not is_sendable(value)
        assert not is_sendable({"const": value})


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}])
@pytest.mark.parametrize(("levels", "sendable"), [(200, True), (201, False)])
def test_how_deep_what_is_sent_may_be(levels: int, sendable: bool, wrap: Any) -> None:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    assert is_sendable(value) is sendable


@pytest.mark.parametrize(
    ("schema", "count"),
    [(True, 1), ({}, 1), ({"a": 1}, 2), ({"a": [1, (2,)]}, 5), ({"$ref": "#/$defs/a", "$defs": {"a": INT}}, 7),
     ({"$ref": "#/nothing"}, 2), ({"$ref": 5}, 2), ({"a": {"$ref": "#"}}, 3)],
)  # fmt: skip
def test_how_many_values_a_schema_is_made_of(schema: Any, count: int) -> None:
    origin = from_schema(schema).origin
    assert (is_larger(origin, count - 1), is_larger(origin, count)) == (True, False)
    assert from_schema(schema).is_larger(count - 1)


def test_definitions_of_one_document_are_shared_and_named_by_what_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new_store, stores = bundling.new_store, []
    monkeypatch.setattr(bundling, "new_store", lambda *of, **how: stores.append(of) or new_store(*of, **how))
    pet = {"type": "object", "properties": {"friend": {"$ref": "#/components/schemas/Pet"}}}
    document: Any = {
        "components": {"schemas": {"Pet": pet, "Cage": {"items": {"$ref": "#/components/schemas/Pet"}}}}
    }
    other: Any = {"components": {"schemas": {"Pet": {"type": "string"}}}}
    shared = SharedDefinitions("#/shared/")

    def add(name: str, of: Any) -> Any:
        pointer = f"/components/schemas/{name}"
        node = of["components"]["schemas"][name]
        return from_schema(node, document=of, pointer=pointer).bundled(shared)

    assert add("Cage", document) == {"items": {"$ref": "#/shared/Pet"}}
    assert add("Pet", document) == {"$ref": "#/shared/Pet"}
    assert add("Pet", other) == {"type": "string"}
    assert len(stores) == 2, "one for each document"
    assert from_schema({"items": {"$ref": "#/$defs/Pet"}, "$defs": {"Pet": {"type": "null"}}}).bundled(shared) == {
        "items": {"$ref": "#/shared/Pet2"}
    }
    assert sorted(shared.definitions) == ["Pet", "Pet2"]
    assert shared.definitions["Pet"] == {"type": "object", "properties": {"friend": {"$ref": "#/shared/Pet"}}}


def test_a_lazy_schema_is_built_once_and_with_the_bounds_that_it_was_given() -> None:
    built = []

    def build() -> Any:
        built.append(1)
        return {"type": "integer"}

    schema = lazy_schema(build)
    assert (repr(schema), built) == ("<Schema not built yet>", [])
    assert (schema.is_valid(1), schema.is_valid("x"), schema.cast("5"), schema.is_unknown) == (
        True,
        False,
        5,
        False,
    )
    assert (schema.raw, built) == ({"type": "integer"}, [1])
    enum = {"enum": [1, 2, 3]}
    bounded = lazy_schema(lambda: enum).limited(Limits(max_schema_enum=2))
    for one in (bounded, lazy_schema(lambda: from_schema(enum)).limited(Limits(max_schema_enum=2))):
        assert one.is_unknown
        assert "at most 2 members (max_schema_enum)" in one.warnings[0]
    assert from_schema(enum).limited(Limits(max_schema_enum=2)).is_unknown
    assert lazy_schema(lambda: from_schema({"type": "null"})).is_valid(None)
    with pytest.raises(TypeError, match="expected a JSON Schema \\(a mapping or a bool\\), got int: 5"):
        lazy_schema(lambda: 5).is_valid(1)  # type: ignore[arg-type, return-value]  # what nobody may give
    assert isinstance(bounded, Schema)


@pytest.mark.parametrize(("arguments", "message"), TABLES["a_schema_that_cannot_be_placed_is_refused"])
def test_a_schema_that_cannot_be_placed_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_schema({}, **arguments)


def test_a_pointer_may_begin_as_a_fragment() -> None:
    document: Any = {"a": {"type": "integer"}}
    schema = from_schema(document["a"], document=document, pointer="#/a")
    assert schema.origin.pointer == "/a"
    assert repr(schema) == "<Schema of 'type' at /a>"
    missing = from_schema({}, document=document, pointer="/b")
    assert missing.warnings == ("the document has nothing at '/b' ('b'): any value is valid",)


# --- references and keywords ------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "drawn"), [(64, 0), (65, 65)])
def test_choosing_among_more_than_sixty_four_branches_is_counted(count: int, drawn: int) -> None:
    union, call = union_of({"anyOf": [{"minimum": number} for number in range(count)]})
    with WORK.call(math.inf, 1_000):
        assert union.choose(1_000, call)[0] == 0
        assert 1_000 - WORK.steps == drawn


@pytest.mark.parametrize(("schema", "valid", "invalid"), TABLES["what_each_draft_and_dialect_means"])
def test_what_each_draft_and_dialect_means(schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    made = from_schema(schema, dialect="openapi-3.0" if "nullable" in schema else None)
    assert [value for value in valid if not made.is_valid(value)] == []
    assert [value for value in invalid if made.is_valid(value) is not False] == []
    if schema.get("nullable"):
        assert made.cast(None) is None
        strict = from_schema(schema)
        assert strict.is_valid(None) is (schema.get("type") == ["string", "null"] or None in schema.get("enum", ())
                                         or not {"type", "enum", "anyOf", "allOf", "oneOf"} & schema.keys())  # fmt: skip


def test_what_is_exported_of_each_keyword() -> None:
    schema: dict[str, Any] = {
        "title": "t", "description": "d", "examples": [{"a": (1,)}], "default": {"a": 1}, "const": {"a": [1]},
        "properties": {"p": {"$ref": "#/$defs/x"}}, "patternProperties": {"^(?=a)a+$": STR}, "prefixItems": [INT],
        "items": False, "not": {"type": "null"}, "anyOf": [INT, True], "required": ["p"], "$defs": {"x": INT},
    }  # fmt: skip
    bundled: Any = from_schema(schema).bundled()
    assert bundled == {**schema, "examples": [{"a": [1]}], "$defs": {"x": INT}}
    bundled["default"]["a"] = 2
    assert from_schema(schema).bundled()["default"] == {"a": 1}  # type: ignore[index]  # no bool


def test_what_is_shown_to_others_is_what_was_given_where_that_can_be_sent() -> None:
    given = {"type": "integer"}
    assert from_schema(given).published() is given
    assert from_schema(True).published() is True
    assert from_schema({"$schema": "http://json-schema.org/draft-07/schema#"}, dialect="draft4").published() == {
        "$schema": "http://json-schema.org/draft-07/schema#"
    }
    assert from_schema({"nullable": True, "type": "string"}, dialect="openapi-3.0").published() == {
        "type": ["string", "null"]
    }
    assert from_schema({"const": object()}).published() == {}
    document: Any = {"a": given}
    assert from_schema(given, document=document, pointer="/a").published() == given


def test_of_each_part_that_a_heavy_schema_meets_again_one_step_is_drawn() -> None:
    """What was found out is remembered: the second look at a part costs one step, and not what is below."""
    again = {"$ref": "#"}
    schema = {"type": "object", "properties": {"x": {"allOf": [again, again]}}}
    found = [steps(schema, value) for value in ({}, {"x": {}}, {"x": {"x": {}}}, {"x": {"x": {"x": {}}}})]
    assert found == [1, 7, 13, 19]


@pytest.mark.parametrize(("schema", "size"), TABLES["the_size_of_a_schema_is_what_is_kept_of_it"])
def test_the_size_of_a_schema_is_what_is_kept_of_it(schema: Any, size: int) -> None:
    root = compiled(from_schema(schema).origin).closure.root
    assert root.size == size
    for most, known in ((size, True), (size - 1, False)):
        bounded = from_schema({"allOf": [schema, False]}, limits=Limits(max_schema_bytes=most + 17))
        assert bounded.is_valid(1) is not known


def test_each_form_of_a_schema_is_made_when_it_is_asked_for_and_once() -> None:
    for name in ("validator", "caster", "normalizer"):
        schema = from_schema({"type": "integer"})
        assert getattr(schema, name) is getattr(schema, name)
    for answer, found in (
        (lambda one: one.is_valid("5"), False),
        (lambda one: one.cast("5"), 5),
        (lambda one: one.caster("5"), 5),
        (lambda one: one.validator("5"), False),
        (lambda one: one.normalizer("5"), (5, True)),
        (lambda one: one.tracer()("5"), (5, True, False, False)),
        (lambda one: one.mismatches("5"), []),
        (lambda one: one.is_unknown, False),
        (lambda one: one.warnings, ()),
        (lambda one: len(one.errors("5")), 1),
    ):
        assert answer(from_schema({"type": "integer", "description": "for this test alone"})) == found
        assert answer(lazy_schema(lambda: {"type": "integer"}).limited(Limits(max_fill=7))) == found


def test_a_name_that_is_no_text_fits_no_pattern() -> None:
    schema = {"patternProperties": {"^x": {}}, "anyOf": [{"properties": {"a": {}}}], "unevaluatedProperties": INT}
    assert from_schema(schema).is_valid({1: 5})
    assert not from_schema(schema).is_valid({1: "x"})


@pytest.mark.parametrize(("schema", "places"), TABLES["where_a_schema_holds_schemas"])
def test_where_a_schema_holds_schemas(schema: Any, places: list[str]) -> None:
    assert sorted("/".join(tokens) for tokens, _ in subschemas(schema)) == places
