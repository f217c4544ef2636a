"""What becomes of each value, by a cast and by one that keeps; and what is ignored of each schema, with the reason."""

import logging
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operad_schema import from_schema
from operad_schema.characters import property_ranges
from operad_schema.compiling import _text_key, compiled
from operad_schema.groups import components
from operad_schema.limits import DEFAULT, Limits
from operad_schema.nodes import FEW, MANY
from operad_schema.references import dialect_of, follow, join, parse_pointer
from operad_schema.translating import translate
from operad_schema.unions import branch_types

INT, STR, NUM, BOOL = ({"type": name} for name in ("integer", "string", "number", "boolean"))

Traced = tuple[Any, bool, bool, bool]

CASTS: list[tuple[Any, Any, Traced, Traced]] = [
    # schema, value, then of a cast and of one that keeps: the value, whether it is clean, dropped, invented
    (
        {"type": "object", "properties": {"a": INT, "b": STR}, "required": ["a", "b"]},
        {},
        ({"a": 0, "b": ""}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT, "b": STR}, "required": ["a", "b"]},
        {"a": 1},
        ({"a": 1, "b": ""}, False, False, True),
        ({"a": 1}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT, "b": STR}, "required": ["a", "b"]},
        {"a": "1", "b": 2, "c": 3},
        ({"a": 1, "b": "2"}, True, True, False),
        ({"a": 1, "b": "2", "c": 3}, True, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT, "b": STR}, "required": ["a", "b"]},
        [1],
        ([1], False, False, False),
        ([1], False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT, "b": STR}, "required": ["a", "b"]},
        5,
        (5, False, False, False),
        (5, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT, "b": False}},
        {"a": 1, "b": 2},
        ({"a": 1}, True, True, False),
        ({"a": 1, "b": 2}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT, "b": False}},
        {"b": 2},
        ({}, True, True, False),
        ({"b": 2}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT, "b": False}, "additionalProperties": STR},
        {"a": 1, "b": 2, "c": 5},
        ({"a": 1, "c": "5"}, True, True, False),
        ({"a": 1, "b": "2", "c": "5"}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT, "b": False}, "additionalProperties": STR},
        {"c": None},
        ({"c": None}, False, False, False),
        ({"c": None}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT}, "additionalProperties": True},
        {"a": "1", "z": 9},
        ({"a": 1, "z": 9}, True, False, False),
        ({"a": 1, "z": 9}, True, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT}, "additionalProperties": False},
        {"a": "1", "z": 9},
        ({"a": 1}, True, True, False),
        ({"a": 1, "z": 9}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT}, "unevaluatedProperties": INT},
        {"a": "1", "z": "9"},
        ({"a": 1, "z": 9}, True, False, False),
        ({"a": 1, "z": 9}, True, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT}, "patternProperties": {"^x": INT, "^y": False}},
        {"a": "1", "x1": "2", "y1": 3, "z": 4},
        ({"a": 1, "x1": 2}, True, True, False),
        ({"a": 1, "x1": 2, "y1": 3, "z": 4}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"xa": STR}, "patternProperties": {"^x": {"maxLength": 1}}},
        {"xa": 5},
        ({"xa": "5"}, True, False, False),
        ({"xa": "5"}, True, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT}, "required": ["k"]},
        {"k": 1, "z": 2},
        ({"k": 1}, True, True, False),
        ({"k": 1, "z": 2}, True, False, False),
    ),
    (
        {
            "type": "object",
            "properties": {"a": INT},
            "if": {"required": ["k"]},
            "then": {"properties": {"t": INT}},
            "else": {"patternProperties": {"^e": INT}},
        },
        {"k": 1, "t": "2", "e1": 3, "z": 4},
        ({"k": 1, "t": "2", "e1": 3}, False, True, False),
        ({"k": 1, "t": "2", "e1": 3, "z": 4}, False, False, False),
    ),
    (
        {
            "type": "object",
            "properties": {"a": INT},
            "dependentSchemas": {"d": {"properties": {"e": INT}}},
            "dependentRequired": {"f": ["g"]},
        },
        {"d": 1, "e": 2, "f": 3, "g": 4, "z": 5},
        ({"d": 1, "e": 2, "f": 3, "g": 4}, True, True, False),
        ({"d": 1, "e": 2, "f": 3, "g": 4, "z": 5}, True, False, False),
    ),
    (
        {
            "type": "object",
            "properties": {"a": INT},
            "if": {"anyOf": [{"properties": {"k": INT}}, {"oneOf": [{"required": ["m"]}]}]},
        },
        {"k": "1", "m": 2, "z": 3},
        ({"k": "1", "m": 2}, True, True, False),
        ({"k": "1", "m": 2, "z": 3}, True, False, False),
    ),
    ({"type": "object"}, {"a": 1}, ({"a": 1}, True, False, False), ({"a": 1}, True, False, False)),
    ({"type": "object"}, [1], ([1], False, False, False), ([1], False, False, False)),
    ({"additionalProperties": False}, {"a": 1}, ({}, True, True, False), ({"a": 1}, False, False, False)),
    ({"additionalProperties": False}, {}, ({}, True, False, False), ({}, True, False, False)),
    ({"additionalProperties": INT}, {"a": "1"}, ({"a": 1}, True, False, False), ({"a": 1}, True, False, False)),
    (
        {"patternProperties": {"^x": INT}},
        {"x": "1", "y": 2},
        ({"x": 1}, True, True, False),
        ({"x": 1, "y": 2}, True, False, False),
    ),
    (
        {"type": "object", "properties": {"a": {"default": 5}}},
        {},
        ({"a": 5}, True, False, False),
        ({"a": 5}, True, False, False),
    ),
    (
        {"type": "object", "properties": {"a": {"default": 5}}},
        {"a": 1},
        ({"a": 1}, True, False, False),
        ({"a": 1}, True, False, False),
    ),
    (
        {
            "properties": {
                "a": {"default": [1]},
                "b": {"type": "object", "properties": {"c": {"default": 2}}, "required": ["c"]},
            },
            "required": ["b"],
        },
        {},
        ({"a": [1], "b": {"c": 2}}, False, False, True),
        ({"a": [1]}, False, False, False),
    ),
    ({"items": INT}, ["1", 2, "x"], ([1, 2, "x"], False, False, False), ([1, 2, "x"], False, False, False)),
    ({"items": INT}, [], ([], True, False, False), ([], True, False, False)),
    ({"type": "array"}, [1], ([1], True, False, False), ([1], True, False, False)),
    ({"type": "array"}, (1, 2), ([1, 2], True, False, False), ([1, 2], True, False, False)),
    ({"items": False}, [1], ([], True, True, False), ([1], False, False, False)),
    ({"items": False}, [], ([], True, False, False), ([], True, False, False)),
    (
        {"prefixItems": [INT, STR], "items": False},
        ["1", 2, 3],
        ([1, "2"], True, True, False),
        ([1, "2", 3], False, False, False),
    ),
    ({"prefixItems": [INT, STR], "items": False}, ["1"], ([1], True, False, False), ([1], True, False, False)),
    ({"prefixItems": [INT, STR], "minItems": 2}, ["1"], ([1, ""], False, False, True), ([1], False, False, False)),
    ({"prefixItems": [INT, STR], "minItems": 2}, [], ([0, ""], False, False, True), ([], False, False, False)),
    (
        {"prefixItems": [INT, {"default": "d"}], "minItems": 5},
        [],
        ([0, "d"], False, False, True),
        ([], False, False, False),
    ),
    (
        {"prefixItems": [INT, {"default": "d"}], "minItems": 5},
        ["3", 4, "x"],
        ([3, 4, "x"], False, False, False),
        ([3, 4, "x"], False, False, False),
    ),
    (
        {"prefixItems": [INT], "items": STR},
        ["1", 2, 3],
        ([1, "2", "3"], True, False, False),
        ([1, "2", "3"], True, False, False),
    ),
    (
        {"prefixItems": [INT], "unevaluatedItems": False},
        ["1", 2],
        ([1], True, True, False),
        ([1, 2], False, False, False),
    ),
    (
        {"prefixItems": [INT], "unevaluatedItems": STR},
        ["1", 2],
        ([1, "2"], True, False, False),
        ([1, "2"], True, False, False),
    ),
    (
        {"contains": INT, "unevaluatedItems": False},
        ["1", 2],
        (["1", 2], False, False, False),
        (["1", 2], False, False, False),
    ),
    ({"prefixItems": [INT, {}], "minItems": 2}, [], ([0], False, False, True), ([], False, False, False)),
    (INT, "5", (5, True, False, False), (5, True, False, False)),
    (INT, "5.0", (5, True, False, False), (5, True, False, False)),
    (INT, "5e0", (5, True, False, False), (5, True, False, False)),
    (INT, "5.5", ("5.5", False, False, False), ("5.5", False, False, False)),
    (INT, "x", ("x", False, False, False), ("x", False, False, False)),
    (INT, 5.0, (5, True, False, False), (5, True, False, False)),
    (INT, True, (1, True, False, False), (1, True, False, False)),
    (INT, None, (None, False, False, False), (None, False, False, False)),
    (INT, "9" * 331, ("9" * 331, False, False, False), ("9" * 331, False, False, False)),
    (INT, "1e400", ("1e400", False, False, False), ("1e400", False, False, False)),
    (INT, "-0", (0, True, False, False), (0, True, False, False)),
    (INT, "01", ("01", False, False, False), ("01", False, False, False)),
    (INT, [], ([], False, False, False), ([], False, False, False)),
    (INT, 1.5, (1.5, False, False, False), (1.5, False, False, False)),
    (NUM, "5", (5, True, False, False), (5, True, False, False)),
    (NUM, "5.5", (5.5, True, False, False), (5.5, True, False, False)),
    (NUM, "1e3", (1000.0, True, False, False), (1000.0, True, False, False)),
    (NUM, "1e400", ("1e400", False, False, False), ("1e400", False, False, False)),
    (NUM, True, (1, True, False, False), (1, True, False, False)),
    (NUM, "x", ("x", False, False, False), ("x", False, False, False)),
    (NUM, None, (None, False, False, False), (None, False, False, False)),
    (NUM, " 1", (" 1", False, False, False), (" 1", False, False, False)),
    (STR, 5, ("5", True, False, False), ("5", True, False, False)),
    (STR, 5.0, ("5", True, False, False), ("5", True, False, False)),
    (STR, 5.5, ("5.5", True, False, False), ("5.5", True, False, False)),
    (STR, True, ("true", True, False, False), ("true", True, False, False)),
    (STR, False, ("false", True, False, False), ("false", True, False, False)),
    (STR, None, (None, False, False, False), (None, False, False, False)),
    (STR, 2**4096, (2**4096, False, False, False), (2**4096, False, False, False)),
    (STR, math.inf, (math.inf, False, False, False), (math.inf, False, False, False)),
    (STR, [1], ([1], False, False, False), ([1], False, False, False)),
    (BOOL, "true", (True, True, False, False), (True, True, False, False)),
    (BOOL, "FALSE", (False, True, False, False), (False, True, False, False)),
    (BOOL, "1", (True, True, False, False), (True, True, False, False)),
    (BOOL, "0", (False, True, False, False), (False, True, False, False)),
    (BOOL, 1, (True, True, False, False), (True, True, False, False)),
    (BOOL, 0, (False, True, False, False), (False, True, False, False)),
    (BOOL, 1.0, (True, True, False, False), (True, True, False, False)),
    (BOOL, 2, (2, False, False, False), (2, False, False, False)),
    (BOOL, "yes", ("yes", False, False, False), ("yes", False, False, False)),
    (BOOL, "falsely", ("falsely", False, False, False), ("falsely", False, False, False)),
    (BOOL, None, (None, False, False, False), (None, False, False, False)),
    ({"type": ["integer", "string"]}, "5", ("5", True, False, False), ("5", True, False, False)),
    ({"type": ["integer", "string"]}, 5.0, (5, True, False, False), (5, True, False, False)),
    ({"type": ["integer", "string"]}, 5.5, ("5.5", True, False, False), ("5.5", True, False, False)),
    ({"type": ["integer", "string"]}, True, (1, True, False, False), (1, True, False, False)),
    ({"type": ["integer", "number"]}, 5.0, (5.0, True, False, False), (5.0, True, False, False)),
    ({"type": ["integer", "number"]}, "5", (5, True, False, False), (5, True, False, False)),
    ({"type": ["string", "integer"]}, True, ("true", True, False, False), ("true", True, False, False)),
    ({"type": ["string", "integer"]}, 5.5, ("5.5", True, False, False), ("5.5", True, False, False)),
    ({"type": ["null", "integer"]}, "5", (5, True, False, False), (5, True, False, False)),
    ({"type": ["null", "integer"]}, "null", ("null", False, False, False), ("null", False, False, False)),
    ({"type": ["null", "integer"]}, None, (None, True, False, False), (None, True, False, False)),
    ({"enum": [1, "2", True, None]}, "1", (1, True, False, False), (1, True, False, False)),
    ({"enum": [1, "2", True, None]}, 2, ("2", True, False, False), ("2", True, False, False)),
    ({"enum": [1, "2", True, None]}, "true", (True, True, False, False), (True, True, False, False)),
    ({"enum": [1, "2", True, None]}, 1.0, (1, True, False, False), (1, True, False, False)),
    ({"enum": [1, "2", True, None]}, "x", ("x", False, False, False), ("x", False, False, False)),
    ({"enum": [1, "2", True, None]}, [1], ([1], False, False, False), ([1], False, False, False)),
    ({"enum": [1, "2", True, None]}, "null", ("null", False, False, False), ("null", False, False, False)),
    ({"enum": [1, "2", True, None]}, 1, (1, True, False, False), (1, True, False, False)),
    ({"const": 5}, "5", (5, True, False, False), (5, True, False, False)),
    ({"const": 5}, 5.0, (5, True, False, False), (5, True, False, False)),
    ({"const": 5}, "6", ("6", False, False, False), ("6", False, False, False)),
    ({"enum": ["1", 1]}, 1.0, (1, True, False, False), (1, True, False, False)),
    ({"enum": ["1", 1]}, True, (1, True, False, False), (1, True, False, False)),
    ({"type": "string", "enum": ["1", "true", 5]}, 1, ("1", True, False, False), ("1", True, False, False)),
    (
        {"type": "string", "enum": ["1", "true", 5]},
        True,
        ("true", True, False, False),
        ("true", True, False, False),
    ),
    ({"type": "string", "enum": ["1", "true", 5]}, 5, (5, False, False, False), (5, False, False, False)),
    ({"enum": [[1], {"a": 1}]}, [1.0], ([1.0], True, False, False), ([1.0], True, False, False)),
    ({"enum": [[1], {"a": 1}]}, "x", ("x", False, False, False), ("x", False, False, False)),
    ({"anyOf": [INT, {"type": "null"}]}, "5", (5, True, False, False), (5, True, False, False)),
    ({"anyOf": [INT, {"type": "null"}]}, "x", ("x", False, False, False), ("x", False, False, False)),
    ({"anyOf": [INT, {"type": "null"}]}, None, (None, True, False, False), (None, True, False, False)),
    (
        {"anyOf": [{"type": "object", "properties": {"a": INT}}, {"type": "object", "properties": {"b": INT}}]},
        {"a": "1"},
        ({}, True, True, False),
        ({"a": "1"}, True, False, False),
    ),
    (
        {"anyOf": [{"type": "object", "properties": {"a": INT}}, {"type": "object", "properties": {"b": INT}}]},
        {"b": "1", "c": 2},
        ({}, True, True, False),
        ({"b": "1", "c": 2}, True, False, False),
    ),
    (
        {"anyOf": [{"type": "object", "properties": {"a": INT}}, {"type": "object", "properties": {"b": INT}}]},
        {"a": "x", "b": 1},
        ({"b": 1}, True, True, False),
        ({"b": 1, "a": "x"}, True, False, False),
    ),
    (
        {"anyOf": [{"type": "object", "properties": {"a": INT}}, {"type": "object", "properties": {"b": INT}}]},
        {},
        ({}, True, False, False),
        ({}, True, False, False),
    ),
    (
        {
            "oneOf": [
                {"type": "object", "properties": {"k": {"const": "a"}, "v": INT}},
                {"type": "object", "properties": {"k": {"const": "b"}, "v": STR}},
            ]
        },
        {"k": "a", "v": "1"},
        ({"k": "a", "v": 1}, True, False, False),
        ({"k": "a", "v": 1}, True, False, False),
    ),
    (
        {
            "oneOf": [
                {"type": "object", "properties": {"k": {"const": "a"}, "v": INT}},
                {"type": "object", "properties": {"k": {"const": "b"}, "v": STR}},
            ]
        },
        {"k": "b", "v": 1},
        ({"k": "b", "v": "1"}, True, False, False),
        ({"k": "b", "v": "1"}, True, False, False),
    ),
    (
        {
            "oneOf": [
                {"type": "object", "properties": {"k": {"const": "a"}, "v": INT}},
                {"type": "object", "properties": {"k": {"const": "b"}, "v": STR}},
            ]
        },
        {"k": "c", "v": "1"},
        ({"k": "c", "v": "1"}, False, False, False),
        ({"k": "c", "v": "1"}, False, False, False),
    ),
    (
        {
            "oneOf": [
                {"type": "object", "properties": {"k": {"const": "a"}, "v": INT}},
                {"type": "object", "properties": {"k": {"const": "b"}, "v": STR}},
            ]
        },
        {"v": "1"},
        ({"v": "1"}, True, False, False),
        ({"v": "1"}, True, False, False),
    ),
    ({"anyOf": [INT, STR]}, 5.5, ("5.5", True, False, False), ("5.5", True, False, False)),
    ({"anyOf": [INT, STR]}, True, (1, True, False, False), (1, True, False, False)),
    ({"anyOf": [INT, STR]}, None, (None, False, False, False), (None, False, False, False)),
    ({"anyOf": [INT, STR]}, "5", ("5", True, False, False), ("5", True, False, False)),
    (
        {"anyOf": [{"type": "array", "items": INT}, {"type": "array", "items": STR}]},
        ["1"],
        (["1"], True, False, False),
        (["1"], True, False, False),
    ),
    (
        {"anyOf": [{"type": "array", "items": INT}, {"type": "array", "items": STR}]},
        ["a"],
        (["a"], True, False, False),
        (["a"], True, False, False),
    ),
    (
        {"anyOf": [{"type": "array", "items": INT}, {"type": "array", "items": STR}]},
        [1],
        ([1], True, False, False),
        ([1], True, False, False),
    ),
    (
        {
            "oneOf": [
                {"type": "object", "properties": {"a": INT}, "required": ["a"]},
                {"type": "object", "properties": {"a": STR}, "required": ["a"]},
            ]
        },
        {"a": "1"},
        ({"a": "1"}, True, False, False),
        ({"a": "1"}, True, False, False),
    ),
    (
        {
            "oneOf": [
                {"type": "object", "properties": {"a": INT}, "required": ["a"]},
                {"type": "object", "properties": {"a": STR}, "required": ["a"]},
            ]
        },
        {"a": 1},
        ({"a": 1}, True, False, False),
        ({"a": 1}, True, False, False),
    ),
    (
        {
            "oneOf": [
                {"type": "object", "properties": {"a": INT}, "required": ["a"]},
                {"type": "object", "properties": {"a": STR}, "required": ["a"]},
            ]
        },
        {"a": True},
        ({"a": 1}, True, False, False),
        ({"a": 1}, True, False, False),
    ),
    (
        {"allOf": [{"type": "object", "properties": {"a": INT}}, {"type": "object", "properties": {"b": INT}}]},
        {"a": "1", "b": "2", "c": 3},
        ({"a": 1, "b": 2}, True, True, False),
        ({"a": 1, "b": 2, "c": 3}, True, False, False),
    ),
    (
        {"allOf": [{"type": ["integer", "string"]}, {"type": ["number", "string"]}]},
        "5",
        ("5", True, False, False),
        ("5", True, False, False),
    ),
    (
        {"allOf": [{"type": ["integer", "string"]}, {"type": ["number", "string"]}]},
        5.0,
        (5, True, False, False),
        (5, True, False, False),
    ),
    ({"allOf": [NUM, INT]}, 5.0, (5, True, False, False), (5, True, False, False)),
    ({"allOf": [NUM, INT]}, "5", (5, True, False, False), (5, True, False, False)),
    ({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, "2", (2, True, False, False), (2, True, False, False)),
    ({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, "1", ("1", False, False, False), ("1", False, False, False)),
    (
        {"type": "object", "properties": {"a": INT}, "maxProperties": 1},
        {"z": 1},
        ({}, True, True, False),
        ({"z": 1}, True, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT}, "maxProperties": 1},
        {"a": "1"},
        ({"a": 1}, True, False, False),
        ({"a": 1}, True, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT}, "not": {"required": ["a"]}},
        {"z": 1},
        ({}, True, True, False),
        ({"z": 1}, True, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT}, "not": {"required": ["a"]}},
        {"a": "1"},
        ({"a": 1}, False, False, False),
        ({"a": 1}, False, False, False),
    ),
    ({"uniqueItems": True, "items": INT}, ["1", 1], ([1, 1], False, False, False), ([1, 1], False, False, False)),
    ({"uniqueItems": True, "items": INT}, ["1", "2"], ([1, 2], True, False, False), ([1, 2], True, False, False)),
    (
        {
            "$defs": {
                "n": {"type": "object", "properties": {"v": INT, "n": {"$ref": "#/$defs/n"}}, "required": ["v"]}
            },
            "$ref": "#/$defs/n",
        },
        {"v": "1", "n": {"v": "2", "x": 1}},
        ({"v": 1, "n": {"v": 2}}, True, True, False),
        ({"v": 1, "n": {"v": 2, "x": 1}}, True, False, False),
    ),
    (
        {
            "$defs": {
                "n": {"type": "object", "properties": {"v": INT, "n": {"$ref": "#/$defs/n"}}, "required": ["v"]}
            },
            "$ref": "#/$defs/n",
        },
        {"n": {}},
        ({"v": 0, "n": {"v": 0}}, False, False, True),
        ({"n": {}}, False, False, False),
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"anyOf": [{"type": "null"}, INT]}}},
        {},
        ({"a": None}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"anyOf": [INT, STR]}}},
        {},
        ({"a": 0}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"minimum": 2.5, "type": "integer"}}},
        {},
        ({"a": 3}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"minimum": 2.5, "type": "number"}}},
        {},
        ({"a": 2.5}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {
            "type": "object",
            "required": ["a"],
            "properties": {
                "a": {
                    "type": "object",
                    "required": ["b"],
                    "properties": {"b": {"type": "array"}, "c": {"default": 1}, "d": INT},
                }
            },
        },
        {},
        ({"a": {"b": [], "c": 1}}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"const": {"x": 1}}}},
        {},
        ({"a": {"x": 1}}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"enum": [None, 1]}}},
        {},
        ({"a": None}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {
            "type": "object",
            "required": ["a"],
            "properties": {"a": {"enum": ["z", None], "type": ["string", "null"]}},
        },
        {},
        ({"a": None}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {}}},
        {},
        ({}, False, False, False),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": False}},
        {},
        ({}, False, False, False),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": BOOL}},
        {},
        ({"a": False}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"anyOf": [{"enum": [None]}, INT]}}},
        {},
        ({"a": None}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"oneOf": [False, INT]}}},
        {},
        ({"a": 0}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {
            "type": "object",
            "required": ["a"],
            "properties": {
                "a": {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/properties/a"}}}
            },
        },
        {},
        ({}, False, False, False),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"anyOf": [{"$ref": "#"}, INT]}}},
        {},
        ({"a": 0}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"properties": {"p": {"enum": ["a"], "properties": {"x": INT}}}},
        {"p": {"x": "1", "y": 2}},
        ({"p": {"x": 1}}, False, True, False),
        ({"p": {"x": 1, "y": 2}}, False, False, False),
    ),
    (
        {"properties": {"p": {"enum": ["a"], "properties": {"x": INT}}}},
        {"p": "a"},
        ({"p": "a"}, True, False, False),
        ({"p": "a"}, True, False, False),
    ),
    (
        {"properties": {"p": {"enum": ["a"], "items": INT}}},
        {"p": ["1"]},
        ({"p": [1]}, False, False, False),
        ({"p": [1]}, False, False, False),
    ),
    (
        {"properties": {"p": {"enum": ["a", 5], "unevaluatedItems": INT}}},
        {"p": ["1"]},
        ({"p": [1]}, False, False, False),
        ({"p": [1]}, False, False, False),
    ),
    (
        {"properties": {"p": {"enum": ["a", 5], "unevaluatedItems": INT}}},
        {"p": "5"},
        ({"p": 5}, True, False, False),
        ({"p": 5}, True, False, False),
    ),
    (
        {"properties": {"p": {"enum": ["a", [1]]}}},
        {"p": ["1"]},
        ({"p": ["1"]}, False, False, False),
        ({"p": ["1"]}, False, False, False),
    ),
    (
        {"properties": {"p": {"enum": ["a", [1]]}}},
        {"p": [1]},
        ({"p": [1]}, True, False, False),
        ({"p": [1]}, True, False, False),
    ),
    (
        {"properties": {"p": {"type": ["string", "array"], "items": INT}}},
        {"p": ["1"]},
        ({"p": [1]}, True, False, False),
        ({"p": [1]}, True, False, False),
    ),
    (
        {"properties": {"p": {"type": ["string", "array"], "items": INT}}},
        {"p": 5},
        ({"p": "5"}, True, False, False),
        ({"p": "5"}, True, False, False),
    ),
    (
        {"properties": {"p": {"type": ["string", "object"], "properties": {"x": INT}}}},
        {"p": {"x": "1", "z": 1}},
        ({"p": {"x": 1}}, True, True, False),
        ({"p": {"x": 1, "z": 1}}, True, False, False),
    ),
    (
        {"properties": {"p": {"type": ["string", "object"], "properties": {"x": INT}}}},
        {"p": 5},
        ({"p": "5"}, True, False, False),
        ({"p": "5"}, True, False, False),
    ),
    (
        {"properties": {"p": {"anyOf": [INT, STR], "enum": [1, "1"]}}},
        {"p": 1},
        ({"p": 1}, True, False, False),
        ({"p": 1}, True, False, False),
    ),
    (
        {"properties": {"p": {"anyOf": [INT, STR], "enum": [1, "1"]}}},
        {"p": True},
        ({"p": 1}, True, False, False),
        ({"p": 1}, True, False, False),
    ),
    (
        {"properties": {"p": {}}},
        {"p": {"x": 1}},
        ({"p": {"x": 1}}, True, False, False),
        ({"p": {"x": 1}}, True, False, False),
    ),
    ({"properties": {"p": {}}}, {"p": [1]}, ({"p": [1]}, True, False, False), ({"p": [1]}, True, False, False)),
    (
        {"properties": {"p": True, "q": {"minimum": 1}}},
        {"p": [1], "q": "5"},
        ({"p": [1], "q": "5"}, True, False, False),
        ({"p": [1], "q": "5"}, True, False, False),
    ),
    (
        {"properties": {"p": {"type": "integer", "enum": [1, 2]}}},
        {"p": "1"},
        ({"p": 1}, True, False, False),
        ({"p": 1}, True, False, False),
    ),
    (
        {"properties": {"p": {"type": "integer", "enum": [1, 2]}}},
        {"p": 1.0},
        ({"p": 1}, True, False, False),
        ({"p": 1}, True, False, False),
    ),
    (
        {"properties": {"p": {"type": "integer", "enum": [1, 2]}}},
        {"p": [1]},
        ({"p": [1]}, False, False, False),
        ({"p": [1]}, False, False, False),
    ),
    (
        {"properties": {"p": {"enum": ["a", "b"]}}},
        {"p": "c"},
        ({"p": "c"}, False, False, False),
        ({"p": "c"}, False, False, False),
    ),
    (
        {"properties": {"p": {"enum": ["a", "b"]}}},
        {"p": 5},
        ({"p": 5}, False, False, False),
        ({"p": 5}, False, False, False),
    ),
    (
        {"items": {"enum": ["1", "2"]}},
        [1, "1", 2.0, 3],
        (["1", "1", "2", 3], False, False, False),
        (["1", "1", "2", 3], False, False, False),
    ),
    (
        {"items": {"type": "object", "properties": {"x": INT}}},
        [{"x": "1", "y": 1}, 5],
        ([{"x": 1}, 5], False, True, False),
        ([{"x": 1, "y": 1}, 5], False, False, False),
    ),
    ({"items": True}, [{"x": 1}], ([{"x": 1}], True, False, False), ([{"x": 1}], True, False, False)),
    (
        {"items": {}, "type": "array"},
        [{"x": 1}],
        ([{"x": 1}], True, False, False),
        ([{"x": 1}], True, False, False),
    ),
    ({"items": {}, "type": "array"}, (1,), ([1], True, False, False), ([1], True, False, False)),
    (
        {"prefixItems": [INT], "items": {"properties": {"x": INT}}},
        ["1", {"x": "1", "y": 2}],
        ([1, {"x": 1}], True, True, False),
        ([1, {"x": 1, "y": 2}], True, False, False),
    ),
    ({"allOf": [{"items": INT}, {"items": False}]}, ["1"], ([], True, True, False), ([1], False, False, False)),
    ({"allOf": [{"items": INT}, {"items": False}]}, [], ([], True, False, False), ([], True, False, False)),
    (
        {"allOf": [{"items": INT}, {"items": NUM}]},
        ["1", 2.0],
        ([1, 2], True, False, False),
        ([1, 2], True, False, False),
    ),
    (
        {"allOf": [{"prefixItems": [INT]}, {"prefixItems": [NUM, STR]}]},
        ["1", 5, "x"],
        ([1, "5", "x"], True, False, False),
        ([1, "5", "x"], True, False, False),
    ),
    (
        {"allOf": [{"properties": {"a": INT}}, {"properties": {"a": {"minimum": 5}}}]},
        {"a": "7"},
        ({"a": 7}, True, False, False),
        ({"a": 7}, True, False, False),
    ),
    (
        {"allOf": [{"properties": {"a": INT}}, {"properties": {"a": {"minimum": 5}}}]},
        {"a": "3"},
        ({"a": 3}, False, False, False),
        ({"a": 3}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT}, "required": ["a", "b"], "additionalProperties": STR},
        {},
        ({"a": 0}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT}, "required": ["a", "b"], "additionalProperties": STR},
        {"b": 5},
        ({"a": 0, "b": "5"}, False, False, True),
        ({"b": "5"}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "array"}}, "required": ["a", "b"]},
        {},
        ({"a": [], "b": []}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "array"}}, "required": ["a", "b"]},
        {"a": [1]},
        ({"a": [1], "b": []}, False, False, True),
        ({"a": [1]}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "array"}}, "required": ["a", "b"]},
        {"a": [1], "z": 1},
        ({"a": [1], "b": []}, False, True, True),
        ({"a": [1], "z": 1}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT}, "patternProperties": {"^x": INT}, "required": ["a"]},
        {"x": "1"},
        ({"a": 0, "x": 1}, False, False, True),
        ({"x": 1}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": INT}, "patternProperties": {"^x": INT}, "required": ["a"]},
        {"x": "1", "z": 2},
        ({"a": 0, "x": 1}, False, True, True),
        ({"x": 1, "z": 2}, False, False, False),
    ),
    (
        {"type": "object", "properties": {"a": False, "b": INT}, "patternProperties": {"^x": INT}},
        {"a": 1, "b": "2", "x": "3"},
        ({"b": 2, "x": 3}, True, True, False),
        ({"b": 2, "a": 1, "x": 3}, False, False, False),
    ),
    (
        {"minProperties": 2, "type": "object", "properties": {"a": INT}},
        {"a": "1", "b": 2},
        ({"a": 1}, False, True, False),
        ({"a": 1, "b": 2}, True, False, False),
    ),
    (
        {"minProperties": 2, "type": "object", "properties": {"a": INT}},
        {"a": "1"},
        ({"a": 1}, False, False, False),
        ({"a": 1}, False, False, False),
    ),
    ({"contains": INT, "items": STR}, ["1"], (["1"], False, False, False), (["1"], False, False, False)),
    ({"contains": INT, "items": STR}, [1], (["1"], False, False, False), (["1"], False, False, False)),
    (
        {"anyOf": [{"type": "object", "properties": {"a": INT}, "required": ["a"]}, STR]},
        {"a": "1", "b": 2},
        ({"a": 1}, True, True, False),
        ({"a": 1, "b": 2}, True, False, False),
    ),
    (
        {"anyOf": [{"type": "object", "properties": {"a": INT}, "required": ["a"]}, STR]},
        {},
        ({"a": 0}, False, False, True),
        ({}, False, False, False),
    ),
    (
        {"anyOf": [{"type": "object", "properties": {"a": INT}, "required": ["a"]}, STR]},
        5,
        ("5", True, False, False),
        ("5", True, False, False),
    ),
    (
        {
            "anyOf": [
                {"type": "object", "properties": {"a": INT, "k": {"const": "x"}}},
                {"type": "object", "properties": {"a": STR, "k": {"const": "y"}}},
            ]
        },
        {"k": "y", "a": 5},
        ({"a": "5", "k": "y"}, True, False, False),
        ({"a": "5", "k": "y"}, True, False, False),
    ),
    (
        {
            "anyOf": [
                {"type": "object", "properties": {"a": INT, "k": {"const": "x"}}},
                {"type": "object", "properties": {"a": STR, "k": {"const": "y"}}},
            ]
        },
        {"k": "x", "a": "5"},
        ({"a": 5, "k": "x"}, True, False, False),
        ({"a": 5, "k": "x"}, True, False, False),
    ),
    (
        {
            "anyOf": [
                {"type": "object", "properties": {"a": INT, "k": {"const": "x"}}},
                {"type": "object", "properties": {"a": STR, "k": {"const": "y"}}},
            ]
        },
        {"a": "5"},
        ({"a": "5"}, True, False, False),
        ({"a": "5"}, True, False, False),
    ),
    (
        {
            "anyOf": [
                {"type": "object", "properties": {"a": INT, "k": {"const": "x"}}},
                {"type": "object", "properties": {"a": STR, "k": {"const": "y"}}},
            ]
        },
        {"k": "z"},
        ({"k": "z"}, False, False, False),
        ({"k": "z"}, False, False, False),
    ),
    (
        {
            "oneOf": [
                {"type": "array", "items": INT, "minItems": 2},
                {"type": "array", "items": INT, "maxItems": 1},
            ]
        },
        ["1"],
        ([1], True, False, False),
        ([1], True, False, False),
    ),
    (
        {
            "oneOf": [
                {"type": "array", "items": INT, "minItems": 2},
                {"type": "array", "items": INT, "maxItems": 1},
            ]
        },
        ["1", "2"],
        ([1, 2], True, False, False),
        ([1, 2], True, False, False),
    ),
    (
        {
            "oneOf": [
                {"type": "array", "items": INT, "minItems": 2},
                {"type": "array", "items": INT, "maxItems": 1},
            ]
        },
        [],
        ([], True, False, False),
        ([], True, False, False),
    ),
    ({"anyOf": [False, INT]}, "5", (5, True, False, False), (5, True, False, False)),
    ({"anyOf": [False]}, "5", ("5", False, False, False), ("5", False, False, False)),
    (
        {"oneOf": [{"type": "null"}, {"type": "object", "properties": {"a": INT}}]},
        {"a": "1", "z": 1},
        ({"a": 1}, True, True, False),
        ({"a": 1, "z": 1}, True, False, False),
    ),
    (
        {"oneOf": [{"type": "null"}, {"type": "object", "properties": {"a": INT}}]},
        None,
        (None, True, False, False),
        (None, True, False, False),
    ),
    (
        {"oneOf": [{"type": "null"}, {"type": "object", "properties": {"a": INT}}]},
        "null",
        ("null", False, False, False),
        ("null", False, False, False),
    ),
    (
        {"properties": {"a": {"oneOf": [INT, {"type": "null"}], "default": None}}},
        {},
        ({"a": None}, True, False, False),
        ({"a": None}, True, False, False),
    ),
    (
        {"properties": {"a": {"oneOf": [INT, {"type": "null"}], "default": None}}},
        {"a": "5"},
        ({"a": 5}, True, False, False),
        ({"a": 5}, True, False, False),
    ),
    ({"anyOf": [STR, NUM]}, 5, (5, True, False, False), (5, True, False, False)),
    ({"anyOf": [STR, NUM]}, 5.5, (5.5, True, False, False), (5.5, True, False, False)),
]


