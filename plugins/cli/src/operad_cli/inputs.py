"""Inputs from ``KEY=VALUE`` arguments, converted as the operation's input schema says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from operad import Schema, from_schema


def input_of(fields: Sequence[str], schema: Schema) -> dict[str, Any]:
    """The input object of ``KEY=VALUE`` and ``KEY:=JSON`` arguments; a key given twice makes a list.

    Raises `click.UsageError` for an argument of another form.
    """
    values: dict[str, Any] = {}
    repeated: set[str] = set()
    properties = _properties(schema)
    for field in fields:
        key, separator, text = field.partition("=")
        if not separator or not key:
            raise click.UsageError(f'"{field}" is not KEY=VALUE; for JSON input use --json \'{{"key": "value"}}\'')
        if key.endswith(":") and key[:-1] not in ("",) and key not in properties:
            key = key[:-1]
            value = _json(key, text)
        else:
            value = _converted(text, properties.get(key), schema)
        if key not in values:
            values[key] = value
        elif key in repeated:
            values[key].append(value)
        else:
            values[key] = [values[key], value]
            repeated.add(key)
    # A list of one is still a list: a value that was not repeated, where an array is expected.
    for key, value in values.items():
        if key not in repeated and not isinstance(value, list) and _types(properties.get(key)) == {"array"}:
            values[key] = [value]
    return values


def _properties(schema: Schema) -> dict[str, Any]:
    raw = {} if schema.is_unknown else schema.bundled()
    properties = raw.get("properties", {}) if isinstance(raw, dict) else {}
    return properties if isinstance(properties, dict) else {}


def _types(schema: Any) -> set[str]:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return set(kind) if isinstance(kind, list) else {kind} if isinstance(kind, str) else set()


def _json(key: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"the value of {key}:= is not JSON: {error}") from error


def _converted(text: str, schema: Any, root: Schema) -> Any:
    if not isinstance(schema, dict):
        return text
    bundle = root.bundled()
    shared = bundle if isinstance(bundle, dict) else {}
    whole = {**{k: v for k, v in shared.items() if k in ("$defs", "definitions", "$schema")}, **schema}
    declared = from_schema(whole)
    if declared.is_valid(text):
        return text
    converted = declared.cast(text)
    if converted is not text and converted != text:
        return converted
    if text[:1] in "[{" or text == "null":
        try:
            return json.loads(text)
        except ValueError:
            return text
    if _types(schema) == {"array"} and isinstance(schema.get("items"), dict):
        return _converted(text, schema["items"], root)
    return text
