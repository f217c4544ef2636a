"""The keywords of JSON Schema, in one table: what each holds, where that applies, and in which drafts it counts.

A draft is a number: 4, 6, 7, 2019 or 2020.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

DIALECTS = {
    "draft4": 4,
    "draft6": 6,
    "draft7": 7,
    "2019-09": 2019,
    "2020-12": 2020,
    "openapi-3.0": 4,
    "openapi-3.1": 2020,
}
"""The draft that each dialect reads by."""
META_SCHEMAS = {
    "json-schema.org/draft-04/schema": "draft4",
    "json-schema.org/draft-06/schema": "draft6",
    "json-schema.org/draft-07/schema": "draft7",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft/2020-12/schema": "2020-12",
    "spec.openapis.org/oas/3.1/dialect/base": "openapi-3.1",
}
"""The dialect that a `$schema` names, without its scheme and its empty fragment."""


class Word(NamedTuple):
    """A keyword. `holds` says in which form it holds schemas, if it does; `applies` to what of the value they
    apply: to itself, to parts of it, or to nothing (definitions)."""

    holds: Literal["", "schema", "list", "map"] = ""
    applies: Literal["itself", "parts", "nothing"] = "nothing"
    since: int = 4
    until: int = 9999

    def counts(self, draft: int) -> bool:
        """Whether the keyword means something in a draft."""
        return self.since <= draft <= self.until


WORDS: dict[str, Word] = {
    "$ref": Word(),
    "$dynamicRef": Word(since=2020),
    "$recursiveRef": Word(since=2019, until=2019),
    "$defs": Word("map"),
    "definitions": Word("map"),
    "type": Word(),
    "enum": Word(),
    "const": Word(since=6),
    "default": Word(),
    "allOf": Word("list", "itself"),
    "anyOf": Word("list", "itself"),
    "oneOf": Word("list", "itself"),
    "not": Word("schema", "itself"),
    "if": Word("schema", "itself", since=7),
    "then": Word("schema", "itself", since=7),
    "else": Word("schema", "itself", since=7),
    "dependentSchemas": Word("map", "itself", since=2019),
    "dependencies": Word("map", "itself", until=7),
    "dependentRequired": Word(since=2019),
    "properties": Word("map", "parts"),
    "patternProperties": Word("map", "parts"),
    "additionalProperties": Word("schema", "parts"),
    "unevaluatedProperties": Word("schema", "parts", since=2019),
    "propertyNames": Word("schema", "parts", since=6),
    "required": Word(),
    "minProperties": Word(),
    "maxProperties": Word(),
    "items": Word("schema", "parts"),
    "prefixItems": Word("list", "parts", since=2020),
    "additionalItems": Word("schema", "parts", until=2019),
    "unevaluatedItems": Word("schema", "parts", since=2019),
    "contains": Word("schema", "parts", since=6),
    "minContains": Word(since=2019),
    "maxContains": Word(since=2019),
    "minItems": Word(),
    "maxItems": Word(),
    "uniqueItems": Word(),
    "minLength": Word(),
    "maxLength": Word(),
    "pattern": Word(),
    "contentSchema": Word("schema", since=2019),
    "minimum": Word(),
    "maximum": Word(),
    "exclusiveMinimum": Word(),
    "exclusiveMaximum": Word(),
    "multipleOf": Word(),
}
"""Every keyword that says something about values or holds schemas. `items` may also hold a list."""

ANNOTATIONS = (
    "$comment", "title", "description", "format", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "contentEncoding", "contentMediaType",
)  # fmt: skip
"""What is left out but for an export."""

SIBLINGS = "x-operad-siblings"
"""In a bundle: what stood beside a `$ref` that hid it from validation (drafts 4 to 7), but not from the cast."""


def subschemas(node: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What a schema as written holds in the places of schemas, each with the tokens that lead to it."""
    for key, word in WORDS.items():
        if not word.holds or key not in node:
            continue
        value = node[key]
        if isinstance(value, list) and (word.holds == "list" or key == "items"):
            for position, child in enumerate(value):
                yield (key, str(position)), child
        elif isinstance(value, Mapping) and word.holds == "schema":
            yield (key,), value
        elif isinstance(value, Mapping) and word.holds == "map":
            for name, child in value.items():
                yield (key, name), child
