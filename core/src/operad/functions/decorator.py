"""The decorator `operation`, which makes an operation from a function with type hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

from operad.access import AccessControl
from operad.operations import ErrorDefinition, Operation, OperationType
from operad.words import did_you_mean
from operad_schema import Schema

if TYPE_CHECKING:
    from operad.functions.conversions import Conversions

P = ParamSpec("P")
R = TypeVar("R")


class OperationOptions(TypedDict, total=False):
    """The keywords of `operation`, which documents them."""

    namespace: str
    name: str | None
    type: OperationType | str | None
    input_schema: Schema | Mapping[str, Any] | bool | None
    output_schema: Schema | Mapping[str, Any] | bool | None
    description: str | None
    blocking: bool | None
    conversions: Conversions | None
    version: str
    title: str | None
    access_control: AccessControl | Mapping[str, Any] | None
    error_schemas: Iterable[ErrorDefinition | Mapping[str, Any]]
    tags: Iterable[str]
    deprecated: bool
    idempotent: bool
    unchecked_patterns: bool
    metadata: Mapping[str, Any]


@overload
def operation(function: Callable[P, R], /) -> Operation[P, R]: ...


@overload
def operation(**options: Unpack[OperationOptions]) -> Callable[[Callable[P, R]], Operation[P, R]]: ...


def operation(
    function: Callable[P, R] | None = None, /, **options: Unpack[OperationOptions]
) -> Operation[P, R] | Callable[[Callable[P, R]], Operation[P, R]]:
    """Make an operation from a function, with schemas from its type hints.

    ``async def add(a: int, b: int) -> int`` is a complete operation: its input schema is an object with the
    integers ``a`` and ``b``, its output schema an integer. attrs classes, dataclasses, TypedDicts, enums,
    literals, datetimes, UUIDs, paths, unions and (if installed) pydantic models are structured from the validated
    input, and results are converted back to JSON values. ``Annotated[int, "what it is"]`` describes a parameter,
    ``Annotated[int, Field(ge=1)]`` (pydantic, annotated_types, msgspec) bounds it.

    A parameter called ``context`` without an annotation, or annotated `OperationContext`, receives the context of
    the call. A function of ``(input, context)`` receives the whole input if ``input`` has no annotation or that of
    a mapping.

    Args:
        function: the function, for the bare form ``@operation``.
        namespace: the namespace of the id; by default ``local``.
        name: the name in the namespace; by default that of the function.
        type: an `OperationType` or its string. By default a generator, or a function that returns an iterator, is
            a subscription, and any other function is a mutation.
        input_schema: the input schema; by default it is made from the type hints.
        output_schema: the output schema; by default it is made from the return hint.
        description: the description; by default the docstring, without a section ``Args:``, whose texts describe
            the parameters in the input schema.
        blocking: whether a plain ``def`` runs in a worker thread (default) or, if ``False``, in the event loop.
        conversions: the conversions of the application's own types, see `Conversions.register`.
        version, title, access_control, error_schemas, tags, …: as for `OperationSpec`.

    Raises:
        TypeError: a keyword is unknown; the message names the nearest known keyword.
        RegistrationError: the argument is not a function, an option is invalid, a type hint has no JSON Schema, or
            a default does not fit its hint. The message names the operation and, for a hint, the parameter.
    """

    known = OperationOptions.__annotations__
    for name in options:
        if name not in known:
            raise TypeError(f'operation: unknown keyword "{name}"{did_you_mean(name, known)}')

    def decorate(function: Callable[P, R]) -> Operation[P, R]:
        from operad.functions.typed import typed_operation  # imports msgspec: only if a function is decorated

        return typed_operation(function, options)

    return decorate if function is None else decorate(function)