@pytest.mark.parametrize(("schema", "value", "cast", "kept"), CASTS)
def test_a_value_is_cast_to_this(schema: Any, value: Any, cast: Traced, kept: Traced) -> None:
    before = repr(value)
    made = from_schema(schema)
    assert repr(made.tracer("complete")(value)) == repr(cast)  # by text: 1 is neither 1.0 nor True here
    assert repr(made.tracer("keep")(value)) == repr(kept)
    assert repr(made.cast(value, complete=True)) == repr(cast[0])
    plain = made.tracer()(value)
    assert repr(made.cast(value)) == repr(plain[0])
    assert plain[3] is False, "a cast invents nothing"
    if not cast[3]:
        assert repr(plain) == repr(cast)
    assert repr(value) == before


WARNINGS: list[tuple[Any, list[str]]] = [
    (
        {"type": "strin"},
        ["#: type: expected a type of JSON Schema or a list of them, got str 'strin': it is ignored"],
    ),
    ({"type": []}, ["#: type: expected a type of JSON Schema or a list of them, got list []: it is ignored"]),
    (
        {"type": ["string", 5]},
        ["#: type: expected a type of JSON Schema or a list of them, got list ['string', 5]: it is ignored"],
    ),
    ({"type": ["string", "string"]}, []),
    ({"enum": 5}, ["#: enum: expected an array, got int 5: it is ignored"]),
    ({"const": {1: 2}}, ["#: const: expected a JSON value, got dict: it is ignored"]),
    ({"enum": [object]}, ["#: enum: expected a JSON value, got type: it is ignored"]),
    ({"default": object}, ["#: default: expected a JSON value, got type: it is ignored"]),
    ({"minimum": "x"}, ["#: minimum: expected a number, got str 'x': it is ignored"]),
    ({"minimum": True}, ["#: minimum: expected a number, got bool True: it is ignored"]),
    ({"multipleOf": 0}, ["#: multipleOf: expected a number above 0, got int 0: it is ignored"]),
    ({"multipleOf": -1}, ["#: multipleOf: expected a number above 0, got int -1: it is ignored"]),
    ({"minLength": -1}, ["#: minLength: expected a whole number of at least 0, got int -1: it is ignored"]),
    ({"minLength": 1.5}, ["#: minLength: expected a whole number of at least 0, got float 1.5: it is ignored"]),
    ({"maxItems": "3"}, ["#: maxItems: expected a whole number of at least 0, got str '3': it is ignored"]),
    ({"uniqueItems": 1}, ["#: uniqueItems: expected a boolean, got int 1: it is ignored"]),
    ({"uniqueItems": False}, []),
    ({"pattern": 5}, ["#: pattern: expected a string, got int 5: it is ignored"]),
    ({"pattern": "(?=a)a"}, ["#: pattern '(?=a)a' is not checked: look-around"]),
    ({"required": "a"}, ["#: required: expected an array of strings, got str 'a': it is ignored"]),
    ({"required": ["a", 5]}, ["#: required: expected an array of strings, got list ['a', 5]: it is ignored"]),
    ({"required": []}, []),
    ({"allOf": {}}, ["#: allOf: expected an array of schemas, got dict {}: it is ignored"]),
    ({"anyOf": []}, ["#: anyOf: expected an array of schemas, got list []: it is ignored"]),
    ({"oneOf": "x"}, ["#: oneOf: expected an array of schemas, got str 'x': it is ignored"]),
    ({"properties": []}, ["#: properties: expected an object of schemas, got list []: it is ignored"]),
    ({"properties": {1: {}}}, ["#: properties: expected an object of schemas, got dict {1: {}}: it is ignored"]),
    ({"patternProperties": 5}, ["#: patternProperties: expected an object of schemas, got int 5: it is ignored"]),
    (
        {"patternProperties": {"(?=a)a": INT}, "additionalProperties": False},
        ["#: patternProperties '(?=a)a' is not checked: look-around"],
    ),
    ({"dependencies": 5}, []),
    ({"dependentRequired": {"a": "b"}}, []),
    ({"dependentRequired": {"a": [5]}}, []),
    ({"properties": {"a": 5}}, ["#/properties/a: expected a schema (object or boolean), got int: it is unknown"]),
    ({"items": 5}, ["#/items: expected a schema (object or boolean), got int: it is unknown"]),
    (
        {"$ref": "#/nothing"},
        ["#: nothing in this document at '#/nothing' (nothing outside it is read): it is unknown"],
    ),
    (
        {"$ref": "other.json"},
        ["#: nothing in this document at 'other.json' (nothing outside it is read): it is unknown"],
    ),
    (
        {"$ref": "#/$defs/a~0~1b", "$defs": {"a~/b": {"type": 5}}},
        ["#/$defs/a~0~1b: type: expected a type of JSON Schema or a list of them, got int 5: it is ignored"],
    ),
    (
        {"properties": {"a/b": {"type": 5}}},
        ["#/properties/a~1b: type: expected a type of JSON Schema or a list of them, got int 5: it is ignored"],
    ),
    (
        {"not": {"$ref": "#/x"}},
        ["#/not: nothing in this document at '#/x' (nothing outside it is read): it is unknown"],
    ),
    (
        {"oneOf": [{"$ref": "#/x"}, INT]},
        ["#/oneOf/0: nothing in this document at '#/x' (nothing outside it is read): it is unknown"],
    ),
    (
        {"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMinimum": 5},
        ["#: exclusiveMinimum: expected a boolean, got int 5: it is ignored"],
    ),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 5, "exclusiveMinimum": True}, []),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "required": True}, []),
    ({"required": True}, ["#: required: expected an array of strings, got bool True: it is ignored"]),
    ({"$ref": "#"}, ["#: it refers to itself in place: that reference is unknown"]),
    ({"allOf": [{"$ref": "#"}]}, ["#: it refers to itself in place: that reference is unknown"]),
    (
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, INT]}}, "$ref": "#/$defs/a"},
        ["#/$defs/a: it refers to itself in place: that reference is unknown"],
    ),
]


