"""Patterns of inputs: each is enforced on text of any length, or its operation cannot be registered."""

import json
import random
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from operad import CallError, OperationRegistry, OperationSpec, RegistrationError, operation
from operad_schema import Limits, lazy_schema

VALID = dict(json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))["valid_texts_of_patterns"])
"""Patterns, each with a text that matches it. The texts below match none of them."""
WAYS = [
    lambda text, draw: text + "\n",
    lambda text, draw: "",
    lambda text, draw: "!" + text,
    lambda text, draw: "!\ud800",
    lambda text, draw: "!" * draw.randint(1, 6_000),
    lambda text, draw: text * draw.randint(1_000, 3_000) + "!\n\n",
    lambda text, draw: "!\n" + text[:1] * draw.randint(5_000, 20_000),
]


def spec(schema: Any, **more: Any) -> OperationSpec:
    return OperationSpec(namespace="t", name="op", type="query", input_schema=schema, **more)


async def test_no_input_that_violates_a_pattern_reaches_a_handler() -> None:
    """10,000 of them: alone, in arrays, as names of properties, in unions; short, and longer than any buffer."""
    registry, draw = OperationRegistry(), random.Random(7)
    reached: list[Any] = []
    ids = []
    for number, (pattern, good) in enumerate(VALID.items()):
        text = {"type": "string", "pattern": pattern}
        schema = {
            "properties": {
                "a": text,
                "list": {"type": "array", "items": text},
                "one": {"anyOf": [{"type": "integer"}, text]},
                "names": {"propertyNames": text},
                "named": {"patternProperties": {pattern: {"type": "integer"}}, "additionalProperties": False},
            }
        }

        async def handler(input: Any, context: Any) -> None:
            reached.append(input)

        made = OperationSpec(namespace="t", name=f"op{number}", type="query", input_schema=schema)
        registry.register(made, handler)
        ids.append((made.id, good))
        input = {"a": good, "list": [good], "one": good, "names": {good: 1}, "named": {good: 1}}
        await registry.execute(made.id, input)
        assert reached.pop() == input
    async with registry:
        for _ in range(10_000):
            operation_id, good = draw.choice(ids)
            bad = draw.choice(WAYS)(good, draw)
            key, value = draw.choice(
                [("a", bad), ("list", [good, bad]), ("one", bad), ("names", {bad: 1}), ("named", {bad: 1})]
            )
            with pytest.raises(CallError, match="VALIDATION_ERROR"):
                await registry.execute(operation_id, {key: value})
    assert reached == []


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"pattern": "^(?!x)"}, r"pattern '\^\(\?!x\)' is not checked: look-around, .* \(at #\)"),
        (
            {"properties": {"a": {"items": {"pattern": r"(a)\1"}}}},
            r"is not checked: a back-reference, which RE2 cannot run \(at #/properties/a/items\)",
        ),
        ({"patternProperties": {"(?=a)": {}}}, r"patternProperties '\(\?=a\)' is not checked: look-around"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"pattern": "(?<=a)b"}}}, r"look-around, .* \(at #/\$defs/a\)"),
        ({"pattern": "("}, r"is not checked: unbalanced '\('"),
    ],
)
def test_a_pattern_that_cannot_be_checked_is_refused_where_an_operation_is_registered(
    schema: Any, text: str
) -> None:
    registry = OperationRegistry()
    for register in (lambda: registry.register(spec(schema), _echo), lambda: registry.register_spec(spec(schema))):
        with pytest.raises(RegistrationError, match=r'operation "t\.op": .*' + text) as caught:
            register()
        assert "use a simpler pattern, or set unchecked_patterns=True" in str(caught.value)
    assert "t.op" not in registry


async def _echo(input: Any, context: Any) -> Any:
    return input


def test_the_pattern_of_a_typed_function_is_refused_too() -> None:
    @operation(namespace="t")
    def typed(code: Annotated[str, msgspec.Meta(pattern="^(?!x)")]) -> str:
        return code

    with pytest.raises(RegistrationError, match="look-around"):
        OperationRegistry().register(typed)


async def test_an_unchecked_pattern_runs_on_short_text_if_the_operation_says_so() -> None:
    async with OperationRegistry() as registry:
        looks = {"properties": {"a": {"type": "string", "pattern": r"^(?=.*\d)[a-z\d]+$"}}}
        registry.register(spec(looks, unchecked_patterns=True), _echo)
        assert (await registry.execute("t.op", {"a": "a1"})).data == {"a": "a1"}
        for bad in ("ab", "1" * 4_097):
            with pytest.raises(CallError, match="VALIDATION_ERROR"):
                await registry.execute("t.op", {"a": bad})


async def test_limits_of_a_registry_leave_an_unchecked_pattern_running() -> None:
    async with OperationRegistry(limits=Limits(max_pattern_string=3)) as registry:

        @operation(
            namespace="t",
            type="query",
            unchecked_patterns=True,
            input_schema={"properties": {"a": {"pattern": "(?=a)"}}},
        )
        async def op(input: Any, context: Any) -> Any:
            return input

        registry.register(op)
        assert (await registry.execute("t.op", {"a": "xxa"})).data == {"a": "xxa"}
        for bad in ("xxx", "xxxa"):
            with pytest.raises(CallError, match="VALIDATION_ERROR"):
                await registry.execute("t.op", {"a": bad})


def test_no_peer_decides_that_an_unchecked_pattern_runs() -> None:
    wire = {"namespace": "t", "name": "op", "type": "query", "version": "1", "uncheckedPatterns": True}
    made = OperationSpec.from_wire({**wire, "inputSchema": {"pattern": "(?=a)"}})
    assert not made.unchecked_patterns
    assert made.input_schema.unchecked
    assert "uncheckedPatterns" not in spec({}, unchecked_patterns=True).to_wire()


def test_a_lazy_schema_is_checked_and_one_that_cannot_be_built_does_not_prevent_registration() -> None:
    def unbuilt() -> Any:
        raise ValueError("no such document")

    registry = OperationRegistry()
    registry.register(spec(lazy_schema(unbuilt)), _echo)
    with pytest.raises(RegistrationError, match="look-around"):
        registry.register(spec(lazy_schema(lambda: {"pattern": "(?=a)"})), _echo, replace=True)
