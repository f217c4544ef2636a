"""Make operations from typed functions: schemas from hints, inputs to arguments, results to JSON."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import cache
from types import FunctionType, MethodType, NoneType
from typing import Any, NamedTuple, Optional, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode, RegistrationError
from operad.functions.annotations import handed_in, is_field, is_handed_in
from operad.functions.conversions import Conversions, Structure
from operad.functions.docstrings import docstring_of, split_docstring
from operad.functions.kinds import bare, is_union
from operad.functions.shapes import Shapes, import_hint
from operad.functions.signatures import Method, TypedSignature, takes_context
from operad.operations import DEFAULT_NAMESPACE, Operation, OperationSpec, OperationType, is_kind
from operad.subscriptions import close
from operad.words import text_of
from operad_schema import UNKNOWN, Schema, from_schema

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN_ITERATORS = (collections.abc.Iterator, collections.abc.Generator)
_ITERATORS = (
    collections.abc.AsyncIterator,
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterable,
    *_PLAIN_ITERATORS,
)
_STREAMS = (*_ITERATORS, collections.abc.Iterable)
_NO_HINT: Any = object()


def typed_operation(function: Callable[P, R], options: Mapping[str, Any]) -> Operation[P, R]:
    """Return the operation made from a function; ``options`` are the keywords of `operation`.

    Raises `RegistrationError` if the function, a type hint or an option cannot be used.
    """
    descriptor: Any = function
    if isinstance(function, (staticmethod, classmethod)):
        function = function.__func__
    given: dict[str, Any] = {"namespace": DEFAULT_NAMESPACE, **options}
    name = given["name"] = given.get("name") or _name(function)
    where = f'operation "{given["namespace"]}.{name}"'
    conversions = given["conversions"] = given.get("conversions") or _standard()
    hints = _hints(function, where)
    yields = _streams(function, hints)
    if given.get("type") is None:
        given["type"] = OperationType.SUBSCRIPTION if yields else OperationType.MUTATION
    # A bound method must not look it up again, which would find that of its class.
    if given.get("description") is None:
        given["description"] = docstring_of(function)
    streams = yields or given["type"] == OperationType.SUBSCRIPTION
    input_schema, output_schema = given.get("input_schema"), given.get("output_schema")
    result = _Result.of(hints.get("return", _NO_HINT), streams, where, conversions, infer=output_schema is None)
    parameters = _open_parameters(function)
    raw, infer = _is_raw(list(parameters), hints), input_schema is None
    arguments = None if raw else _Arguments.of(parameters, hints, where, conversions, infer=infer)
    inferred = UNKNOWN
    fields = {key: value for key, value in given.items() if key not in ("blocking", "conversions")}
    if arguments is not None and infer:
        names = [each.name for each in arguments.parameters]
        fields["description"], described = split_docstring(given["description"], names)
        inferred = arguments.schema(described)
    _check_schemas(where, input_schema=input_schema, output_schema=output_schema)
    fields["input_schema"] = inferred if infer else input_schema
    fields["output_schema"] = result.schema if output_schema is None else output_schema
    spec = OperationSpec(**fields)
    owner = _class_of(descriptor)
    return Operation(
        spec,
        function
        if raw and "context" in parameters
        else _handler(function, spec.id, hints, arguments, result.to_json, streams=streams),
        given.get("blocking"),
        function,
        signature=TypedSignature(
            function, hints, conversions, result.hint, in_envelope=result.in_envelope, raw=raw
        ),
        method=None if owner is None else Method(owner, descriptor, lambda bound: typed_operation(bound, given)),
    )


_standard = cache(Conversions)
"""Returns the conversions of functions without the option ``conversions``; no types are registered in them."""


def _check_schemas(where: str, **schemas: Schema | Mapping[str, Any] | bool | None) -> None:
    """Raise `RegistrationError` for a schema of which a part would be ignored.

    Only schemas in the application's own code are checked so strictly, not those of remote servers.
    """
    for name, schema in schemas.items():
        if schema is None or isinstance(schema, Schema):
            continue
        if wrong := from_schema(schema).running_unchecked().warnings:  # unchecked patterns: see registration
            raise RegistrationError(f"{where}: {name}: {wrong[0]}")


def _open_parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters that callers may set, without those that a partial has bound, such as a connection."""
    open_ones = dict(inspect.signature(function).parameters)
    while isinstance(function, functools.partial):
        for name in function.keywords:
            open_ones.pop(name, None)
        function = function.func
    return open_ones


