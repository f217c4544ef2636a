"""A few hundred operations of many shapes, which answer what they are given: so answers have every shape as well.

`VALUES` are the schemas; `USES` put each of them into an operation: as a field, as one that may be absent, in an
array, in a map, behind a reference, as a whole input, as the items of a stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from operad import CallError, OperationRegistry, OperationSpec, OperationType
from operad_openapi import http_envelope

Json = dict[str, Any]


def record(required: list[str] | None = None, **properties: Any) -> Json:
    """An object that has these properties and no others."""
    made: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": required} if required else made


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
TREE: Json = record(
    ["label"], label=TEXT, children={"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}
)
CIRCLE = record(["kind", "radius"], kind={"const": "circle"}, radius={"type": "number", "exclusiveMinimum": 0})
SQUARE = record(["kind", "side"], kind={"const": "square"}, side={"type": "number", "minimum": 0})

VALUES: dict[str, Json] = {
    "text": {"type": "string", "description": 'Any text: <b>not</b> markup, `code`, "quotes".'},
    "short": {"type": "string", "minLength": 1, "maxLength": 8},
    "pattern": {"type": "string", "pattern": "^[a-z]{2,5}-[0-9]+$"},
    "words": {"type": "string", "enum": ["red", "green", "blue", "", "ünïcode", "with space"]},
    "constant": {"const": "fixed"},
    "date": {"type": "string", "format": "date"},
    "moment": {"type": "string", "format": "date-time"},
    "time": {"type": "string", "format": "time"},
    "uuid": {"type": "string", "format": "uuid"},
    "email": {"type": "string", "format": "email"},
    "hostname": {"type": "string", "format": "hostname"},
    "ipv4": {"type": "string", "format": "ipv4"},
    "ipv6": {"type": "string", "format": "ipv6"},
    "uri": {"type": "string", "format": "uri"},
    "duration": {"type": "string", "format": "duration"},
    "base64": {"type": "string", "format": "byte"},
    "iri": {"type": "string", "format": "iri"},
    "iri-reference": {"type": "string", "format": "iri-reference"},
    "uri-reference": {"type": "string", "format": "uri-reference"},
    "uri-template": {"type": "string", "format": "uri-template"},
    "idn-email": {"type": "string", "format": "idn-email"},
    "idn-hostname": {"type": "string", "format": "idn-hostname"},
    "json-pointer": {"type": "string", "format": "json-pointer"},
    "relative-json-pointer": {"type": "string", "format": "relative-json-pointer"},
    "unknown-format": {"type": "string", "format": "colour-of-the-sea"},
    "integer": WHOLE,
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "bounded": {"type": "integer", "minimum": 1, "maximum": 10},
    "exclusive": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 100},
    "even": {"type": "integer", "multipleOf": 2},
    "number": {"type": "number"},
    "double": {"type": "number", "format": "double", "minimum": -1e6, "maximum": 1e6},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "nullable-text": {"type": ["string", "null"]},
    "nullable-integer": {"anyOf": [WHOLE, {"type": "null"}]},
    "text-or-integer": {"type": ["string", "integer"]},
    "mixed-enum": {"enum": [1, "one", None, True, 1.5]},
    "integer-enum": {"type": "integer", "enum": [1, 2, 3]},
    "default": {"type": "integer", "default": 7},
    "texts": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 4},
    "set": {"type": "array", "items": WHOLE, "uniqueItems": True, "maxItems": 5},
    "matrix": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "number"}, "maxItems": 3},
        "maxItems": 3,
    },
    "pair": {"type": "array", "prefixItems": [TEXT, WHOLE], "minItems": 2, "maxItems": 2},
    "contains": {"type": "array", "contains": {"const": 0}, "items": WHOLE, "maxItems": 4},
    "record": record(["name"], name=TEXT, age={"type": "integer", "minimum": 0}, active={"type": "boolean"}),
    "open": {"type": "object", "properties": {"id": WHOLE}, "required": ["id"]},
    "nested": record(["a"], a=record(["b"], b=record(["c"], c=TEXT, d={"type": "array", "items": WHOLE}))),
    "map": {"type": "object", "additionalProperties": WHOLE, "maxProperties": 4},
    "keys": {"type": "object", "patternProperties": {"^x-": TEXT}, "additionalProperties": False},
    "named": {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": WHOLE},
    "sized": {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 3,
        "additionalProperties": {"type": "boolean"},
    },
    "dependent": {**record(a=TEXT, b=TEXT), "dependentRequired": {"a": ["b"]}},
    "conditional": {
        **record(["kind"], kind={"enum": ["n", "t"]}, value={}),
        "if": {"properties": {"kind": {"const": "n"}}},
        "then": {"properties": {"value": WHOLE}},
        "else": {"properties": {"value": TEXT}},
    },
    "any-of": {"anyOf": [TEXT, record(["n"], n=WHOLE), {"type": "array", "items": {"type": "boolean"}}]},
    "one-of": {"oneOf": [{"type": "integer", "minimum": 10}, {"type": "string", "maxLength": 3}]},
    "all-of": {
        "allOf": [
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
            {"type": "object", "properties": {"b": WHOLE}},
        ]
    },
    "discriminated": {"oneOf": [CIRCLE, SQUARE], "discriminator": {"propertyName": "kind"}},
    "anything": {},
    "odd-names": record(["a b"], **{"a b": TEXT, "a.b": WHOLE, "$ref-like": TEXT, "ünï": WHOLE, "x[0]": TEXT}),
}
TREES: dict[str, Json] = {"tree": TREE}
"""What values refer to."""


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


def _field(value: Json) -> tuple[Json, Json, Any]:
    return record(["value"], value=value), value, its_value


def _optional(value: Json) -> tuple[Json, Json, Any]:
    schema = record(value=value, more={"type": "integer", "default": 1})
    return schema, schema, same


def _list(value: Json) -> tuple[Json, Json, Any]:
    schema = record(["items"], items={"type": "array", "items": value, "maxItems": 3})
    return schema, schema, same


def _map(value: Json) -> tuple[Json, Json, Any]:
    by = {"type": "object", "additionalProperties": value, "maxProperties": 3}
    return record(["value"], value=by), by, its_value


def _nullable(value: Json) -> tuple[Json, Json, Any]:
    either = {"anyOf": [value, {"type": "null"}]}
    return record(["value"], value=either), either, its_value


def _shared(value: Json) -> tuple[Json, Json, Any]:
    shared = {"$ref": "#/$defs/value"}
    schema = record(["first", "rest"], first=shared, rest={"type": "array", "items": shared, "maxItems": 2})
    whole = {**schema, "$defs": {"value": value}}
    return whole, whole, same


USES: dict[str, tuple[OperationType, Callable[[Json], tuple[Json, Json, Any]]]] = {
    "field": (OperationType.QUERY, _field),
    "optional": (OperationType.QUERY, _optional),
    "list": (OperationType.MUTATION, _list),
    "map": (OperationType.MUTATION, _map),
    "nullable": (OperationType.MUTATION, _nullable),
    "shared": (OperationType.MUTATION, _shared),
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
        items = record(["items"], items={"type": "array", "items": value, "maxItems": 3})
        yield _spec("stream", name, OperationType.SUBSCRIPTION, items, shown), each
        kind = OperationType.QUERY if value.get("type") == "object" else OperationType.MUTATION
        yield _spec("whole", name, kind, value, shown), same
    tree = {"$ref": "#/$defs/tree", "$defs": TREES}
    yield _spec("recursive", "tree", OperationType.MUTATION, tree, tree), same
    forest = {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}
    yield _spec("recursive", "forest", OperationType.MUTATION, {**record(["value"], value=forest), "$defs": TREES},
                {**forest, "$defs": TREES}), its_value  # fmt: skip


def _spec(use: str, name: str, kind: OperationType, input_schema: Json, output_schema: Json) -> OperationSpec:
    return OperationSpec(
        namespace=use, name=name, type=kind, input_schema=input_schema, output_schema=output_schema,
        description=f"<script>alert('{name}')</script> {use} of {name}.",
    )  # fmt: skip


def _bytes(content_type: str, body: bytes) -> Any:
    async def answer(input: Any, context: Any) -> Any:
        return http_envelope(body, content_type=content_type, url="http://up/x")

    return answer


async def refuses(input: Any, context: Any) -> Any:
    """A declared error for what is larger than 5, of a status of its own."""
    if input["n"] > 5:
        raise CallError("TOO_LARGE", "larger than 5", {"n": input["n"]})
    return input["n"]


def register(registry: OperationRegistry, *, every: int = 1) -> list[str]:
    """Register the operations, or one of ``every`` so many; answers their ids."""
    found = list(_specs())[::every]
    for spec, handler in found:
        registry.register(spec, handler)
    for content_type, body in (
        ("image/png", b"\x89PNG"),
        ("text/html", b"<script>1</script>"),
        ("text/csv", b"a,b"),
    ):
        spec = OperationSpec(namespace="bytes", name=content_type.replace("/", "-"), type="query",
                             input_schema=record())  # fmt: skip
        registry.register(spec, _bytes(content_type, body))
        found.append((spec, None))
    errors = [
        {"code": "TOO_LARGE", "description": "n > 5", "httpStatus": 409, "schema": record(["n"], n=WHOLE)},
    ]
    spec = OperationSpec(namespace="errors", name="refuses", type="query", input_schema=record(["n"], n=WHOLE),
                         output_schema=WHOLE, error_schemas=errors)  # fmt: skip
    registry.register(spec, refuses)
    return [spec.id for spec, _ in found] + [spec.id]