@pytest.mark.parametrize(("schema", "warnings"), WARNINGS)
def test_what_is_ignored_of_a_schema_is_told_with_the_reason(schema: Any, warnings: list[str]) -> None:
    assert list(from_schema(schema).warnings) == warnings


def test_no_more_than_twenty_warnings_are_kept_of_one_definition() -> None:
    assert len(from_schema({"properties": {f"p{number}": 5 for number in range(30)}}).warnings) == 20


def test_a_warning_is_logged_once_for_all_schemas_of_a_document(caplog: pytest.LogCaptureFixture) -> None:
    document: Any = {"a": {"type": "strin"}, "b": {"$ref": "#/a"}}
    one = from_schema(document["a"], document=document, pointer="/a")
    other = from_schema(document["b"], document=document, pointer="/b")
    assert one.is_unknown
    assert other.is_unknown
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "schema /a: #/a: type: expected a type of JSON Schema or a list of them, got str 'strin': it is ignored"
    ]


@pytest.mark.parametrize(
    ("schema", "limits", "warning"),
    [
        (
            {"items": {"items": {"items": INT}}},
            {"max_schema_depth": 2},
            "beyond max_schema_depth = 2: it is unknown",
        ),
        (
            {"properties": {"a": INT, "b": INT}},
            {"max_schema_nodes": 2},
            "beyond max_schema_nodes = 2: the schema is unknown",
        ),
        ({"enum": [1, 2, 3]}, {"max_schema_enum": 2}, "3 members, beyond max_schema_enum = 2: it is ignored"),
        ({"const": [[[1]]]}, {"max_schema_depth": 2}, "const: beyond max_schema_depth = 2: it is ignored"),
        ({"pattern": "abc"}, {"max_pattern_length": 2}, "longer than 2 characters"),
        ({"const": "x" * 200}, {"max_schema_bytes": 200}, "beyond max_schema_bytes = 200 ("),
    ],
)
def test_a_schema_beyond_a_bound_is_unknown_there(schema: Any, limits: Any, warning: str) -> None:
    ((name, value),) = limits.items()
    (told,) = from_schema(schema, limits=Limits(**limits)).warnings
    assert warning in told
    assert from_schema(schema, limits=Limits(**{name: value + (300 if "bytes" in name else 1)})).warnings == ()


