"""JSON Schema in, one lazily compiled object out: validation, cast and readable errors.

    schema = from_schema({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
    schema.cast({"id": "7", "x": 1})     # {"id": 7}
    schema.errors({"id": "seven"})       # one SchemaError: expected integer, got str at $.id

A schema is a pointer into a document that is shared and never copied or changed. Nothing is compiled until
it is first used, nothing is ever fetched, and this module imports no validator: fastjsonschema and
jsonschema load with the first schema that needs them. Schemas may come from anybody: whatever would inject
code, hang a regular expression, blow the stack or reach out of the document is unknown, with a warning.

On a hot path, take the callables once per schema and keep them:

- `schema.validator(value) -> bool`
- `schema.normalizer(value) -> (value, clean)`: cast, then validate. `clean` is False when the result is
  invalid or holds a zero value that a missing required property asked for; `schema.mismatches(value)` then
  says which, from the value as it was before the cast.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from operad.schemas.bundling import SharedDefinitions
    from operad.schemas.compiled import Compiled

__all__ = ["UNKNOWN", "Change", "Dialect", "Schema", "SchemaError", "from_schema", "lazy_schema"]

logger = logging.getLogger("operad.schemas.schema")

Dialect = Literal["draft4", "draft6", "draft7", "2019-09", "2020-12", "openapi-3.0", "openapi-3.1"]


@dataclass(frozen=True, slots=True)
class SchemaError:
    """One thing that is wrong with a value.

    `path` is where (`$.items[3].id`), `keyword` the JSON Schema keyword that says so, `expected` and `got`
    are short texts; `message` says all of it: `expected integer, got str at $.items[3].id`.
    """

    path: str
    message: str
    keyword: str
    expected: str
    got: str


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a cast did at `path`: what was dropped has no `after`, what was filled in no `before`."""

    path: str
    action: Literal["dropped", "filled", "converted"]
    before: Any
    after: Any