def _name(function: Any) -> str:
    """Return the name of a function, or of a partial's function. Raises `RegistrationError` if it has none."""
    named = function
    while isinstance(named, functools.partial):
        named = named.func
    if not callable(function):
        raise RegistrationError(f"operation: expected a function, got {type(function).__name__} {function!r:.60}")
    try:
        return str(named.__name__)
    except AttributeError:
        kind = type(named).__name__
        raise RegistrationError(f"operation: an object of type {kind} has no name; pass name=…") from None


def _class_of(descriptor: Any) -> str | None:
    """Return the qualified name of the class whose method a function is; ``None`` if it is bound or static."""
    if isinstance(descriptor, staticmethod) or not isinstance(descriptor, (FunctionType, classmethod)):
        return None
    owner, _, name = descriptor.__qualname__.rpartition(".")
    wraps: Any = descriptor
    if not owner or owner.endswith("<locals>") or isinstance(inspect.unwrap(wraps), MethodType):
        return None
    # A static method that was read from its class is a plain function with a qualified name.
    known: Any = sys.modules.get(descriptor.__module__)
    for part in owner.split("."):
        known = getattr(known, part, None)
    return None if isinstance(inspect.getattr_static(known, name, None), staticmethod) else owner


def _streams(function: Any, hints: Mapping[str, Any]) -> bool:
    """Return True if the function yields, or its return hint is an iterator."""
    if is_kind(function, inspect.isasyncgenfunction) or is_kind(function, inspect.isgeneratorfunction):
        return True
    return get_origin(bare(hints.get("return"))) in _ITERATORS


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    described: Any = function
    while isinstance(described, functools.partial):
        described = described.func
    if not inspect.isroutine(described) and not isinstance(described, type):
        described = type(described).__call__
    try:
        return get_type_hints(described, include_extras=True)
    except Exception as error:  # evaluating a string annotation can raise anything
        raise RegistrationError(f"{where}: its type hints cannot be read: {error}{import_hint(error)}") from error


def _whole_input(input: Any, _: OperationContext) -> dict[str, Any]:
    """Return the arguments of a function that takes the input as it is."""
    return {"input": input}


def _is_raw(names: list[str], hints: Mapping[str, Any]) -> bool:
    """Return True if a function takes the whole input.

    Its parameters are then ``input`` and perhaps ``context``, and the type of ``input`` is a mapping or left out.
    """
    if names not in (["input"], ["input", "context"]):
        return False
    hint = hints.get("input", Any)
    origin = get_origin(hint) or hint
    return hint is Any or origin in (dict, Mapping, collections.abc.Mapping)


# --- arguments ---------------------------------------------------------------------------------------


class _Parameter(NamedTuple):
    """A parameter of a typed function: its JSON Schema, and the conversion from its JSON value."""

    name: str
    schema: dict[str, Any]
    required: bool
    structure: Structure | None
    exact: type[Any] | None = None
    """The class of JSON values that need no conversion: for an integer, ``5.0`` is converted and ``5`` is not."""


def _described(schema: dict[str, Any], words: str | None) -> dict[str, Any]:
    return schema if words is None or "description" in schema else {**schema, "description": words}


