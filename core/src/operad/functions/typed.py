"""Operations from typed functions: schemas from type hints, input structured, results unstructured."""

from __future__ import annotations

import collections.abc
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import attrs
import msgspec

from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode, RegistrationError
from operad.functions.hints import Structure, bare, schema_of, structurer, to_json
from operad.operations import Operation, OperationSpec, OperationType
from operad.schemas.schema import UNKNOWN, Schema, from_schema
from operad.subscriptions import close

P = ParamSpec("P")
R = TypeVar("R")

_STREAMS = (
    collections.abc.AsyncIterator,
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterable,
    collections.abc.Iterator,
    collections.abc.Generator,
    collections.abc.Iterable,
)
_NO_HINT: Any = object()


def typed_operation(
    function: Callable[P, R],
    *,
    namespace: str,
    name: str | None,
    type: OperationType | str | None,
    input_schema: Schema | Mapping[str, Any] | bool | None,
    output_schema: Schema | Mapping[str, Any] | bool | None,
    description: str | None,
    blocking: bool | None,
    spec: dict[str, Any],
) -> Operation[P, R]:
    """The operation of a function; see `operad.operations.operation`."""
    name = name or function.__name__
    where = f'operation "{namespace}.{name}"'
    generator = inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)
    if type is None:
        type = OperationType.SUBSCRIPTION if generator else OperationType.MUTATION
    streams = generator or type == OperationType.SUBSCRIPTION
    hints = _hints(function, where)
    result = _Result.of(hints.get("return", _NO_HINT), streams, where, infer=output_schema is None)
    handler: Callable[..., Any]
    if _is_raw(function, hints):
        handler, inferred = function, UNKNOWN
    else:
        arguments = _Arguments.of(function, hints, where, infer=input_schema is None)
        inferred = arguments.schema() if input_schema is None else UNKNOWN
        handler = _handler(function, arguments, result.to_json, streams)
    made = OperationSpec(
        namespace=namespace,
        name=name,
        type=type,
        input_schema=inferred if input_schema is None else input_schema,
        output_schema=result.schema if output_schema is None else output_schema,
        description=inspect.getdoc(function) or "" if description is None else description,
        **spec,
    )
    return Operation(made, handler, blocking, function)


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception as error:  # evaluating a string annotation can raise anything
        raise RegistrationError(f"{where}: its type hints cannot be read: {error}") from error


def _is_raw(function: Callable[..., Any], hints: Mapping[str, Any]) -> bool:
    """Whether it is a handler already: a function of ``(input, context)`` that leaves the input's type open."""
    names = list(inspect.signature(function).parameters)
    if names not in (["input"], ["input", "context"]):
        return False
    hint = hints.get("input", Any)
    origin = get_origin(hint) or hint
    return hint is Any or origin in (dict, Mapping, collections.abc.Mapping)


# --- what goes in ------------------------------------------------------------------------------------


@attrs.frozen
class _Parameter:
    """A parameter of a typed function: its JSON Schema, and what makes its value of the JSON one."""

    name: str
    schema: dict[str, Any]
    required: bool
    structure: Structure | None


