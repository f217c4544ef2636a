"""Operations from typed functions: schemas from type hints, input structured, results unstructured.

msgspec does all three, so that what the schema admits is what the structuring takes. Two cases go elsewhere:
a pydantic model answers for itself, and a union of several classes is told apart by cattrs.
"""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import attrs
import msgspec

from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode, RegistrationError
from operad.operations import Operation, OperationSpec, OperationType
from operad.schemas import UNKNOWN, Schema, from_schema

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
_INFERRED: Any = object()


@attrs.frozen
class _Parameter:
    """A parameter of a typed function: its JSON Schema, and what makes its value of the JSON one."""

    name: str
    schema: dict[str, Any]
    required: bool
    structure: Callable[[Any], Any] | None


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
    where = f"{namespace}.{name}"
    streams = inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)
    if type is None:
        type = OperationType.SUBSCRIPTION if streams else OperationType.MUTATION
    hints = _hints(function, where)
    result = _Result.of(hints.get("return", _INFERRED), streams, where, infer=output_schema is None)
    handler: Callable[..., Any]
    if _is_raw(function, hints):
        handler, inferred = function, UNKNOWN
    else:
        parameters, rest, context_name = _parameters(function, hints, where, infer=input_schema is None)
        inferred = _object_schema(parameters, rest) if input_schema is None else UNKNOWN
        handler = _handler(function, parameters, context_name, result.unstructure, streams)
    made = OperationSpec(
        namespace=namespace,
        name=name,
        type=OperationType(type),
        input_schema=inferred if input_schema is None else _as_schema(input_schema),
        output_schema=result.schema if output_schema is None else _as_schema(output_schema),
        description=inspect.getdoc(function) or "" if description is None else description,
        **spec,
    )
    return Operation(made, handler, blocking, function)


def _as_schema(value: Schema | Mapping[str, Any] | bool) -> Schema:
    return value if isinstance(value, Schema) else from_schema(value)


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception as error:  # evaluating a string annotation can raise anything
        raise RegistrationError(f'operation "{where}": its type hints cannot be read: {error}') from error


def _is_raw(function: Callable[..., Any], hints: Mapping[str, Any]) -> bool:
    names = list(inspect.signature(function).parameters)
    if names not in (["input"], ["input", "context"]):
        return False
    hint = hints.get("input", Any)
    origin = get_origin(hint) or hint
    return hint is Any or origin in (dict, Mapping, collections.abc.Mapping)


def _parameters(
    function: Callable[..., Any], hints: Mapping[str, Any], where: str, *, infer: bool
) -> tuple[list[_Parameter], dict[str, Any] | None, str | None]:
    """The parameters, the schema of further ones (``**kwargs``), and the name of the context parameter."""
    found: list[_Parameter] = []
    rest: dict[str, Any] | None = None
    context_name = None
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        at = f'operation "{where}", parameter "{parameter.name}"'
        if hint is OperationContext or (parameter.name == "context" and hint is Any):
            context_name = parameter.name
        elif parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is parameter.POSITIONAL_ONLY:
            raise RegistrationError(f"{at}: an operation's input is an object, so parameters need names")
        elif parameter.kind is parameter.VAR_KEYWORD:
            rest = _schema_of(hint, at) if infer else {}
        else:
            schema = _schema_of(hint, at) if infer else {}
            required = parameter.default is parameter.empty
            if not required:
                schema = _with_default(schema, parameter.default)
            found.append(_Parameter(parameter.name, schema, required, _structurer(_bare(hint))))
    return found, rest, context_name


def _with_default(schema: dict[str, Any], default: Any) -> dict[str, Any]:
    try:
        value = msgspec.to_builtins(default)
        msgspec.json.encode(value)
    except (TypeError, ValueError):  # a default that JSON cannot hold stays the function's own
        return schema
    return {**schema, "default": value}


def _object_schema(parameters: list[_Parameter], rest: dict[str, Any] | None) -> Schema:
    definitions: dict[str, Any] = {}
    properties = {}
    for parameter in parameters:
        schema = dict(parameter.schema)
        definitions.update(schema.pop("$defs", {}))
        properties[parameter.name] = schema
    extra: Any = False
    if rest is not None:
        definitions.update(rest.pop("$defs", {}))
        extra = rest or True
    schema = {
        "type": "object",
        "properties": properties,
        "required": [parameter.name for parameter in parameters if parameter.required],
        "additionalProperties": extra,
    }
    if definitions:
        schema["$defs"] = definitions
    return from_schema(schema)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _described(hint: Any) -> Any:
    """``Annotated[int, "what it is"]`` in msgspec's spelling."""
    if get_origin(hint) is not Annotated:
        return hint
    base, *extras = get_args(hint)
    texts = [extra for extra in extras if isinstance(extra, str)]
    kept = [extra for extra in extras if isinstance(extra, msgspec.Meta)]
    if texts:
        kept.append(msgspec.Meta(description=" ".join(texts)))
    for extra in kept:
        base = Annotated[base, extra]
    return base