def test_each_bound_is_what_the_documentation_says() -> None:
    assert (DEFAULT.max_schema_bytes, DEFAULT.max_schema_nodes, DEFAULT.max_schema_depth) == (
        1_048_576,
        20_000,
        64,
    )
    assert (DEFAULT.max_schema_in_place, DEFAULT.max_schema_enum, DEFAULT.max_schema_indexed) == (
        10_000,
        5_000,
        100_000,
    )
    assert (DEFAULT.max_pattern_length, DEFAULT.max_pattern_string) == (1_024, 4_096)
    assert (DEFAULT.max_pattern_steps, DEFAULT.max_check_steps, DEFAULT.max_data_depth) == (
        200_000_000,
        30_000,
        200,
    )
    assert (DEFAULT.max_fill, DEFAULT.max_filled, DEFAULT.max_recasts) == (10_000, 10_000, 100)
    assert (DEFAULT.max_schema_errors, DEFAULT.max_error_steps) == (20, 20_000)
    assert (FEW, MANY) == (64, 1_000)


# --- what a value can meet ------------------------------------------------------------------------


def crowd(schema: Any) -> tuple[int, bool, bool, bool]:
    root = compiled(from_schema(schema).origin).closure.root
    return root.crowd, root.is_heavy, root.counts, root.is_recursive