class _Arguments:
    """The parameters of a typed function; it makes their schema, and arguments from an input object."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.parameters: list[_Parameter] = []
        self.rest: _Parameter | None = None
        """The parameter ``**kwargs``; ``None`` if the function has none."""
        self.context: str | None = None
        """The name of the parameter that receives the context of the call; ``None`` if no parameter does."""

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, inspect.Parameter],
        hints: Mapping[str, Any],
        where: str,
        conversions: Conversions,
        *,
        infer: bool,
    ) -> _Arguments:
        """Return the arguments for the parameters of a function.

        Raises `RegistrationError` for a parameter that cannot be a field of an input.
        """
        made = cls(Shapes(conversions.types, closed=True))
        for parameter in parameters.values():
            hint = hints.get(parameter.name, Any)
            at = f'{where}, parameter "{parameter.name}"'
            if takes_context(parameter.name, hint):
                made.context = parameter.name
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                fix = 'remove the "/" after it' if parameter.kind is parameter.POSITIONAL_ONLY else "take a list"
                raise RegistrationError(f"{at}: expected one that can be passed by name, got {parameter}; {fix}")
            # FastAPI's spelling of a parameter that has no default.
            default = parameter.empty if parameter.default is ... else parameter.default
            if default is None and not _takes_none(hint):
                hint = Optional[hint]  # noqa: UP045  # a hint known at run time: `a: int = None`, as many write
            schema = made.shapes.part(hint, at) if infer else {}
            if default is not parameter.empty:
                schema = made.with_default(schema, default, at)
            structure = conversions.structurer(hint)
            exact = next((number for number in (int, float) if bare(hint) is number), None)
            found = _Parameter(parameter.name, schema, default is parameter.empty, structure, exact)
            if parameter.kind is parameter.VAR_KEYWORD:
                made.rest = found
            else:
                made.parameters.append(found)
        return made

    def schema(self, described: Mapping[str, str]) -> Schema:
        """Return the JSON Schema of the input; ``described`` has descriptions for parameters that have none."""
        made = {
            "type": "object",
            "properties": {
                each.name: _described(each.schema, described.get(each.name)) for each in self.parameters
            },
            "required": [parameter.name for parameter in self.parameters if parameter.required],
            "additionalProperties": False if self.rest is None else self.rest.schema or True,
        }
        definitions = self.shapes.definitions
        return from_schema({**made, "$defs": definitions} if definitions else made)

    def with_default(self, schema: dict[str, Any], default: Any, at: str) -> dict[str, Any]:
        """Return the schema with a default. Raises `RegistrationError` if the default does not fit the schema."""
        if is_handed_in(default):
            raise handed_in(default, at)
        if is_field(default) or type(default).__name__ in ("Field", "_CountingAttr"):
            raise RegistrationError(
                f"{at}: {default!r:.80} would become the default value; "
                f"write Annotated[<type>, {type(default).__name__}(…)] = <default>"
            )
        whole = self.shapes.with_default(schema, default)
        if "default" in whole:
            checked = from_schema({**schema, "$defs": self.shapes.definitions})
            if errors := checked.errors(whole["default"]):
                raise RegistrationError(f"{at}: the default does not fit the hint: {errors[0].message}")
        return whole

    def maker(self, operation_id: str) -> Callable[[Any, OperationContext], dict[str, Any]]:
        """Return a function that makes keyword arguments from an input and a context.

        It raises `CallError` ``VALIDATION_ERROR`` for a value that cannot be converted.
        """
        structures = [(p.name, p.exact, p.structure) for p in self.parameters if p.structure is not None]
        names = frozenset(parameter.name for parameter in self.parameters)
        rest = None if self.rest is None else self.rest.structure
        context_name = self.context

        def make(input: Any, context: OperationContext) -> dict[str, Any]:
            values = {**input} if input else {}
            for name, exact, structure in structures:
                if name in values and values[name].__class__ is not exact:
                    values[name] = _structured(operation_id, name, structure, values[name])
            if rest is not None:
                for name in values.keys() - names:
                    values[name] = _structured(operation_id, name, rest, values[name])
            if context_name is not None:
                values[context_name] = context
            return values

        return make


def _structured(operation_id: str, name: str, structure: Structure, value: Any) -> Any:
    try:
        return structure(value)
    except Exception as error:  # pydantic and msgspec each raise their own errors
        inner, path = _innermost(error, f"$.{name}")
        got = "" if isinstance(value, (dict, list)) else f", got {value!r:.80}"
        message = f"{text_of(inner) or type(inner).__name__}{got} at {path}"
        details = {"errors": [{"path": path, "message": message, "keyword": "type"}]}
        text = f'invalid input for "{operation_id}": {message}'
        raise CallError(ErrorCode.VALIDATION_ERROR, text, details) from error


def _innermost(error: BaseException, path: str) -> tuple[BaseException, str]:
    """Return the first single error of a group, and its path, which cattrs keeps in notes."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
        for note in getattr(error, "__notes__", ()):
            place = getattr(note, "__dict__", {})
            path += f".{place['name']}" if "name" in place else f"[{place['index']!r}]" if "index" in place else ""
    return error, path


