"""The input of a call from arguments such as ``KEY=VALUE``, converted by the operation's input schema."""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import click

from operad import OperationRegistry, Schema, from_schema
from operad_cli.output.text import printable
from operad_cli.running.files import content_of, value_of
from operad_cli.running.opening import not_found

_CHOICES = 12
"""The maximum number of choices that a prompt shows."""


async def read_input(
    registry: OperationRegistry, operation_id: str, fields: tuple[str, ...], text: str | None
) -> Any:
    """Return the input of a call, from ``text`` or else from ``fields``.

    If ``text`` is ``None`` and the command runs in a terminal, ask the user for missing required fields.

    Args:
        registry: the registry of the operation.
        operation_id: the operation to call.
        fields: arguments such as ``KEY=VALUE``, see `input_of`.
        text: the input as JSON, or ``-`` for JSON on standard input. If None, ``fields`` are the input.

    Raises:
        CallError: ``OPERATION_NOT_FOUND`` if the registry does not have the operation; ``ACCESS_DENIED`` if its
            source holds it.
        click.UsageError: an argument or the JSON is not valid, or both are given.
    """
    # Only KEY=VALUE needs the schema, which may have to be requested from a peer.
    spec = registry.get_spec(operation_id) if text is not None else await registry.describe(operation_id)
    if spec is None:
        raise not_found(registry, operation_id)
    if text is None:
        values = input_of(fields, spec.input_schema)
        if sys.stdin.isatty() and sys.stderr.isatty():
            ask(values, spec.input_schema)
        return values
    if fields:
        raise click.UsageError("expected the input as KEY=VALUE or as JSON, got both; remove one of them")
    given = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    try:
        return json.loads(given.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        got = f"got the byte 0x{error.object[error.start]:02x} at position {error.start}"
        raise click.UsageError(f"the input is not JSON: expected UTF-8, {got}; convert it to UTF-8") from error
    except RecursionError as error:
        raise click.UsageError("the input is nested too deeply to parse; use fewer levels") from error
    except ValueError as error:
        hint = "; use --input - < FILE to read a file" if text.startswith("@") else ""
        reason = "standard input is empty" if text == "-" and not given.strip() else str(error)
        raise click.UsageError(f"the input is not JSON: {reason}{hint}") from error


def input_of(fields: Sequence[str], schema: Schema) -> dict[str, Any]:
    """Return the input object that arguments describe.

    ``key=value`` is converted by the schema, ``key:=json`` is JSON, ``key@file`` is the content of a file (see
    `value_of`), and ``key:=@file`` is the JSON in a file. The file ``-`` is standard input. The values of a
    repeated key become a list, and a single value becomes a list of one if the schema expects an array.

    Raises:
        click.UsageError: an argument has none of these forms, its JSON is not valid, or its file cannot be read.
    """
    values: dict[str, Any] = {}
    repeated: set[str] = set()
    properties = _properties(schema)
    for field in fields:
        key, value = _value(field, properties, schema)
        if key not in values:
            values[key] = value
        elif key in repeated:
            values[key].append(value)
        else:
            values[key] = [values[key], value]
            repeated.add(key)
    # A key given once makes a list of one if the schema expects an array.
    for key, value in values.items():
        if key not in repeated and not isinstance(value, list) and _types(properties.get(key)) == {"array"}:
            values[key] = [value]
    return values


_FORM = re.compile(r"(?P<key>[^=@]+?)(?P<sign>:=@|:=|=|@)(?P<text>.*)", re.DOTALL)


def _value(field: str, properties: Mapping[str, Any], schema: Schema) -> tuple[str, Any]:
    """Return the key and the value of one argument."""
    found = _FORM.fullmatch(field)
    if found is None:
        raise click.UsageError(
            f'"{field}" is not KEY=VALUE, KEY:=JSON or KEY@FILE; for JSON use --json \'{{"key": "value"}}\''
        )
    key, sign, text = found["key"], found["sign"], found["text"]
    if sign.startswith(":=") and f"{key}:" in properties and key not in properties:  # the key ends in a colon
        key, sign = f"{key}:", "="
    outer, dot, inner = key.partition(".")
    if dot and key not in properties and outer in properties:
        raise click.UsageError(f"{key}: write the whole object as JSON: {outer}:='{{\"{inner}\": …}}'")
    if sign == "=":
        return key, _converted(text, properties.get(key), schema)
    if sign == ":=":
        return key, _json(key, text)
    if sign == ":=@":
        return key, _json(key, content_of(text).decode("utf-8", "replace"))
    return key, value_of(key, text, properties.get(key), schema)


def missing(values: Mapping[str, Any], schema: Schema) -> list[tuple[str, Any]]:
    """Return the name and the schema of each required property that ``values`` lacks."""
    raw = {} if schema.is_unknown else schema.bundled()
    required = raw.get("required", ()) if isinstance(raw, dict) else ()
    properties = _properties(schema)
    return [(name, properties.get(name, {})) for name in required if name not in values]


def ask(values: dict[str, Any], schema: Schema) -> None:
    """Ask the user for required fields that ``values`` lacks, and add them to ``values``.

    Raises `click.UsageError` if a field is missing, and ``values`` has a field that ``schema`` does not allow.
    """
    lacking = missing(values, schema)
    if not lacking:
        return
    _no_unknown(values, schema)
    for name, shape in lacking:
        words = shape.get("description") or shape.get("title") or "" if isinstance(shape, dict) else ""
        if words:
            click.echo(printable(f"{name}: {words}"), err=True)
        with interruptible():
            values[name] = click.prompt(
                f"{printable(name)} ({_kind(shape, schema)})",
                err=True,
                value_proc=partial(_answer, shape=shape, root=schema),
            )


def _no_unknown(values: Mapping[str, Any], schema: Schema) -> None:
    """Raise `click.UsageError` for an unknown field, which may be a misspelt required one."""
    raw = {} if schema.is_unknown else schema.bundled()
    known = _properties(schema)
    if not isinstance(raw, dict) or raw.get("additionalProperties") is not False or raw.get("patternProperties"):
        return
    for name in values:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"known fields: {', '.join(known)}"
            raise click.UsageError(f'the input has no field "{name}"; {hint}')


def _answer(text: str, *, shape: Any, root: Schema) -> Any:
    """Return the typed text, converted. Raise `click.UsageError` to ask again."""
    value = _converted(text, shape, root)
    problems = _rooted(shape, root).errors(value)
    if problems:
        raise click.UsageError("; ".join(problem.message.removesuffix(" at $") for problem in problems))
    return value


def _kind(shape: Any, root: Schema) -> str:
    """Return the hint of a prompt: the choices if there are few, else the types."""
    if isinstance(shape, dict) and isinstance(reference := shape.get("$ref"), str):
        found: Any = root.bundled()
        for step in reference.removeprefix("#/").split("/") if reference.startswith("#/") else ():
            found = found.get(step) if isinstance(found, dict) else None
        shape = found if isinstance(found, dict) else shape
    choices = shape.get("enum") if isinstance(shape, dict) else None
    if isinstance(choices, list) and 0 < len(choices) <= _CHOICES:
        return ", ".join(choice if isinstance(choice, str) else json.dumps(choice) for choice in choices)
    return "/".join(sorted(_types(shape))) or "value"


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end a prompt immediately. asyncio's own handler would wait until the prompt ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except click.Abort:
        click.echo(err=True)  # so that the shell's prompt starts on a new line
        raise
    finally:
        signal.signal(signal.SIGINT, before)


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
        raise click.UsageError(f"the value of {key}:= is not JSON: {error}; a string is {key}=TEXT") from error


def _converted(text: str, schema: Any, root: Schema) -> Any:
    if not isinstance(schema, dict):
        return text
    declared = _rooted(schema, root)
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


def _rooted(schema: Any, root: Schema) -> Schema:
    """Return a property's schema with the definitions that it may refer to."""
    bundle = root.bundled()
    shared = bundle if isinstance(bundle, dict) else {}
    if not isinstance(schema, dict):
        return from_schema(schema)
    return from_schema({**{k: v for k, v in shared.items() if k in ("$defs", "definitions", "$schema")}, **schema})
