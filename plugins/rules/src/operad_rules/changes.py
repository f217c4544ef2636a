"""The parts of a rule that change an operation when it is registered: hide, set and rename."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import attrs

from operad import Operation, OperationContext
from operad.operations import Handler, is_kind
from operad_rules.rule import Rule
from operad_schema import UNKNOWN, Schema, from_schema

logger = logging.getLogger("operad.rules")

_DEFINITIONS = ("#/$defs/", "#/definitions/")


def changed(operation: Operation[..., Any], rule: Rule) -> Operation[..., Any] | None:
    """Return the operation as the rule changes it.

    Return ``None`` if the rule hides it, or if ``rename`` gives an argument the name of another one; the latter is
    logged. ``set`` and ``rename`` apply to properties of the input schema; ``set`` also applies to properties that
    only a part of it declares, such as an alternative. A caller's value for an argument in ``set`` never reaches
    the handler. ``select``, ``redact`` and ``max_bytes`` remove the output schema, because it would not describe
    the results.
    """
    if rule.hide:
        return None
    spec = operation.spec
    if rule.select is not None or rule.redact or rule.max_bytes is not None:
        spec = attrs.evolve(spec, output_schema=UNKNOWN)
        operation = attrs.evolve(operation, spec=spec, signature=None)
    if not (rule.set or rule.rename):
        return operation
    document: Any = spec.input_schema.bundled()
    schema = _resolved(document)
    properties = schema.get("properties", {})
    values = {name: value for name, value in rule.set.items() if _declares(schema, name, document)}
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    unknown = frozenset() if is_closed else rule.set.keys() - values.keys()
    names = {new: old for new, old in rule.rename.items() if old in properties and old not in values}
    taken = [new for new in names if new in properties and new not in values and new not in names.values()]
    if taken:  # the input schema could not tell the two apart
        message = (
            'a rule cannot rename an argument of %s to "%s", which is another argument, '
            "so the operation is left out; rename that argument, too"
        )
        logger.error(message, spec.id, taken[0])
        return None
    if not (values or names or unknown):
        return operation
    arguments = _Arguments(values, names, unknown)
    if values or names:
        spec = attrs.evolve(spec, input_schema=arguments.schema(document, schema))
    return arguments.around(operation, spec)


def _declares(schema: Any, name: str, document: Any) -> bool:
    """Return True if a schema, or a part of it that describes the same object, declares a property."""
    waiting, seen = [schema], set[int]()
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict) or id(part) in seen:  # schemas may be recursive
            continue
        seen.add(id(part))
        if name in part.get("properties", {}) or name in part.get("required", ()):
            return True
        waiting += [each for key in ("allOf", "anyOf", "oneOf") for each in part.get(key, ())]
        waiting += [part[key] for key in ("if", "then", "else") if key in part]
        waiting += part.get("dependentSchemas", {}).values()
        waiting += [_resolved(document, part)] if "$ref" in part else []
    return False


def _resolved(document: Any, part: Any = None) -> dict[str, Any]:
    """Return the schema ``part`` of a document, or of the whole input; if it is a reference, its definition."""
    document = document if isinstance(document, dict) else {}
    schema: dict[str, Any] = document if part is None else part
    for _ in range(8):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith(_DEFINITIONS):
            break
        _, kind, name = reference.split("/", 2)
        found = document.get(kind, {}).get(name.replace("~1", "/").replace("~0", "~"))
        schema = found if isinstance(found, dict) else {}
    return schema


@attrs.frozen
class _Arguments:
    """The fixed and the renamed arguments of one operation."""

    values: Mapping[str, Any]
    names: Mapping[str, str]
    """The old names by the new ones."""
    unknown: Collection[str] = ()
    """Names in ``set`` that the operation does not declare. Its input may have any names, but not these."""

    def schema(self, document: dict[str, Any], schema: dict[str, Any]) -> Schema:
        """Return the input schema that callers see."""
        shown = {old: new for new, old in self.names.items()}
        kept = {name: value for name, value in schema.get("properties", {}).items() if name not in self.values}
        required = [shown.get(name, name) for name in schema.get("required", ()) if name not in self.values]
        properties = {shown.get(name, name): value for name, value in kept.items()}
        around = {key: value for key, value in document.items() if key != "$ref"}
        return from_schema({**around, **schema, "properties": properties, "required": required})

    def inner(self, input: Any) -> Any:
        """Return the input for the handler, given the input of a caller."""
        if not isinstance(input, Mapping):
            return input
        # An old name must not reach the argument.
        replaced = {*self.names.values(), *self.unknown} - self.names.keys()
        given = {self.names.get(name, name): value for name, value in input.items() if name not in replaced}
        return given | dict(self.values)

    def outer(self, input: Any) -> Any:
        """Return the input as callers see it, given an input for the handler."""
        if not isinstance(input, Mapping):
            return input
        shown = {old: new for new, old in self.names.items()}
        return {shown.get(name, name): value for name, value in input.items() if name not in self.values}

    def adapted(self, adapt: Callable[[Any], Any], given: Any) -> Any:
        """Return an input of a caller as JSON. Fixed arguments are kept, so that the schema can reject them."""
        outer = self.outer(adapt(self.inner(given)))
        if not isinstance(given, Mapping):
            return outer
        return outer | {name: value for name, value in given.items() if name in self.values}

    def around(self, operation: Operation[..., Any], spec: Any) -> Operation[..., Any]:
        """Return the operation with handlers that accept the new arguments."""
        adapt = operation.adapt
        return attrs.evolve(
            operation,
            spec=spec,
            handler=self._handler(operation.handler),
            stream=self._handler(operation.stream),
            chunks=self._handler(operation.chunks),
            adapt=None if adapt is None else partial(self.adapted, adapt),
            pages=None if operation.pages is None else _Pages(operation.pages, self),
            signature=None,
        )

    def _handler(self, handler: Handler | None) -> Handler | None:
        """Return a handler of the same kind: a coroutine, a generator, or a plain function."""
        inner = self.inner
        if handler is None:
            return None
        if is_kind(handler, inspect.isasyncgenfunction):

            async def items(input: Any, context: OperationContext) -> Any:
                stream = handler(inner(input), context)
                try:
                    async for item in stream:
                        yield item
                finally:
                    await stream.aclose()

            return items
        if is_kind(handler, inspect.iscoroutinefunction):

            async def call(input: Any, context: OperationContext) -> Any:
                return await handler(inner(input), context)

            return call
        if is_kind(handler, inspect.isgeneratorfunction):

            def generate(input: Any, context: OperationContext) -> Any:
                return (yield from handler(inner(input), context))

            return generate

        def plain(input: Any, context: OperationContext) -> Any:
            return handler(inner(input), context)

        return plain


@attrs.frozen
class _Pages:
    """The pages of an operation whose arguments a rule has fixed or renamed."""

    pages: Any
    arguments: _Arguments

    def following(self, input: Mapping[str, Any], envelope: Any) -> Mapping[str, Any] | None:
        """Return the input of the next page, or ``None`` after the last one."""
        found = self.pages.following(self.arguments.inner(input), envelope)
        return None if found is None else self.arguments.outer(found)

    def items(self, envelope: Any) -> Any:
        """Return the items of a page."""
        return self.pages.items(envelope)
