"""JSON Schema in, one lazily compiled object out: validation, cast and readable errors.

This module imports no validator: `jsonschema` and `fastjsonschema` load when a schema is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["UNKNOWN", "Change", "Schema", "SchemaError", "from_schema", "lazy_schema"]

Dialect = Literal["draft4", "draft6", "draft7", "2019-09", "2020-12", "openapi-3.0", "openapi-3.1"]


@dataclass(frozen=True, slots=True)
class SchemaError:
    """One mismatch: `path` is `$.items[3].id`, `keyword` the JSON Schema keyword that failed."""

    path: str
    message: str
    keyword: str
    expected: Any
    got: Any


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a cast did: `action` is `dropped`, `filled` or `converted`."""

    path: str
    action: Literal["dropped", "filled", "converted"]
    before: Any
    after: Any


class Schema:
    """A JSON Schema, compiled when first used."""

    __slots__ = ("_build", "_dialect", "_document", "_pointer", "_raw")

    def __init__(self, raw: Any, dialect: str | None, document: Any, pointer: str) -> None:
        self._raw = raw
        self._dialect = dialect
        self._document = document
        self._pointer = pointer
        self._build: Callable[[], Any] | None = None

    @property
    def raw(self) -> Any:
        """The schema as it was given."""
        if self._build is not None:
            built = self._build()
            self._raw = built.raw if isinstance(built, Schema) else built
            self._build = None
        return self._raw

    @property
    def is_unknown(self) -> bool:
        """Whether every value is accepted as it is."""
        return self.raw is True or self.raw == {}

    @property
    def validator(self) -> Callable[[Any], bool]:
        """The compiled check: value -> whether it is valid."""
        from jsonschema.validators import validator_for

        if self.is_unknown:
            return lambda _value: True
        check = validator_for(self.raw)(self.raw)
        return lambda value: bool(check.is_valid(value))

    @property
    def caster(self) -> Callable[[Any], Any]:
        """The compiled cast: value -> value."""
        return lambda value: value

    @property
    def normalizer(self) -> Callable[[Any], tuple[Any, bool]]:
        """The compiled cast-then-validate: value -> (cast value, whether nothing is worth a warning)."""
        cast, valid = self.caster, self.validator

        def normalize(value: Any) -> tuple[Any, bool]:
            result = cast(value)
            return result, valid(result)

        return normalize

    def mismatches(self, value: Any) -> list[SchemaError]:
        """Why `normalizer(value)` said that something is worth a warning; `value` is the uncast value."""
        return self.errors(self.cast(value))

    def is_valid(self, value: Any) -> bool:
        """Whether `value` is valid."""
        return self.validator(value)

    def errors(self, value: Any) -> list[SchemaError]:
        """What is wrong with `value`; empty when it is valid."""
        from jsonschema.validators import validator_for

        if self.is_unknown:
            return []
        return [
            SchemaError(
                e.json_path, f"{e.message} at {e.json_path}", str(e.validator), e.validator_value, e.instance
            )
            for e in validator_for(self.raw)(self.raw).iter_errors(value)
        ]

    def cast(self, value: Any) -> Any:
        """The value in the schema's shape."""
        return self.caster(value)

    def cast_report(self, value: Any) -> tuple[Any, list[Change]]:
        """The cast value and what the cast changed."""
        return self.cast(value), []

    def bundled(self) -> Any:
        """A self-contained copy, its references in `$defs`."""
        return self.raw


def from_schema(
    schema: Mapping[str, Any] | bool,
    *,
    dialect: Dialect | None = None,
    document: Mapping[str, Any] | None = None,
    pointer: str = "",
    trusted: bool = False,
) -> Schema:
    """A `Schema` of a JSON Schema; nothing is compiled yet."""
    return Schema(schema, dialect, document, pointer)


def lazy_schema(build: Callable[[], Schema | Mapping[str, Any] | bool]) -> Schema:
    """A `Schema` that is built when first used."""
    lazy = Schema(None, None, None, "")
    lazy._build = build
    return lazy


UNKNOWN = from_schema(True)
"""The schema of anything."""
