"""Operations: a spec describes an operation, a handler runs it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar

import attrs

from operad.access import OPEN, AccessControl
from operad.errors import RegistrationError
from operad.records import record
from operad.wire import wire_name
from operad.words import encodable, json_safe
from operad_schema import UNKNOWN, Schema, from_schema

if TYPE_CHECKING:
    from operad.envelopes import ResponseEnvelope

P = ParamSpec("P")
# Covariant, because pyright gives an `async def` its own subtype of Coroutine.
R_co = TypeVar("R_co", covariant=True)

Handler = Callable[..., Any]
"""``async def handler(input, context)``, an async generator function for a subscription, or a plain ``def``."""


Normalize = Literal["cast", "complete", "keep", "off"]
"""How data are cast to the output schema: ``keep`` converts values and fills in declared defaults; ``cast`` also
drops undeclared properties; ``complete`` also makes up missing required values; ``off`` changes nothing."""
NormalizeRule = Normalize | Mapping[str, Normalize]
"""One value for all operations, or values by shell patterns of ids: ``{"*": "cast", "orders.*": "keep"}``."""
OnMismatch = Literal["warn", "raise", "ignore"]
"""Whether data that do not match the output schema are logged, make the call fail, or are ignored."""


def is_kind(handler: Any, predicate: Callable[[Any], bool]) -> bool:
    """Return True if ``predicate`` is true of a function, a partial's function, or an object's ``__call__``."""
    while isinstance(handler, partial):
        handler = handler.func
    call = getattr(type(handler), "__call__", None)  # noqa: B004  # not "is it callable" but "what is its call"
    return predicate(handler) or (not inspect.isroutine(handler) and predicate(call))


class OperationType(StrEnum):
    """The type of an operation: whether it reads, changes something or yields a stream."""

    QUERY = "query"
    """The operation reads. It may be called again after a failure."""
    MUTATION = "mutation"
    """The operation changes something. It is called again after a failure only if it is declared idempotent."""
    SUBSCRIPTION = "subscription"
    """The operation yields a stream of envelopes."""


def _schema(value: Schema | Mapping[str, Any] | bool | None) -> Schema:
    if isinstance(value, Schema):
        return value
    return UNKNOWN if value is None else from_schema(value)


def _access(value: AccessControl | Mapping[str, Any] | None) -> AccessControl:
    if isinstance(value, AccessControl):
        return value
    return OPEN if not value else AccessControl(**value)


def _words(value: Any) -> Any:
    """Return text with lone surrogates escaped, so that every listing can represent it; other values unchanged."""
    return value if not isinstance(value, str) or value.isascii() else encodable(value)


@record
class ErrorDefinition:
    """An error that an operation declares. By default its details are of any type, and it has no HTTP status."""

    code: str
    description: str = attrs.field(default="", converter=_words)
    schema: Schema = attrs.field(default=UNKNOWN, converter=_schema)
    http_status: int | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form ``{code, description, schema?, httpStatus?}``, without an unknown schema."""
        wire: dict[str, Any] = {"code": self.code, "description": self.description}
        if not self.schema.is_unknown:
            wire["schema"] = self.schema.bundled()
        if self.http_status is not None:
            wire["httpStatus"] = self.http_status
        return wire


def _error_schemas(values: Iterable[ErrorDefinition | Mapping[str, Any]]) -> tuple[ErrorDefinition, ...]:
    return tuple(_error_schema(value) for value in values) if values else ()


def _error_schema(value: ErrorDefinition | Mapping[str, Any]) -> ErrorDefinition:
    if isinstance(value, ErrorDefinition):
        return value
    if not isinstance(value.get("code"), str):
        expected = "{code, description?, schema?, httpStatus?}"
        raise RegistrationError(f"error_schemas: expected {expected}, got {value!r:.100}")
    return ErrorDefinition(
        value["code"], value.get("description", ""), value.get("schema"), value.get("httpStatus")
    )