class Schema:
    """A JSON Schema, compiled when first used and then shared by all schemas that say the same.

    Made by `from_schema`. Safe to use from several threads; its document must not be changed.
    """

    __slots__ = ("__weakref__", "_build", "_compiled", "_dialect", "_document", "_pointer", "_raw", "_trusted")

    def __init__(self, raw: Any, dialect: Dialect | None = None, document: Any = None, pointer: str = "",
                 trusted: bool = False, build: Callable[[], Any] | None = None) -> None:  # fmt: skip
        self._raw = raw
        self._dialect = dialect
        self._document = document
        self._pointer = pointer
        self._trusted = trusted
        self._build = build
        self._compiled: Compiled | None = None

    @property
    def raw(self) -> Any:
        """The schema as it was given: the document's own node, not to be changed."""
        if self._build is not None:
            self._built()
        return self._raw

    @property
    def is_unknown(self) -> bool:
        """Whether it says nothing, or nothing usable: every value is valid and no value is cast."""
        return (self._compiled or self._compile()).is_unknown

    @property
    def validator(self) -> Callable[[Any], bool]:
        """The compiled check: whether a value is valid. Never raises."""
        return (self._compiled or self._compile()).validator

    @property
    def caster(self) -> Callable[[Any], Any]:
        """The compiled cast: a value in the schema's shape. Never raises, never changes its argument."""
        return (self._compiled or self._compile()).caster

    @property
    def normalizer(self) -> Callable[[Any], tuple[Any, bool]]:
        """The compiled cast and check in one: the cast value, and whether nothing about it is worth a warning."""
        return (self._compiled or self._compile()).normalizer

    def tracer(self, *, keeps: bool = False) -> Callable[[Any], tuple[Any, bool, bool, bool]]:
        """The compiled `normalizer` that also says what the cast did: (value, clean, dropped, invented).

        With `keeps`, the cast converts and fills in declared defaults; it drops nothing and invents nothing.
        `cast_report` says, for a value of which something was dropped or invented, what and where.
        """
        return (self._compiled or self._compile()).tracer(keeps=keeps)

    def is_valid(self, value: Any) -> bool:
        """Whether `value` is valid."""
        return (self._compiled or self._compile()).validator(value)

    def errors(self, value: Any) -> list[SchemaError]:
        """What is wrong with `value`, at most 20 errors; empty when it is valid."""
        return (self._compiled or self._compile()).errors(value)

    def mismatches(self, value: Any) -> list[SchemaError]:
        """What is worth a warning about `value` once it is cast: invented zero values, then errors."""
        return (self._compiled or self._compile()).mismatches(value)

    def cast(self, value: Any) -> Any:
        """`value` in the schema's shape: undeclared properties dropped, defaults filled in, scalars converted
        where nothing is lost; what cannot be placed is kept.

        Never raises and never changes its argument. What is under no schema is shared with the result.
        """
        return (self._compiled or self._compile()).caster(value)

    def cast_report(self, value: Any) -> tuple[Any, list[Change]]:
        """`cast(value)`, and what it dropped, filled in and converted."""
        result = self.cast(value)
        return result, self.changes(value, result)

    @staticmethod
    def changes(before: Any, after: Any) -> list[Change]:
        """What a cast of `before` that made `after` dropped, filled in and converted."""
        from operad.schemas.explaining import changes

        return changes(before, after)

    def bundled(self, shared: SharedDefinitions | None = None) -> dict[str, Any] | bool:
        """A self-contained copy in JSON Schema 2020-12 with its annotations, what it refers to in `$defs`.

        With `shared`, what it refers to is there, once for all schemas that are bundled with it.
        """
        from operad.schemas.bundling import bundle

        raw = self.raw
        export = bundle if shared is None else shared.add
        return export(raw, self._document, self._pointer, self._dialect)

    def published(self) -> dict[str, Any] | bool:
        """What to show to others: the schema as it was given where that stands for itself, else `bundled`.

        Not to be changed: it may be the document's own node.
        """
        raw = self.raw
        if self._document is None and (self._dialect is None or (isinstance(raw, Mapping) and "$schema" in raw)):
            return raw if isinstance(raw, (bool, dict)) else dict(raw)
        return self.bundled()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The parts of the schema that are ignored or unknown, and why: `#/properties/a: …`."""
        return (self._compiled or self._compile()).warnings

    @property
    def engine(self) -> str:
        """How values are checked: `closures`, `generated` or `interpreted: <why>`, whichever is the slowest."""
        return (self._compiled or self._compile()).engine

    def _built(self) -> None:
        build = self._build
        if build is None:
            return
        built = build()
        if isinstance(built, Schema):
            raw = built.raw
            self._dialect, self._document, self._pointer = built._dialect, built._document, built._pointer
            self._trusted = built._trusted
        else:
            raw = _checked(built)
        self._raw = raw
        # Last: another thread that still sees `build` builds once more, to the same effect.
        self._build = None

    def _compile(self) -> Compiled:
        if self._build is not None:
            self._built()
        compiled = _compiled(self)
        self._compiled = compiled
        return compiled

    def __repr__(self) -> str:
        if self._build is not None:
            return "<Schema not built yet>"
        place = f" at {self._pointer}" if self._pointer else ""
        keys = ", ".join(map(repr, list(self._raw)[:8])) if isinstance(self._raw, Mapping) else self._raw
        return f"<Schema of {keys}{place}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Schema:
        return self

    def __copy__(self) -> Schema:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self.raw, self._dialect, self._document, self._pointer, self._trusted)


def from_schema(
    schema: Mapping[str, Any] | bool,
    *,
    dialect: Dialect | None = None,
    document: Mapping[str, Any] | None = None,
    pointer: str = "",
    trusted: bool = False,
) -> Schema:
    """A `Schema` of a JSON Schema; nothing is read yet but its type.

    `dialect` is how to read a schema that has no `$schema` of its own; None means 2020-12. With `document`,
    `schema` is the document's node at `pointer` (a JSON Pointer such as `/components/schemas/Pet`), or, without
    `pointer`, a schema whose references lead into the document. `trusted` lifts the bounds on the size of
    the schema, for documents of one's own.

    Raises `TypeError` for what is no schema, `ValueError` for an unknown dialect or a malformed pointer.
    """
    if dialect is not None and dialect not in get_args(Dialect):
        raise ValueError(f"expected a dialect ({', '.join(get_args(Dialect))}), got {dialect!r}")
    if pointer.startswith("#"):
        pointer = pointer[1:]
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"expected a JSON Pointer such as '/components/schemas/Pet', got {pointer!r}")
    if pointer and document is None:
        raise ValueError(f"the pointer {pointer!r} needs the document that it points into: pass document=")
    return Schema(_checked(schema), dialect, None if document is schema else document, pointer, trusted)


def lazy_schema(build: Callable[[], Schema | Mapping[str, Any] | bool]) -> Schema:
    """A `Schema` whose content `build` gives when it is first used; what `build` raises is raised there."""
    return Schema(None, build=build)


def _checked(schema: Any) -> Any:
    if isinstance(schema, bool | Mapping):
        return schema
    raise TypeError(f"expected a JSON Schema (a mapping or a bool), got {type(schema).__name__}: {schema!r:.80}")


UNKNOWN = from_schema(True)
"""The schema that says nothing: everything is valid."""


# --- what is shared ------------------------------------------------------------------------------------

MAX_CACHED = 512
"""The compiled schemas that are kept for others that say the same; a schema in use keeps its own."""

_lock = threading.Lock()
_cache: OrderedDict[Any, Compiled] = OrderedDict()
_stores: weakref.WeakValueDictionary[tuple[int, str, bool], Any] = weakref.WeakValueDictionary()


def _compiled(schema: Schema) -> Compiled:
    """The compiled form of a schema, from the cache where another schema says the same.

    A schema of its own is known by its text, one of a document by the text of all that it reaches.
    """
    from operad.schemas.compiled import Compiled, Store, closure_of, dialect_of

    raw, document = schema._raw, schema._document
    dialect = dialect_of(raw) or dialect_of(document) or schema._dialect or "2020-12"
    key: Any = None
    if document is None:
        key = _text_key(raw, dialect, schema._trusted)
        if key is not None and (found := _cached(key)) is not None:
            return found
        store = Store(raw, dialect, trusted=schema._trusted)
    else:
        store = _store(document, dialect, schema._trusted)
    closure = closure_of(store, raw, schema._pointer, detached=document is not None and not schema._pointer)
    for warning in closure.warnings:
        if warning in store.warned:  # by another schema of the document that reaches the same one
            continue
        store.warned.add(warning)
        logger.warning("schema%s: %s", f" {schema._pointer}" if schema._pointer else "", warning)
    if document is not None:
        key = (closure.key, schema._trusted)
        if (found := _cached(key)) is not None:
            return found
    compiled = Compiled(closure)
    if key is not None:
        with _lock:
            compiled = _cache.setdefault(key, compiled)
            while len(_cache) > MAX_CACHED:
                _cache.popitem(last=False)
    return compiled


def _text_key(raw: Any, dialect: str, trusted: bool) -> Any:
    try:
        text = json.dumps(raw, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), dialect, trusted


def _cached(key: Any) -> Compiled | None:
    with _lock:
        found = _cache.get(key)
        if found is not None:
            _cache.move_to_end(key)
        return found


def _store(document: Any, dialect: str, trusted: bool) -> Any:
    """The normal form of a document, shared by its schemas for as long as one of them is compiled."""
    from operad.schemas.compiled import Store

    key = id(document), dialect, trusted
    with _lock:
        found = _stores.get(key)
        # The store holds its document, so the id is the document's own for as long as the store lives.
        if found is None or found.references.document is not document:
            found = _stores[key] = Store(document, dialect, trusted=trusted, roots=_roots(document))
        return found


def _roots(document: Any) -> tuple[tuple[Any, ...], ...]:
    """Where a document holds schemas: as an OpenAPI or Swagger document, or as a schema itself."""
    components = document.get("components") if isinstance(document, Mapping) else None
    named = components.get("schemas") if isinstance(components, Mapping) else None
    roots: list[tuple[Any, ...]] = [()]
    if isinstance(named, Mapping):
        roots += [("components", "schemas", name) for name in named]
    return tuple(roots)