@attrs.define
class _Arguments:
    """The parameters of a typed function, and how an input object becomes its arguments."""

    parameters: list[_Parameter] = attrs.field(factory=list)
    rest: _Parameter | None = None
    """``**kwargs``."""
    context: str | None = None
    """The parameter that receives the context of the call."""

    @classmethod
    def of(cls, function: Callable[..., Any], hints: Mapping[str, Any], where: str, *, infer: bool) -> _Arguments:
        made = cls()
        for parameter in inspect.signature(function).parameters.values():
            hint = hints.get(parameter.name, Any)
            at = f'{where}, parameter "{parameter.name}"'
            if bare(hint) is OperationContext or (parameter.name == "context" and hint is Any):
                made.context = parameter.name
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise RegistrationError(f"{at}: an operation's input is an object, so parameters need names")
            schema = schema_of(hint, at) if infer else {}
            required = parameter.default is parameter.empty
            if not required:
                schema = _with_default(schema, parameter.default)
            found = _Parameter(parameter.name, schema, required, structurer(hint))
            if parameter.kind is parameter.VAR_KEYWORD:
                made.rest = found
            else:
                made.parameters.append(found)
        return made

    def schema(self) -> Schema:
        """The JSON Schema of the input object."""
        definitions: dict[str, Any] = {}
        properties = {}
        for parameter in self.parameters:
            schema = dict(parameter.schema)
            definitions.update(schema.pop("$defs", {}))
            properties[parameter.name] = schema
        extra: Any = False
        if self.rest is not None:
            schema = dict(self.rest.schema)
            definitions.update(schema.pop("$defs", {}))
            extra = schema or True
        made = {
            "type": "object",
            "properties": properties,
            "required": [parameter.name for parameter in self.parameters if parameter.required],
            "additionalProperties": extra,
        }
        return from_schema({**made, "$defs": definitions} if definitions else made)

    def maker(self) -> Callable[[Any, OperationContext], dict[str, Any]]:
        """What makes the function's keyword arguments of an input and a context."""
        structures = [(p.name, p.structure) for p in self.parameters if p.structure is not None]
        names = frozenset(parameter.name for parameter in self.parameters)
        rest = None if self.rest is None else self.rest.structure
        context_name = self.context

        def make(input: Any, context: OperationContext) -> dict[str, Any]:
            values = dict(input) if input else {}
            for name, structure in structures:
                if name in values:
                    values[name] = _structured(name, structure, values[name])
            if rest is not None:
                for name in values.keys() - names:
                    values[name] = _structured(name, rest, values[name])
            if context_name is not None:
                values[context_name] = context
            return values

        return make


def _structured(name: str, structure: Structure, value: Any) -> Any:
    try:
        return structure(value)
    except Exception as error:  # pydantic and msgspec each raise their own
        message = str(error)
        details = {"errors": [{"path": f"$.{name}", "message": message, "keyword": "type"}]}
        raise CallError(ErrorCode.VALIDATION_ERROR, f"input at $.{name}: {message}", details) from error


def _with_default(schema: dict[str, Any], default: Any) -> dict[str, Any]:
    try:
        value = msgspec.to_builtins(default)
        msgspec.json.encode(value)
    except (TypeError, ValueError):  # a default that JSON cannot hold stays the function's own
        return schema
    return {**schema, "default": value}


# --- what comes out ----------------------------------------------------------------------------------


@attrs.frozen
class _Result:
    """What a typed function answers: the schema, and what makes JSON values of it."""

    schema: Schema
    to_json: Callable[[Any], Any]

    @classmethod
    def of(cls, hint: Any, streams: bool, where: str, *, infer: bool) -> _Result:
        if streams and get_origin(hint) in _STREAMS:
            hint = get_args(hint)[0]
        core = bare(hint)
        if get_origin(core) is ResponseEnvelope:
            hint = core = get_args(core)[0]
        if core in (_NO_HINT, Any, ResponseEnvelope) or isinstance(core, TypeVar):
            return cls(UNKNOWN, to_json)
        schema = from_schema(schema_of(hint, f"{where}, result")) if infer else UNKNOWN
        return cls(schema, _unchanged if core in (int, str, bool, float, type(None)) else to_json)


def _unchanged(value: Any) -> Any:
    return value


# --- the handler -------------------------------------------------------------------------------------


def _handler(
    function: Callable[..., Any], arguments: _Arguments, to_json: Callable[[Any], Any], streams: bool
) -> Callable[..., Any]:
    """The ``(input, context)`` handler around a typed function, of the function's own kind."""
    make = arguments.maker()
    if streams:
        return _stream_handler(function, make, to_json)
    if inspect.iscoroutinefunction(function):

        async def handle(input: Any, context: OperationContext) -> Any:
            return to_json(await function(**make(input, context)))

        return handle

    def handle_plain(input: Any, context: OperationContext) -> Any:
        return to_json(function(**make(input, context)))

    return handle_plain


def _stream_handler(
    function: Callable[..., Any],
    make: Callable[[Any, OperationContext], dict[str, Any]],
    to_json: Callable[[Any], Any],
) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(function):

        def handle_generator(input: Any, context: OperationContext) -> Any:
            for item in function(**make(input, context)):
                yield to_json(item)

        return handle_generator

    async def handle_stream(input: Any, context: OperationContext) -> AsyncGenerator[Any, None]:
        items = function(**make(input, context))
        if inspect.isawaitable(items):
            items = await items
        if not hasattr(items, "__aiter__"):
            raise TypeError(f"a subscription has to return an async iterator, got {type(items).__name__}")
        try:
            async for item in items:
                yield to_json(item)
        finally:
            await close(items)

    return handle_stream