@pytest.mark.parametrize(
    ("schema", "met"),
    [
        (INT, 1),
        ({"anyOf": [INT, STR]}, 3),
        ({"items": {"anyOf": [INT, STR]}}, 3),
        ({"properties": {"a": {"anyOf": [INT, STR]}, "b": INT}}, 3),
        ({"properties": {"a": INT}, "additionalProperties": {"anyOf": [INT, STR]}}, 4),
        ({"patternProperties": {"^a": INT, "^b": STR}}, 2),
        ({"prefixItems": [INT, {"allOf": [INT, {}, {}]}], "items": INT}, 5),
        ({"allOf": [{"items": INT}, {"items": STR}]}, 3),
        ({"$defs": {"d": {"anyOf": [INT, STR]}}, "$ref": "#/$defs/d"}, 4),
        ({"$defs": {"d": {"anyOf": [INT, STR]}}, "$ref": "#/$defs/d", "items": {"anyOf": [INT, STR]}}, 6),
        ({"anyOf": [INT] * 63}, 64),
        ({"anyOf": [INT] * 64}, 65),
        ({"anyOf": [INT] * 998}, 999),
        ({"anyOf": [INT] * 999}, 1_000),
        ({"anyOf": [INT] * 2_000}, 1_000),
        ({"properties": {"a": {"$ref": "#"}}}, 3),
        ({"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}, 1_000),
    ],
)
def test_how_many_schemas_one_part_of_a_value_can_meet(schema: Any, met: int) -> None:
    assert crowd(schema) == (met, met >= 1_000, met > 64, "'#'" in str(schema))


TREE = {"$ref": "#"}
NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("schema", "met"),
    [
        ({"properties": {"a": TREE}}, 3),
        ({"items": TREE}, 3),
        ({"properties": {"a": TREE, "b": True}}, 3),
        ({"properties": {"a": TREE}, "additionalProperties": INT}, 4),
        ({"properties": {"a": TREE}, "items": TREE}, 4),
        ({"properties": {"a": {"anyOf": [NULL, TREE]}}}, 5),
        ({"properties": {"a": {"anyOf": [NULL, TREE], "default": None}}}, 5),
        ({"properties": {"a": {"anyOf": [NULL, INT, {"items": TREE}]}}}, 6),
        ({"properties": {"a": {"oneOf": [{"type": ["null", "string"], "maxLength": 5}, TREE]}}}, 5),
        ({"properties": {"a": TREE, "b": {"enum": [1, "x"]}, "c": {"const": 1}}}, 3),
        ({"properties": {"a": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"items": TREE}}}, 3),
        ({"properties": {"a": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"anyOf": [NULL, TREE]}}}, 6),
    ],
)
def test_a_tree_that_holds_itself_meets_each_part_a_few_times(schema: Any, met: int) -> None:
    assert crowd(schema) == (met, False, False, True)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"anyOf": [NULL, {"properties": {"x": TREE}, "minProperties": 1}]}}},
        {"properties": {"a": {"anyOf": [NULL, TREE], "type": "object"}}},
        {"properties": {"a": {"anyOf": [{"items": INT}, TREE]}}},
        {"properties": {"a": {"oneOf": [{"minimum": 5}, TREE]}}},
        {"properties": {"a": {"oneOf": [{"type": ["null", "object"]}, TREE]}}},
        {"properties": {"a": {"oneOf": [{"type": "array"}, TREE]}}},
        {"properties": {"a": TREE, "b": {"const": [1]}}},
        {"properties": {"a": TREE, "b": {"enum": [1, {}]}}},
        {"properties": {"a": TREE, "b": {"patternProperties": {"^x": INT}}}},
        {"items": TREE, "prefixItems": [TREE]},
        {"items": TREE, "uniqueItems": True},
        {"properties": {"a": {"$ref": "#/$defs/d", "type": "object"}}, "$defs": {"d": {"items": TREE}}},
    ],
)
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