def _takes_none(hint: Any) -> bool:
    hint = bare(hint)
    return hint in (Any, object, None, NoneType) or (is_union(hint) and any(map(_takes_none, get_args(hint))))


# --- results -----------------------------------------------------------------------------------------


class _Result(NamedTuple):
    """The result of a typed function: its schema, and the conversion of its values to JSON."""

    schema: Schema
    to_json: Callable[[Any], Any]
    hint: Any
    """The hint of the data: inside an envelope, or of each item of a stream."""
    in_envelope: bool

    @classmethod
    def of(cls, hint: Any, streams: bool, where: str, conversions: Conversions, *, infer: bool) -> _Result:
        """Return the result for a return hint. Raises `RegistrationError` if the hint has no JSON Schema."""
        if streams and get_origin(hint) in _STREAMS:
            hint = get_args(hint)[0]
        core = bare(hint)
        in_envelope = ResponseEnvelope in (core, get_origin(core))
        if get_origin(core) is ResponseEnvelope:
            hint = core = get_args(core)[0]
        if core in (_NO_HINT, Any, ResponseEnvelope) or isinstance(core, TypeVar):
            return cls(UNKNOWN, _results(conversions.types.to_json), Any, in_envelope)
        schema = UNKNOWN
        if infer:
            schema = from_schema(Shapes(conversions.types, closed=False).schema(hint, f"{where}, result"))
        if core in (int, str, bool, float, type(None)):
            return cls(schema, _unchanged, hint, in_envelope)
        return cls(schema, _results(conversions.unstructurer(hint)), hint, in_envelope)


def _unchanged(value: Any) -> Any:
    return value


def _results(to_json: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that applies ``to_json``, except to envelopes and ``None``."""
    return lambda value: value if value is None or isinstance(value, ResponseEnvelope) else to_json(value)


# --- the handler -------------------------------------------------------------------------------------


def _handler(
    function: Callable[..., Any],
    operation_id: str,
    hints: Mapping[str, Any],
    arguments: _Arguments | None,
    to_json: Callable[[Any], Any],
    *,
    streams: bool,
) -> Callable[..., Any]:
    """Return a handler of ``(input, context)`` for a function, of the same kind: coroutine, generator or plain.

    If ``arguments`` is ``None``, the function takes the whole input and returns JSON.
    """
    make: Callable[[Any, OperationContext], dict[str, Any]] = _whole_input
    if arguments is None:
        to_json = _unchanged
    else:
        make = arguments.maker(operation_id)
    handle: Callable[..., Any]
    if streams:
        answers = get_origin(bare(hints.get("return")))
        iterates = is_kind(function, inspect.isgeneratorfunction) or answers in _PLAIN_ITERATORS
        handle = _stream_handler(function, make, to_json, iterates)
    elif is_kind(function, inspect.iscoroutinefunction):

        async def handle(input: Any, context: OperationContext) -> Any:
            return to_json(await function(**make(input, context)))

    else:

        def handle(input: Any, context: OperationContext) -> Any:
            return to_json(function(**make(input, context)))

    # Messages name the owner of an operation by its handler.
    handle.__qualname__ = getattr(function, "__qualname__", operation_id)
    handle.__module__ = getattr(function, "__module__", "?")
    return handle


def _stream_handler(
    function: Callable[..., Any],
    make: Callable[[Any, OperationContext], dict[str, Any]],
    to_json: Callable[[Any], Any],
    iterates: bool,
) -> Callable[..., Any]:
    if iterates:

        def handle_generator(input: Any, context: OperationContext) -> Any:
            for item in function(**make(input, context)):
                yield to_json(item)

        return handle_generator

    async def handle_stream(input: Any, context: OperationContext) -> AsyncGenerator[Any, None]:
        items = function(**make(input, context))
        if inspect.isawaitable(items):
            items = await items
        if not hasattr(items, "__aiter__"):
            got = type(items).__name__
            raise TypeError(f"the function of a subscription must return an async iterator, got {got}")
        try:
            async for item in items:
                yield to_json(item)
        finally:
            await close(items)

    return handle_stream
