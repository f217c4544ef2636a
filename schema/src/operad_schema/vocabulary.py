"""The table of JSON Schema keywords, and the names of dialects and meta-schemas.

To add a keyword, write its line in `KEYWORDS`. A keyword that holds no schemas and tests one kind of value is
then complete: `reader` reads it by `takes`, `keywords` compiles its check from `fails`, `finding` and `explaining`
report it with `words`. A keyword that holds schemas also needs its check in `checking`, its errors in `finding`,
and its cast in `casting`, `objects` or `unions` if it changes values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from operad_schema.values import any_of, has_duplicates, is_multiple, short, type_name

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
"""The draft of each dialect, as a number: 4, 6, 7, 2019 or 2020."""
META_SCHEMAS = {
    "json-schema.org/draft-04/schema": "draft4",
    "json-schema.org/draft-06/schema": "draft6",
    "json-schema.org/draft-07/schema": "draft7",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft/2020-12/schema": "2020-12",
    "spec.openapis.org/oas/3.1/dialect/base": "openapi-3.1",
}
"""The dialect for each value of `$schema`, written without the scheme and the empty fragment."""

Words = Callable[[Any, Any], tuple[str, str]]
"""A function of the keyword's value and the received value. It returns the texts for `expected` and `got`."""


class Keyword(NamedTuple):
    """The properties of one keyword of JSON Schema."""

    holds: Literal["", "schema", "list", "map"] = ""
    """The form in which it holds schemas; empty if it holds none."""
    applies: Literal["nothing", "itself", "one part", "each part"] = "nothing"
    """Where its schemas apply: to nothing (definitions), to the value itself, to one part of it, or to many."""
    since: int = 4
    until: int = 9999
    kind: Literal["", "number", "string", "array", "object"] = ""
    """The kind of value that it tests; other values always satisfy it. Empty for any value."""
    takes: str = ""
    """The name of its reader in a table of `operad_schema.reader`; empty if it is read by `holds`."""
    fails: Callable[[Any, Any], bool] | None = None
    """A test that returns True for an invalid value of its kind. None if `operad_schema.checking` checks it."""
    words: Words | None = None
    """The texts of its errors. None if its errors are those of the schemas that it holds."""
    fragile: bool = False
    """Whether an array or object can satisfy it while its cast does not."""

    def counts(self, draft: int) -> bool:
        """Return True if the keyword exists in a draft, given as in `DIALECTS`."""
        return self.since <= draft <= self.until


def _is_no_multiple(value: Any, factor: Any) -> bool:
    return not is_multiple(value, factor)


def _fewer(value: Any, least: int) -> bool:
    return len(value) < least


def _more(value: Any, most: int) -> bool:
    return len(value) > most


def _count(limit: str, singular: str, plural: str) -> Words:
    return lambda wanted, value: (f"{limit} {wanted} {singular if wanted == 1 else plural}", str(len(value)))


def _bound(sign: str) -> Words:
    return lambda wanted, value: (f"a number {sign} {short(wanted)}", short(value))


def _matching(limit: str, got: str) -> Words:
    return lambda wanted, _value: (f"an array with {limit} {wanted} matching items", got)


def _fixed(expected: str, got: str) -> Words:
    return lambda _wanted, _value: (expected, got)


def _type(wanted: Any, value: Any) -> tuple[str, str]:
    return wanted if isinstance(wanted, str) else " or ".join(wanted), type_name(value)


def _one_of(wanted: Any, value: Any) -> tuple[str, str]:
    return any_of(wanted), short(value)


def _undeclared(names: Any, _value: Any) -> tuple[str, str]:
    return "no undeclared property", ", ".join(map(short, names[:5]))


