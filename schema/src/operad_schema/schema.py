"""The public `Schema`: one lazily compiled object for validation, cast and readable errors.

    schema = from_schema({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
    schema.cast({"id": "7", "x": 1})     # {"id": 7}
    schema.errors({"id": "seven"})       # one SchemaError: expected integer, got str at $.id

A schema is a pointer into a shared document, which is never copied or changed. Nothing is compiled until it
is first used, and nothing is ever fetched. Schemas are untrusted: a part that could exhaust the stack or refer
outside the document accepts any value, with a warning. So does a pattern that cannot be run in linear time.

On a hot path, take the callables once per schema and keep them:

- `schema.validator(value) -> bool`
- `schema.normalizer(value) -> (value, clean)`: cast, then validate. `clean` is False if the result is invalid.
  `schema.mismatches` then returns the reasons for the original value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, get_args

from operad_schema.limits import DEFAULT, Limits
from operad_schema.records import Change, Mode, Origin, SchemaError

if TYPE_CHECKING:
    from operad_schema.bundling import SharedDefinitions
    from operad_schema.compiling import Compiled

__all__ = ["UNKNOWN", "Change", "Dialect", "Schema", "SchemaError", "from_schema", "lazy_schema"]

Dialect = Literal["draft4", "draft6", "draft7", "2019-09", "2020-12", "openapi-3.0", "openapi-3.1"]


class Schema:
    """A JSON Schema, compiled when first used. Equal schemas share the compiled form.

    Make one with `from_schema` or `lazy_schema`. It can be used from several threads. Do not change its document.
    """

    __slots__ = ("__weakref__", "_build", "_changes", "_compiled", "_origin")

    def __init__(self, origin: Origin | None, build: Callable[[], Any] | None = None) -> None:
        self._origin = origin
        self._build = build
        self._changes: dict[str, Any] = {}
        self._compiled: Compiled | None = None

    @property
    def origin(self) -> Origin:
        """The schema's document, its location there, and the options with which it is read."""
        return self._origin or self._built()

    @property
    def raw(self) -> Any:
        """The mapping or bool from which the schema was made, not a copy. Do not change it."""
        return self.origin.raw

    def limited(self, limits: Limits) -> Schema:
        """Return a `Schema` of the same JSON Schema with the given limits. Nothing is read or compiled yet."""
        return self._but(limits=limits)

    def running_unchecked(self) -> Schema:
        """Return a `Schema` of the same JSON Schema for which Python's `re` runs the patterns in `unchecked`.

        A match may take very long. Text of more than `max_pattern_string` characters is invalid without a match.
        """
        return self._but(unchecked=True)

    def _but(self, **changes: Any) -> Schema:
        """Return a `Schema` of the same document with other options of its `Origin`."""
        if self._build is None:
            return Schema(self.origin._replace(**changes))
        made = Schema(None, self._build)
        made._changes = {**self._changes, **changes}
        return made

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The patterns that are not run, each with its reason and its place. Any text matches such a pattern.

        Reading this compiles the schema, unless it contains no pattern.
        """
        with suppress(TypeError, ValueError, RecursionError):
            if self.origin.document is None and '"pattern' not in json.dumps(self.raw, default=repr):
                return ()
        return (self._compiled or self._compile()).unchecked

    @property
    def is_unknown(self) -> bool:
        """Whether the schema has no usable constraint, so that every value is valid and no value is cast."""
        return (self._compiled or self._compile()).is_unknown

    @property
    def validator(self) -> Callable[[Any], bool]:
        """The compiled check. It returns True if a value is valid; no value makes it raise an exception."""
        return (self._compiled or self._compile()).validator

    @property
    def caster(self) -> Callable[[Any], Any]:
        """The compiled form of `cast`. No value makes it raise an exception, and it never changes its argument."""
        return (self._compiled or self._compile()).caster("cast")

    @property
    def normalizer(self) -> Callable[[Any], tuple[Any, bool]]:
        """The compiled cast and check in one. It returns (value, clean); clean is True if the result is valid."""
        return (self._compiled or self._compile()).normalizer

    def tracer(self, mode: Mode = "cast") -> Callable[[Any], tuple[Any, bool, bool, bool]]:
        """Return a `normalizer` for a mode that returns (value, clean, dropped, invented).

        `dropped` is True if the cast dropped a part, `invented` if it added a zero value. In the mode `keep`, it
        drops nothing. In `complete`, it adds a zero value for each missing required property without a default; a
        result with a zero value is not clean.
        """
        return (self._compiled or self._compile()).tracer(mode)

    def is_valid(self, value: Any) -> bool:
        """Return True if `value` is valid. No value makes this raise an exception."""
        return (self._compiled or self._compile()).validator(value)

    def errors(self, value: Any) -> list[SchemaError]:
        """Return the errors of `value`, at most `max_schema_errors`; an empty list if it is valid."""
        return (self._compiled or self._compile()).errors(value)

    def mismatches(self, value: Any, mode: Mode = "cast") -> list[SchemaError]:
        """Return the errors of `value` after its cast in a mode: first an error for each zero value that the cast
        added, then the errors of the result.
        """
        return (self._compiled or self._compile()).mismatches(value, mode)

    def cast(self, value: Any, *, complete: bool = False) -> Any:
        """Return `value` converted to the schema's shape.

        Undeclared properties are dropped, declared defaults are filled in, and scalars are converted without loss.
        A value that cannot be converted is kept, and missing values stay missing. No value makes this raise an
        exception, and `value` is not changed. Parts without a schema are shared with the result.

        Args:
            value: the value to cast.
            complete: whether missing required properties without a default get the smallest value of their type.
        """
        return (self._compiled or self._compile()).caster("complete" if complete else "cast")(value)

    def cast_report(self, value: Any, *, complete: bool = False) -> tuple[Any, list[Change]]:
        """Return `cast(value)`, and a list with a `Change` for each part that it changed."""
        result = self.cast(value, complete=complete)
        return result, self.changes(value, result)

    @staticmethod
    def changes(before: Any, after: Any) -> list[Change]:
        """Return a `Change` for each part that a cast from `before` to `after` dropped, filled in or converted."""
        from operad_schema.explaining import changes

        return changes(before, after)

    def bundled(self, shared: SharedDefinitions | None = None) -> dict[str, Any] | bool:
        """Return a self-contained copy in JSON Schema 2020-12, with annotations.

        Schemas that it refers to are in its `$defs`. If `shared` is given, they are added to `shared.definitions`
        instead, once for all schemas that are bundled with it. A schema that cannot be read becomes True.
        """
        from operad_schema.bundling import bundle

        return bundle(self.origin) if shared is None else shared.add(self.origin)

    def published(self) -> dict[str, Any] | bool:
        """Return the schema to publish: `raw` if it is self-contained, else `bundled`.

        The result can always be sent as JSON. If `raw` cannot (for example because of a Python object, text that
        UTF-8 cannot encode, or a thousand levels), the result is `bundled`. Do not change the result, which may be
        `raw`.
        """
        from operad_schema.bundling import is_sendable

        raw, origin = self.raw, self.origin
        if origin.document is None and (origin.dialect is None or (isinstance(raw, Mapping) and "$schema" in raw)):
            given: dict[str, Any] | bool = raw if isinstance(raw, (bool, dict)) else dict(raw)
            if is_sendable(given):
                return given
        return self.bundled()

    def is_larger(self, values: int) -> bool:
        """Return True if the schema, with everything that it refers to, has more than ``values`` JSON values.

        Use it to find schemas that are too large to show. Counting stops at that number, and nothing is bundled.
        """
        from operad_schema.bundling import is_larger

        return is_larger(self.origin, values)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The parts of the schema that are ignored or unknown, each with its place and the reason."""
        return (self._compiled or self._compile()).warnings

    def _built(self) -> Origin:
        build = self._build
        if build is None:
            assert self._origin is not None, "built by another thread since"
            return self._origin
        built = build()
        origin = built.origin if isinstance(built, Schema) else Origin(_checked(built), None, None, "", DEFAULT)
        self._origin = origin = origin._replace(**self._changes)
        # Last: a thread that still sees `build` may build again, with the same result.
        self._build = None
        return origin

    def _compile(self) -> Compiled:
        from operad_schema.compiling import compiled

        self._compiled = made = compiled(self.origin)
        return made

    def __repr__(self) -> str:
        if self._origin is None:
            return "<Schema not built yet>"
        raw, pointer = self._origin.raw, self._origin.pointer
        place = f" at {pointer}" if pointer else ""
        keys = ", ".join(map(repr, list(raw)[:8])) if isinstance(raw, Mapping) else raw
        return f"<Schema of {keys}{place}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Schema:
        return self

    def __copy__(self) -> Schema:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self.origin,)