def _schema_of(hint: Any, at: str) -> dict[str, Any]:
    bare = _bare(hint)
    if _is_pydantic(bare):
        schema: dict[str, Any] = bare.model_json_schema()
        return _relocated(schema, bare.__name__)
    members = _class_union(bare)
    if members:
        parts = [_schema_of(member, at) for member in members]
        definitions = {name: value for part in parts for name, value in part.pop("$defs", {}).items()}
        return {"anyOf": parts, "$defs": definitions}
    try:
        return msgspec.json.schema(_described(hint))
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise RegistrationError(
            f"{at}: no JSON Schema can be made of {hint!r} ({error}); give the schema yourself "
            "(input_schema=… or output_schema=…)"
        ) from error


def _relocated(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """A root schema as a reference to a definition, so that its own ``#/$defs`` stay right inside another."""
    definitions = schema.pop("$defs", {})
    if "$ref" not in schema:
        definitions[name] = schema
        schema = {"$ref": f"#/$defs/{name}"}
    return {**schema, "$defs": definitions}


def _is_pydantic(hint: Any) -> bool:
    return isinstance(hint, type) and hasattr(hint, "model_json_schema") and hasattr(hint, "model_validate")


def _class_union(hint: Any) -> tuple[Any, ...]:
    """The members of a union of several classes with fields, which msgspec does not tell apart."""
    if get_origin(hint) not in (typing.Union, types.UnionType):
        return ()
    members = get_args(hint)
    classes = [m for m in members if isinstance(m, type) and (attrs.has(m) or hasattr(m, "__dataclass_fields__"))]
    return members if len(classes) > 1 else ()


def _structurer(hint: Any) -> Callable[[Any], Any] | None:
    """What makes a Python value of a validated JSON value; ``None`` if they are the same."""
    if hint in (str, bool, type(None), Any, object) if isinstance(hint, collections.abc.Hashable) else False:
        return None
    if _is_pydantic(hint):
        validate: Callable[[Any], Any] = hint.model_validate
        return validate
    if _class_union(hint):
        from cattrs import Converter

        return partial(Converter(forbid_extra_keys=True).structure, cl=hint)
    return partial(_convert, type=hint)


def _convert(value: Any, *, type: Any) -> Any:
    return msgspec.convert(value, type, strict=True)


@attrs.frozen
class _Result:
    """What a typed function answers: the schema, and what makes JSON values of it."""

    schema: Schema
    unstructure: Callable[[Any], Any] | None

    @classmethod
    def of(cls, hint: Any, streams: bool, where: str, *, infer: bool) -> _Result:
        if streams and get_origin(hint) in _STREAMS:
            hint = get_args(hint)[0]
        bare = _bare(hint)
        if bare is _INFERRED or bare is Any:
            return cls(UNKNOWN, _to_json)
        if bare is ResponseEnvelope or get_origin(bare) is ResponseEnvelope:
            hint = bare = get_args(bare)[0] if get_args(bare) else Any
            if bare is Any or isinstance(bare, TypeVar):
                return cls(UNKNOWN, None)
        schema = UNKNOWN
        if infer:
            schema = from_schema(_schema_of(hint, f'operation "{where}", result'))
        return cls(schema, None if bare in (int, str, bool, float, type(None)) else _to_json)


def _to_json(value: Any) -> Any:
    if isinstance(value, ResponseEnvelope) or value is None:
        return value
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    return msgspec.to_builtins(value, enc_hook=_encode_unknown)


def _encode_unknown(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise TypeError(f"a result has to be made of JSON values, got {type(value).__name__}")


def _handler(
    function: Callable[..., Any],
    parameters: list[_Parameter],
    context_name: str | None,
    unstructure: Callable[[Any], Any] | None,
    streams: bool,
) -> Callable[..., Any]:
    """The ``(input, context)`` handler around a typed function, of the function's own kind."""
    structurers = [(p.name, p.structure) for p in parameters if p.structure is not None]

    def arguments(input: Any, context: OperationContext) -> dict[str, Any]:
        values = dict(input) if input else {}
        for name, structure in structurers:
            if name in values:
                try:
                    values[name] = structure(values[name])
                except Exception as error:  # pydantic, cattrs and msgspec each raise their own
                    raise _bad_argument(name, error) from error
        if context_name is not None:
            values[context_name] = context
        return values

    done = unstructure or _unchanged

    if inspect.isasyncgenfunction(function):

        async def handle_stream(input: Any, context: OperationContext) -> Any:
            items = function(**arguments(input, context))
            try:
                async for item in items:
                    yield done(item)
            finally:
                await items.aclose()

        return handle_stream
    if streams:

        def handle_generator(input: Any, context: OperationContext) -> Any:
            for item in function(**arguments(input, context)):
                yield done(item)

        return handle_generator
    if inspect.iscoroutinefunction(function):

        async def handle(input: Any, context: OperationContext) -> Any:
            return done(await function(**arguments(input, context)))

        return handle

    def handle_plain(input: Any, context: OperationContext) -> Any:
        return done(function(**arguments(input, context)))

    return handle_plain


def _unchanged(value: Any) -> Any:
    return value


def _bad_argument(name: str, error: Exception) -> CallError:
    message = str(error)
    details = {"errors": [{"path": f"$.{name}", "message": message, "keyword": "type"}]}
    return CallError(ErrorCode.VALIDATION_ERROR, f"input at $.{name}: {message}", details)
