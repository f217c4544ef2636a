"""The signature of a typed function: converts arguments to an input, and data to a return value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, get_args

from operad.context import OperationContext
from operad.errors import CallError, ErrorCode
from operad.functions.conversions import Conversions
from operad.functions.kinds import bare, is_union
from operad.operations import Operation

_SCALARS = (int, float, str, bool, type(None))


def takes_context(name: str, hint: Any) -> bool:
    """Return True for a parameter of type `OperationContext` or ``… | None``, or ``context`` without a type."""
    hint = bare(hint)
    return OperationContext in (hint, *(get_args(hint) if is_union(hint) else ())) or (
        name == "context" and hint is Any
    )


class Method(NamedTuple):
    """A function in a class body from which an operation was made. It makes operations from bound methods."""

    owner: str
    """The qualified name of the class."""
    descriptor: Any
    """The object in the class body: the function, or a classmethod."""
    rebind: Callable[[Callable[..., Any]], Operation[..., Any]]
    """A function that makes an operation from a bound method."""

    def bind(self, operation: Operation[..., Any], instance: object, owner: type | None) -> Operation[..., Any]:
        """Return the operation of the method bound to ``instance``, or to ``owner`` for a classmethod.

        If ``instance`` is ``None``, return ``operation`` unchanged, unless the method is a classmethod.
        """
        if instance is None and not isinstance(self.descriptor, classmethod):
            return operation
        return self.rebind(self.descriptor.__get__(instance, owner))

    def unbound(self, operation: Operation[..., Any]) -> str:
        """Return the error message for a method that was registered without an object, with the fix."""
        name = operation.spec.name if operation.function is None else operation.function.__name__
        whose = self.owner if isinstance(self.descriptor, classmethod) else f"{self.owner}(…)"
        return f'"{operation.id}" is a method without an object; use registry.register({whose}.{name})'


class TypedSignature:
    """The signature of a typed function, which converts arguments to an input and data to its result.

    Args:
        function: the function.
        hints: the type hints of the function, by parameter.
        conversions: converts values to JSON and back.
        result: the type hint of the result or, for a stream, of each item; `Any` if the function has no hint.
        in_envelope: whether the function returns envelopes; then callers also receive envelopes.
        raw: whether the function takes the whole input, as ``(input)`` or ``(input, context)``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        hints: Mapping[str, Any],
        conversions: Conversions,
        result: Any,
        *,
        in_envelope: bool,
        raw: bool,
    ) -> None:
        self._function, self._hints, self.conversions = function, hints, conversions
        self._result, self._raw = result, raw
        self.in_envelope = in_envelope

    def input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, OperationContext | None]:
        """Return the input made from the arguments, and the context; ``None`` if no argument is the context.

        Raises:
            TypeError: there are too many arguments, or an argument is given twice. The message is Python's own.
        """
        names, context_name, unstructures = self._parameters
        if args:
            if len(args) > len(names) or not kwargs.keys().isdisjoint(names[: len(args)]):
                inspect.signature(self._function).bind(*args, **kwargs)  # raises with Python's own message
            kwargs.update(zip(names, args, strict=False))
        context = None if context_name is None else kwargs.pop(context_name, None)
        if self._raw:
            return kwargs.get("input"), context
        for name, unstructure in unstructures:
            if name in kwargs:
                kwargs[name] = unstructure(kwargs[name])
        return kwargs, context

    def result(self, data: Any, operation_id: str) -> Any:
        """Return the data of an envelope as a value of the function's return type.

        Raises `CallError` ``EXECUTION_ERROR`` if the data do not fit that type.
        """
        hint, structure = self._structure
        if structure is None or (hint in _SCALARS and type(data) is hint):
            return data
        try:
            return structure(data)
        except Exception as error:  # pydantic, cattrs and msgspec each raise their own errors
            message = f'the result of "{operation_id}" does not fit the return type of its function: {error}'
            raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message}) from error

    @cached_property
    def _structure(self) -> tuple[Any, Callable[[Any], Any] | None]:
        hint = bare(self._result)
        return hint, self.conversions.structurer(hint)

    @cached_property
    def _parameters(self) -> tuple[list[str], str | None, list[tuple[str, Callable[[Any], Any]]]]:
        names, unstructures, context_name = [], [], None
        for parameter in inspect.signature(self._function).parameters.values():
            hint = self._hints.get(parameter.name, Any)
            if parameter.kind is not parameter.KEYWORD_ONLY and parameter.kind is not parameter.VAR_KEYWORD:
                names.append(parameter.name)
            if takes_context(parameter.name, hint):
                context_name = parameter.name
            elif bare(hint) not in _SCALARS and parameter.kind is not parameter.VAR_KEYWORD:
                unstructures.append((parameter.name, self.conversions.unstructurer(hint)))
        return names, context_name, unstructures