KEYWORDS: dict[str, Keyword] = {
    # References and definitions
    "$ref": Keyword(),
    "$dynamicRef": Keyword(since=2020),
    "$recursiveRef": Keyword(since=2019, until=2019),
    "$defs": Keyword("map"),
    "definitions": Keyword("map"),
    # Any value
    "type": Keyword(takes="types", words=_type),
    "enum": Keyword(takes="values", words=_one_of),
    "const": Keyword(since=6, takes="values", words=lambda wanted, value: (short(wanted), short(value))),
    "default": Keyword(takes="default"),
    "format": Keyword(takes="format", fails=lambda value, one: one.fails(value),
                      words=lambda one, value: (one.expected, short(value))),
    # Schemas of the value itself
    "allOf": Keyword("list", "itself"),
    "anyOf": Keyword("list", "itself"),
    "oneOf": Keyword("list", "itself", fragile=True),
    "not": Keyword("schema", "itself", fragile=True,
                   words=lambda _, value: ("a value outside the excluded schema", short(value))),
    "if": Keyword("schema", "itself", since=7, fragile=True),
    "then": Keyword("schema", "itself", since=7),
    "else": Keyword("schema", "itself", since=7),
    "dependentSchemas": Keyword("map", "itself", since=2019, kind="object", takes="dependencies", fragile=True),
    "dependencies": Keyword("map", "itself", until=7, kind="object", takes="dependencies"),
    # Objects
    "properties": Keyword("map", "one part", kind="object"),
    "patternProperties": Keyword("map", "each part", kind="object", takes="patterned"),
    "additionalProperties": Keyword("schema", "each part", kind="object", words=_undeclared),
    "unevaluatedProperties": Keyword("schema", "each part", since=2019, kind="object", words=_undeclared),
    "propertyNames": Keyword("schema", "each part", since=6, kind="object", fragile=True),
    "required": Keyword(kind="object", takes="names", words=lambda name, _: (f"the property {name!r}", "none")),
    "dependentRequired": Keyword(since=2019, kind="object", takes="dependencies", fragile=True,
                                 words=_fixed("the properties that others depend on", "some missing")),
    "minProperties": Keyword(kind="object", takes="count", fails=_fewer, fragile=True,
                             words=_count("at least", "property", "properties")),
    "maxProperties": Keyword(kind="object", takes="count", fails=_more, fragile=True,
                             words=_count("at most", "property", "properties")),
    # Arrays
    "items": Keyword("schema", "each part", kind="array",
                     words=lambda most, value: (f"at most {most} items", str(len(value)))),
    "prefixItems": Keyword("list", "one part", since=2020, kind="array"),
    "additionalItems": Keyword("schema", "each part", until=2019, kind="array"),
    "unevaluatedItems": Keyword("schema", "each part", since=2019, kind="array",
                                words=_fixed("no further items", "some")),
    "contains": Keyword("schema", "each part", since=6, kind="array", fragile=True,
                        words=_fixed("an array with a matching item", "none")),
    "minContains": Keyword(since=2019, kind="array", takes="count", words=_matching("at least", "fewer")),
    "maxContains": Keyword(since=2019, kind="array", takes="count", words=_matching("at most", "more")),
    "minItems": Keyword(kind="array", takes="count", fails=_fewer, words=_count("at least", "item", "items")),
    "maxItems": Keyword(kind="array", takes="count", fails=_more, words=_count("at most", "item", "items")),
    "uniqueItems": Keyword(kind="array", takes="flag", fails=has_duplicates, fragile=True,
                           words=_fixed("unique items", "the same item twice")),
    # Strings
    "minLength": Keyword(kind="string", takes="count", fails=_fewer,
                         words=_count("at least", "character", "characters")),
    "maxLength": Keyword(kind="string", takes="count", fails=_more,
                         words=_count("at most", "character", "characters")),
    "pattern": Keyword(kind="string", takes="pattern", fails=lambda text, pattern: not pattern.matches(text),
                       words=lambda one, value: (f"a string that matches {short(one.written)}", short(value))),
    "contentSchema": Keyword("schema", since=2019),
    # Numbers. Each tests for a violation, so that NaN, for which every comparison is false, violates none.
    "minimum": Keyword(kind="number", takes="number", fails=operator.lt, words=_bound(">=")),
    "maximum": Keyword(kind="number", takes="number", fails=operator.gt, words=_bound("<=")),
    "exclusiveMinimum": Keyword(kind="number", takes="number", fails=operator.le, words=_bound(">")),
    "exclusiveMaximum": Keyword(kind="number", takes="number", fails=operator.ge, words=_bound("<")),
    "multipleOf": Keyword(kind="number", takes="number", fails=_is_no_multiple,
                          words=lambda wanted, value: (f"a multiple of {short(wanted)}", short(value))),
    # OpenAPI: which branch of a union a value belongs to, see `operad_schema.tags` and `operad_schema.kinds`.
    "discriminator": Keyword(takes="discriminator", words=_one_of),
}  # fmt: skip
"""Every keyword that tests values, changes them or holds schemas. `items` may also hold a list."""

ANNOTATIONS = (
    "$comment", "title", "description", "format", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "contentEncoding", "contentMediaType",
)  # fmt: skip
"""Keywords that are read for an export only. `format` is also read if the caller requests its check."""

SIBLINGS = "x-operad-siblings"
"""The key in a bundle for keywords beside a `$ref`, which hides them from validation (drafts 4 to 7)."""


def subschemas(node: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the subschemas of a schema that is not in the normal form, each with the tokens that lead to it."""
    for key, word in KEYWORDS.items():
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
