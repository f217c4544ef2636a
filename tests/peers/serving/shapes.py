"""A few hundred operations of many shapes, which answer what they are given: so answers have every shape as well.

`VALUES` are the schemas; `USES` put each of them into an operation: as a field, as one that may be absent, in an
array, in a map, behind a reference. Each is a whole input as well, and the items of a stream.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from operad import CallError, OperationRegistry, OperationSpec, OperationType
from operad_openapi import http_envelope

Json = dict[str, Any]
VALUES: dict[str, Json] = json.loads(Path(__file__).with_name("shapes.json").read_text(encoding="utf-8"))
WHOLE = {"type": "integer"}
TREE, BODIES = (
    VALUES.pop("tree"),
    {"image/png": b"\x89PNG", "text/html": b"<script>1</script>", "text/csv": b"a,b"},
)


def record(required: list[str] | None = None, **properties: Any) -> Json:
    """An object that has these properties and no others."""
    made: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": required} if required else made


def array(items: Json, most: int = 3) -> Json:
    return {"type": "array", "items": items, "maxItems": most}


async def same(input: Any, context: Any) -> Any:
    """What came."""
    return input


async def its_value(input: Any, context: Any) -> Any:
    """The field ``value`` of what came."""
    return input["value"]


async def each(input: Any, context: Any) -> AsyncIterator[Any]:
    """The items of what came, one by one."""
    for item in input["items"]:
        yield item


def _within(value: Json) -> tuple[Json, Json, Any]:
    return record(["value"], value=value), value, its_value


def _alike(schema: Json) -> tuple[Json, Json, Any]:
    return schema, schema, same


SHARED = {"$ref": "#/$defs/value"}
USES: dict[str, tuple[OperationType, Callable[[Json], tuple[Json, Json, Any]]]] = {
    "field": (OperationType.QUERY, _within),
    "optional": (
        OperationType.QUERY,
        lambda value: _alike(record(value=value, more={"type": "integer", "default": 1})),
    ),
    "list": (OperationType.MUTATION, lambda value: _alike(record(["items"], items=array(value)))),
    "map": (
        OperationType.MUTATION,
        lambda value: _within({"type": "object", "additionalProperties": value, "maxProperties": 3}),
    ),
    "nullable": (OperationType.MUTATION, lambda value: _within({"anyOf": [value, {"type": "null"}]})),
    "shared": (
        OperationType.MUTATION,
        lambda value: _alike(
            {**record(["first", "rest"], first=SHARED, rest=array(SHARED, 2)), "$defs": {"value": value}}
        ),
    ),
}


def _specs() -> Iterator[tuple[OperationSpec, Any]]:
    for name, value in VALUES.items():
        for use, (kind, make) in USES.items():
            if use == "nullable" and isinstance(value.get("type"), list):
                continue  # an alternative of several types, which the judge cannot read
            input_schema, output_schema, handler = make(value)
            if "prefixItems" in value:
                output_schema = {}  # the judge cannot read them in answers
            yield _spec(use, name, kind, input_schema, output_schema), handler
        shown = {} if "prefixItems" in value else value
        yield _spec("stream", name, OperationType.SUBSCRIPTION, record(["items"], items=array(value)), shown), each
        kind = OperationType.QUERY if value.get("type") == "object" else OperationType.MUTATION
        yield _spec("whole", name, kind, value, shown), same
    trees = {"$defs": {"tree": TREE}}
    tree = {"$ref": "#/$defs/tree"}
    yield _spec("recursive", "tree", OperationType.MUTATION, {**tree, **trees}, {**tree, **trees}), same
    within, forest, handler = _within(array(tree, 2))
    yield _spec("recursive", "forest", OperationType.MUTATION, {**within, **trees}, {**forest, **trees}), handler


def _spec(use: str, name: str, kind: OperationType, input_schema: Json, output_schema: Json) -> OperationSpec:
    return OperationSpec(
        namespace=use, name=name, type=kind, input_schema=input_schema, output_schema=output_schema,
        description=f"<script>alert('{name}')</script> {use} of {name}.",
    )  # fmt: skip


async def refuses(input: Any, context: Any) -> Any:
    """A declared error for what is larger than 5, of a status of its own."""
    if input["n"] > 5:
        raise CallError("TOO_LARGE", "larger than 5", {"n": input["n"]})
    return input["n"]


def register(registry: OperationRegistry, *, every: int = 1) -> list[str]:
    """Register the operations, or one of ``every`` so many; answers their ids."""
    for spec, handler in list(_specs())[::every]:
        registry.register(spec, handler)
    for content_type, body in BODIES.items():

        async def answer(input: Any, context: Any, body: bytes = body, content_type: str = content_type) -> Any:
            return http_envelope(body, content_type=content_type, url="http://up/x")

        name = content_type.replace("/", "-")
        registry.register(OperationSpec(namespace="bytes", name=name, type="query", input_schema=record()), answer)
    large = {"code": "TOO_LARGE", "description": "n > 5", "httpStatus": 409, "schema": record(["n"], n=WHOLE)}
    spec = OperationSpec(namespace="errors", name="refuses", type="query", input_schema=record(["n"], n=WHOLE),
                         output_schema=WHOLE, error_schemas=[large])  # fmt: skip
    registry.register(spec, refuses)
    return [spec.id for spec in registry.specs()]
