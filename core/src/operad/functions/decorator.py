"""The decorator `operation`: makes a function with type hints an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from operad.operations import DEFAULT_NAMESPACE, Operation, OperationType
from operad_schema import Schema

if TYPE_CHECKING:
    from operad.functions.conversions import Conversions

P = ParamSpec("P")
R = TypeVar("R")


@overload
def operation(function: Callable[P, R], /) -> Operation[P, R]: ...


@overload
def operation(
    *,
    namespace: str = ...,
    name: str | None = ...,
    type: OperationType | str | None = ...,
    input_schema: Schema | Mapping[str, Any] | bool | None = ...,
    output_schema: Schema | Mapping[str, Any] | bool | None = ...,
    description: str | None = ...,
    blocking: bool | None = ...,
    conversions: Conversions | None = ...,
    **spec: Any,
) -> Callable[[Callable[P, R]], Operation[P, R]]: ...


def operation(
    function: Callable[P, R] | None = None,
    /,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    name: str | None = None,
    type: OperationType | str | None = None,
    input_schema: Schema | Mapping[str, Any] | bool | None = None,
    output_schema: Schema | Mapping[str, Any] | bool | None = None,
    description: str | None = None,
    blocking: bool | None = None,
    conversions: Conversions | None = None,
    **spec: Any,
) -> Operation[P, R] | Callable[[Callable[P, R]], Operation[P, R]]:
    """Make a function an operation, with schemas from its type hints.

    ``async def add(a: int, b: int) -> int`` is a complete operation: its input schema is an object with the
    integers ``a`` and ``b``, its output schema an integer. attrs classes, dataclasses, TypedDicts, enums,
    literals, datetimes, UUIDs, paths, unions and (where installed) pydantic models are structured from the
    validated input, and results are turned back into JSON values. ``Annotated[int, "what it is"]`` describes a
    parameter, ``Annotated[int, Field(ge=1)]`` (pydantic, annotated_types, msgspec) bounds it.
    A parameter called ``context``, or annotated `OperationContext`, receives the context of the call. A
    function of ``(input, context)`` whose ``input`` is not annotated, or is a mapping, is taken as it is.

    Args:
        function: the function, for the bare form ``@operation``.
        namespace: the namespace of the id.
        name: the name in it; the function's own by default.
        type: an `OperationType` or its string. Default: an async generator is a subscription, everything else
            a mutation, because only what says ``query`` may be repeated.
        input_schema: instead of the inferred one.
        output_schema: instead of the inferred one.
        description: instead of the docstring.
        blocking: ``False`` runs a plain ``def`` in the event loop instead of a worker thread.
        conversions: types of the application's own, registered there.
        spec: further fields of `OperationSpec`.

    Raises:
        RegistrationError: what is no function, a type hint that has no JSON Schema, a default that does not fit
            its hint; the message names the parameter.
    """

    def decorate(function: Callable[P, R]) -> Operation[P, R]:
        from operad.functions.typed import Given, typed_operation  # msgspec comes with it: only for who decorates

        given = Given(
            namespace=namespace,
            name=name,
            type=type,
            input_schema=input_schema,
            output_schema=output_schema,
            description=description,
            blocking=blocking,
            conversions=conversions,
            spec=spec,
        )
        return typed_operation(function, given)

    return decorate if function is None else decorate(function)