def nested_in(key: str, schema: Any, levels: int) -> Any:
    for _ in range(levels):
        schema = {key: [schema]}
    return schema


@pytest.mark.parametrize(
    ("branch", "types"),
    [
        (False, set()),
        (True, None),
        (INT, {"integer"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"const": 1}, {"integer", "number"}),
        ({"const": 1.5}, {"number"}),
        ({"enum": ["a", None]}, {"string", "null"}),
        ({"type": "string", "enum": ["a", None]}, {"string"}),
        ({"type": "number", "const": 1}, {"integer", "number"}),
        ({"anyOf": [INT, STR]}, {"integer", "string"}),
        ({"anyOf": [INT, True]}, None),
        ({"type": ["integer", "null"], "oneOf": [INT, STR]}, {"integer"}),
        ({"allOf": [INT, False]}, set()),
        (nested_in("anyOf", INT, 8), {"integer"}),
        (nested_in("anyOf", INT, 9), None),
    ],
)
def test_the_types_of_a_branch(branch: Any, types: set[str] | None) -> None:
    schema = {"anyOf": [branch, False]}
    body = compiled(from_schema(schema).origin).root
    found = branch_types(body["anyOf"][0])  # type: ignore[index]  # not a bool: it is the union above
    assert found == types


@pytest.mark.parametrize(
    ("schema", "dialect"),
    [
        (True, None),
        ({}, None),
        ({"$schema": 5}, None),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "draft4"),
        ({"$schema": "https://json-schema.org/draft-07/schema"}, "draft7"),
        ({"$schema": "http://json-schema.org/draft-06/schema/"}, "draft6"),
        ({"$schema": "https://json-schema.org/draft/2019-09/schema"}, "2019-09"),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema#"}, "2020-12"),
        ({"$schema": "https://example.org/mine"}, None),
    ],
)
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