def _type(value: OperationType | str) -> OperationType:
    if value.__class__ is OperationType:
        return value
    try:
        return OperationType(value)
    except ValueError:
        known = ", ".join(OperationType)
        raise RegistrationError(f"operation type: expected one of {known}, got {value!r:.100}") from None


def _tags(values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError(f'tags: expected a list of strings, got "{values:.99}"; write ["{values:.99}"]')
    return tuple(map(_words, values)) if values else ()


DEFAULT_NAMESPACE = "local"
"""The namespace of a decorated function if the decorator has no option ``namespace``."""

NAMESPACE = re.compile(r"[A-Za-z0-9_-]+")
# Thousands of operations share the namespace of their source.
_is_namespace = lru_cache(NAMESPACE.fullmatch)
_SAID = ("namespace", "name", "id", "type")
"""Fields that the repr of every spec shows; others are shown if they differ from the default."""


@record(kw_only=True)
class OperationSpec:
    """The description of an operation: its id, type, schemas, requirements, and texts for people and models.

    Schemas may be given as `Schema`, as a JSON Schema (dict or bool), or left out (any value). Raises
    `RegistrationError` for an invalid namespace, name, type or error, and `TypeError` for a string as ``tags``.
    """

    namespace: str
    """The part of the id before its first dot: ``[A-Za-z0-9_-]+``."""
    name: str
    """The part of the id after its first dot: printable characters without white space."""
    type: OperationType = attrs.field(default=OperationType.MUTATION, converter=_type)
    version: str = "1.0.0"
    title: str | None = attrs.field(default=None, converter=_words)
    description: str = attrs.field(default="", converter=_words)
    input_schema: Schema = attrs.field(default=UNKNOWN, converter=_schema)
    output_schema: Schema = attrs.field(default=UNKNOWN, converter=_schema)
    """The schema of the data; for a subscription, the schema of each item."""
    access_control: AccessControl = attrs.field(default=OPEN, converter=_access)
    error_schemas: tuple[ErrorDefinition, ...] = attrs.field(default=(), converter=_error_schemas)
    tags: tuple[str, ...] = attrs.field(default=(), converter=_tags)
    deprecated: bool = False
    idempotent: bool = False
    """Whether running a mutation twice has the same effect as running it once.

    A transport that loses the server of such a call may send the request to another server.
    """
    unchecked_patterns: bool = False
    """Whether to check input patterns that need more than linear time. Such a check, with ``re``, may be slow."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """JSON-like values for sources and applications."""
    id: str = attrs.field(init=False, eq=False, repr=False)
    """The id of the operation, ``namespace.name``."""

    def __attrs_post_init__(self) -> None:
        if not _is_namespace(self.namespace):
            text = f"namespace {self.namespace!r} of operation {self.name!r} is invalid"
            raise RegistrationError(f"{text}: expected one or more of A-Z a-z 0-9 _ -")
        name = self.name
        if not name or not name.isprintable() or " " in name:  # no other white space is printable
            text = f"operation name {name!r} in namespace {self.namespace!r} is invalid"
            raise RegistrationError(f"{text}: expected one or more printable characters without white space")
        object.__setattr__(self, "id", f"{self.namespace}.{name}")
        if self.unchecked_patterns:
            object.__setattr__(self, "input_schema", self.input_schema.running_unchecked())

    def require_checked_patterns(self) -> None:
        """Raise `RegistrationError` if a pattern of the input schema would not be checked."""
        try:
            unchecked = self.input_schema.unchecked
        except Exception:  # noqa: BLE001  # a lazy schema that cannot be built; each call reports why
            return
        if unchecked:
            hint = "use a simpler pattern, or set unchecked_patterns=True"
            raise RegistrationError(f'operation "{self.id}": {unchecked[0]}; {hint}')

    def __repr__(self) -> str:
        words = f"OperationSpec(id={self.id!r}, type={str(self.type)!r}"
        for field in attrs.fields(OperationSpec):
            value = getattr(self, field.name)
            if field.name not in _SAID and value and value != field.default:
                words += f", {field.name}={value!r}"
        return words + ")"

    @property
    def is_repeatable(self) -> bool:
        """Whether a request that may have run already may run again: true for queries and idempotent mutations."""
        if self.type is OperationType.MUTATION:
            return self.idempotent
        return self.type is OperationType.QUERY

    def to_wire(self, *, schemas: bool = True) -> dict[str, Any]:
        """Return the JSON form (`OPERATION_SPEC_SCHEMA`); ``schemas=False`` omits schemas and metadata."""
        wire: dict[str, Any] = {
            "id": self.id,
            "namespace": self.namespace,
            "name": self.name,
            "type": str(self.type),
            "version": self.version,
            "description": self.description,
        }
        if self.title is not None:
            wire["title"] = self.title
        if self.tags:
            wire["tags"] = list(self.tags)
        if self.deprecated:
            wire["deprecated"] = True
        if self.idempotent:
            wire["idempotent"] = True
        if not self.access_control.is_open:
            wire["accessControl"] = _access_to_wire(self.access_control)
        if schemas:
            wire["inputSchema"] = self.input_schema.bundled()
            wire["outputSchema"] = self.output_schema.bundled()
            if self.error_schemas:
                wire["errorSchemas"] = [definition.to_wire() for definition in self.error_schemas]
            if self.metadata:
                wire["metadata"] = json_safe(self.metadata)
        return wire

    @classmethod
    def from_wire(cls, wire: Any, **overrides: Any) -> OperationSpec:
        """Return the spec with this JSON form (`OPERATION_SPEC_SCHEMA`); ``overrides`` replace its fields.

        Raises `RegistrationError` if ``wire`` does not match the schema.
        """
        if errors := _spec_schema().errors(dict(wire) if isinstance(wire, Mapping) else wire):
            raise RegistrationError(f"not an operation spec: {errors[0].message}")
        values = {name: wire[key] for name, key in _FIELDS.items() if key in wire}
        if "access_control" in values:
            values["access_control"] = _access_from_wire(values["access_control"])
        return cls(**(values | overrides))


_OWN = ("id", "unchecked_patterns")  # not for peers to decide
_FIELDS = {field.name: wire_name(field) for field in attrs.fields(OperationSpec) if field.name not in _OWN}
_ACCESS = {field.name: wire_name(field) for field in attrs.fields(AccessControl)}


def _access_to_wire(access: AccessControl) -> dict[str, Any]:
    values = {wire: getattr(access, name) for name, wire in _ACCESS.items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value}


def _access_from_wire(wire: Mapping[str, Any]) -> AccessControl:
    try:
        return AccessControl(**{name: wire[key] for name, key in _ACCESS.items() if key in wire})
    except ValueError as error:
        raise RegistrationError(f"not an operation spec: accessControl: {error}") from error


_STRINGS = {"type": "array", "items": {"type": "string"}}
_ANY_SCHEMA = {"type": ["object", "boolean"]}

OPERATION_SPEC_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "OperationSpec",
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "namespace": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
        "name": {"type": "string", "minLength": 1, "pattern": "^\\S+$"},
        "type": {"enum": [str(member) for member in OperationType]},
        "version": {"type": "string"},
        "title": {"type": "string"},
        "description": {"type": "string"},
        "inputSchema": _ANY_SCHEMA,
        "outputSchema": _ANY_SCHEMA,
        "accessControl": {
            "type": "object",
            "properties": {
                name: _STRINGS if name.startswith("requiredScopes") else {"type": "string"}
                for name in _ACCESS.values()
            },
            "additionalProperties": False,  # a misspelt requirement must not open the operation
        },
        "errorSchemas": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "code": {"type": "string"},
                    "description": {"type": "string"},
                    "schema": _ANY_SCHEMA,
                    "httpStatus": {"type": "integer"},
                },
                "required": ["code"],
            },
        },
        "tags": _STRINGS,
        "deprecated": {"type": "boolean"},
        "idempotent": {"type": "boolean"},
        "metadata": {"type": "object"},
    },
    "required": ["namespace", "name"],
}
"""JSON Schema of `OperationSpec.to_wire`."""


@cache
def _spec_schema() -> Schema:
    return from_schema(OPERATION_SPEC_SCHEMA)


_LOOKS = (
    "__name__", "__qualname__", "__module__", "__doc__", "__annotations__",
    "__code__", "__defaults__", "__kwdefaults__", "__globals__",
)  # fmt: skip
"""The attributes by which `inspect`, `help` and FastAPI recognise a function."""


class Pages(Protocol):
    """The pagination of an operation: how to request the next page, and where the items of a page are."""

    def following(self, input: Mapping[str, Any], envelope: ResponseEnvelope[Any]) -> Mapping[str, Any] | None:
        """Return the input of the call for the next page; ``None`` after the last one.

        ``envelope`` is the current page, and ``input`` is the input of its call. Raises `CallError` if the page
        refers to a next page in a way that cannot be used.
        """
        ...

    def items(self, envelope: ResponseEnvelope[Any]) -> Any:
        """Return the list of items of a page. Raises `CallError` if the page has no such list, or several."""
        ...


class _Dressed:
    """A base class with a ``__dict__`` for the function attributes of an operation; the fields use slots."""


@record(eq=False)
class Operation(_Dressed, Generic[P, R_co]):
    """A spec and its handler, as the decorator `operation` returns them. Calling it calls the decorated function.

    It has the attributes of the function (``__name__``, ``__doc__``, ``__wrapped__``, its signature), so that
    other libraries accept it as a function. In a class body it is a method, and only an instance (or the class,
    for a class method) has an operation that can be registered.
    """

    spec: OperationSpec
    handler: Handler | None
    """The handler; ``None`` if the operation cannot be called until one is registered."""
    blocking: bool | None = None
    """Whether a plain ``def`` handler runs in a worker thread; ``None`` means yes."""
    function: Callable[P, R_co] | None = None
    """The decorated function; ``None`` if the operation was not made from a function."""
    adapt: Callable[[Any], Any] | None = None
    """Converts the Python values of an input (a `datetime`, ``None`` for "absent") to JSON before the input is
    checked. It changes nothing in place and returns unknown values unchanged.
    """
    signature: Any = attrs.field(default=None, kw_only=True, repr=False)
    """A `TypedSignature`, which converts the function's arguments to an input and the data to its result; for
    `OperationRegistry.call`.
    """
    pages: Pages | None = attrs.field(default=None, kw_only=True, repr=False)
    """The pagination of a listing, for `OperationRegistry.paginate`; ``None`` if the result is one page."""
    stream: Handler | None = attrs.field(default=None, kw_only=True, repr=False)
    """An asynchronous generator function for `OperationRegistry.subscribe`, in addition to a ``handler`` that
    returns one item: for operations whose response may turn out to be a stream.
    """
    chunks: Handler | None = attrs.field(default=None, kw_only=True, repr=False)
    """An asynchronous generator function of envelopes whose data are the bytes of a response, in pieces; for
    `OperationRegistry.download`.
    """
    method: Any = attrs.field(default=None, kw_only=True, repr=False)
    """A `Method` if the function is in a class body and is not bound to an object yet; else ``None``."""

    def __attrs_post_init__(self) -> None:
        function = self.function
        if function is not None:
            seen = {name: getattr(function, name) for name in _LOOKS if hasattr(function, name)}
            vars(self).update(seen, __wrapped__=function)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in attrs.fields(Operation)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Operation.__init__(self, **state)

    def __get__(self, instance: object, owner: type | None = None) -> Operation[..., R_co]:
        bound: Operation[..., R_co] = self if self.method is None else self.method.bind(self, instance, owner)
        return bound

    @property
    def id(self) -> str:
        """The id of the spec, ``namespace.name``."""
        return self.spec.id

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the decorated function itself, without any registry.

        Raises `TypeError` if the operation was not made from a function.
        """
        if self.function is None:
            raise TypeError(f'operation "{self.id}" does not wrap a function; call it through a registry')
        return self.function(*args, **kwargs)