def from_schema(
    schema: Mapping[str, Any] | bool,
    *,
    dialect: Dialect | None = None,
    document: Mapping[str, Any] | None = None,
    pointer: str = "",
    trusted: bool = False,
    limits: Limits = DEFAULT,
    formats: bool = False,
) -> Schema:
    """Return the `Schema` of a JSON Schema.

    Only the type of `schema` is checked now. Its content is read when it is first used.

    Args:
        schema: the JSON Schema.
        dialect: the dialect if neither the schema nor its document has a `$schema`; None means 2020-12.
        document: the document that contains `schema`; it is never copied and must not be changed.
        pointer: the location of the schema in the document, a JSON Pointer such as `/components/schemas/Pet`.
            If it is empty, the schema is not in the document, but its references point into the document.
        trusted: whether to lift limits on the size of the schema, for your own documents; see `Limits.trusting`.
        limits: the limits on the schema, the values and the work.
        formats: whether to check `format`; by default it is only an annotation. It needs `operad-schema[formats]`:
            a format whose library is missing raises `ModuleNotFoundError` when the schema is first used.

    Raises:
        TypeError: `schema` is neither a mapping nor a bool.
        ValueError: the dialect is unknown, the pointer is malformed, or the pointer is given without a document.
    """
    if dialect is not None and dialect not in get_args(Dialect):
        raise ValueError(f"expected a dialect ({', '.join(get_args(Dialect))}), got {dialect!r:.80}")
    if pointer:
        pointer = pointer.removeprefix("#")
        if pointer and not pointer.startswith("/"):
            raise ValueError(f"expected a JSON Pointer such as '/components/schemas/Pet', got {pointer!r:.80}")
        if pointer and document is None:
            raise ValueError(
                f"expected document= together with the pointer {pointer!r}; pass the document that it points into"
            )
    within = limits.trusting() if trusted else limits
    document = None if document is schema else document
    return Schema(Origin(_checked(schema), dialect, document, pointer, within, formats))


def lazy_schema(build: Callable[[], Schema | Mapping[str, Any] | bool]) -> Schema:
    """Return a `Schema` that calls `build` when it is first used.

    Its first use raises the exceptions of `build`, or `TypeError` if the result is not a schema.
    """
    return Schema(None, build)


def _checked(schema: Any) -> Any:
    if schema.__class__ is dict or isinstance(schema, (bool, Mapping)):
        return schema
    raise TypeError(f"expected a JSON Schema (a mapping or a bool), got {type(schema).__name__}: {schema!r:.80}")


UNKNOWN = from_schema(True)
"""The schema without constraints: every value is valid."""