def test_the_classes_of_ecma_262_hold_these_characters_and_no_neighbours() -> None:
    def held(letter: str) -> str:
        return "".join(chr(code) for code in range(128) if translate(f"^\\{letter}$").matches(chr(code)))

    assert held("d") == "0123456789"
    assert held("w") == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
    assert held("s") == "\t\n\v\f\r "
    for name, letter in (("ASCII_Hex_Digit", "w"), ("Nd", "d"), ("Zs", "s")):
        ranges = property_ranges(name)
        assert ranges is not None
        inside = {chr(code) for low, high in ranges for code in range(low, min(high, 127) + 1)}
        assert inside <= {*held(letter)}
        assert not inside & {*held(letter.upper())}
    assert {*held("W"), *held("w")} == {*held("D"), *held("d")} == {chr(code) for code in range(128)}
    spaces = [chr(code) for code in range(128, 0x10000) if translate(r"^\s$").matches(chr(code))]
    assert spaces == list("\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
                          "\u2028\u2029\u202f\u205f\u3000\ufeff")  # fmt: skip


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
    assert "a value is beyond max_data_depth = 2: it is not cast" in caplog.text


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
    assert "a value cannot be cast (OSError): it is left as it is" in caplog.text
    (error,) = schema.errors(odd)
    assert error.message.startswith("expected a JSON value, got one that cannot be checked (")


def test_what_says_nothing_leaves_everything() -> None:
    for schema in (True, {}, {"default": 5}, {"title": "x"}):
        unknown = from_schema(schema)
        value = object()
        assert unknown.is_unknown
        assert unknown.tracer()(value) == (value, True, False, False)
        assert unknown.normalizer(value) == (value, True)
        assert (unknown.caster(value), unknown.validator(value), unknown.errors(value)) == (value, True, [])
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
