"""The keywords of JSON Schema, each read into the normal form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from operad.schemas.nodes import Body
from operad.schemas.patterns import Pattern, UnsafePatternError, translate
from operad.schemas.references import ONE, Location, Scope
from operad.schemas.values import is_number, shown

if TYPE_CHECKING:
    from operad.schemas.reader import Reader

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
MAX_ENUM = 5_000
"""`max_schema_enum`: the members of one `enum`."""

SIBLINGS = "x-operad-siblings"
"""In a bundle: what stood beside a `$ref` that hid it from validation (drafts 4 to 7), but not from the cast."""

_COUNTS = tuple(f"{end}{what}" for end in ("min", "max") for what in ("Contains", "Items", "Length", "Properties"))
_BOUNDS = ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")


@dataclass(slots=True)
class Keyword:
    """One keyword of one schema, on its way into the normal form."""

    reader: Reader
    key: str
    value: Any
    node: Mapping[str, Any]
    out: dict[str, Any]
    location: Location
    scope: Scope
    depth: int

    def refuse(self, expected: str) -> None:
        got = f"{type(self.value).__name__} {shown(self.value, 60)}"
        self.reader.warn(self.location, f"{self.key}: expected {expected}, got {got}: it is ignored")

    def sub(self, node: Any, *tokens: str) -> Body:
        location = (*self.location, self.key, *tokens)
        return self.reader.schema(node, location, self.scope, self.depth + 1)

    def type(self) -> None:
        types = [self.value] if isinstance(self.value, str) else self.value
        if (
            isinstance(types, list | tuple)
            and types
            and all(isinstance(name, str) and name in TYPES for name in types)
        ):
            unique = list(dict.fromkeys(types))
            self.out["type"] = unique[0] if len(unique) == 1 else unique
        else:
            self.refuse("a type of JSON Schema or a list of them")

    def values(self) -> None:
        values = [self.value] if self.key == "const" else self.value
        if not isinstance(values, list | tuple):
            self.refuse("an array")
            return
        if len(values) > MAX_ENUM and not self.reader.store.trusted:
            text = f"{len(values)} members, beyond max_schema_enum = {MAX_ENUM}: it is ignored"
            self.reader.warn(self.location, text)
            return
        try:
            copies = [self.reader.json(value) for value in values]
        except ValueError as error:
            self.reader.warn(self.location, f"{self.key}: {error}: it is ignored")
            return
        self.out[self.key] = copies[0] if self.key == "const" else copies

    def default(self) -> None:
        try:
            self.out["default"] = self.reader.json(self.value)
        except ValueError as error:
            self.reader.warn(self.location, f"default: {error}: it is ignored")

    def number(self) -> None:
        value = self.value
        if self.key.startswith("exclusive") and self.scope.draft == 4:
            if not isinstance(value, bool):
                self.refuse("a boolean")
            return
        if not is_number(value):
            self.refuse("a number")
            return
        if self.key == "multipleOf" and value <= 0:
            self.refuse("a number above 0")
            return
        exclusive = f"exclusive{self.key.capitalize()}"
        if self.scope.draft == 4 and self.node.get(exclusive) is True:
            self.out[exclusive] = value
            if self.key == "maximum":
                return
        # `minimum` stays beside what excludes it: a zero value is made of it.
        self.out[self.key] = value

    def count(self) -> None:
        value = self.value
        if not is_number(value) or value != value // 1 or value < 0:
            self.refuse("a whole number of at least 0")
            return
        self.out[self.key] = int(value)

    def unique(self) -> None:
        if self.value is True:
            self.out["uniqueItems"] = True
        elif self.value is not False:
            self.refuse("a boolean")

    def pattern(self) -> None:
        if not isinstance(self.value, str):
            self.refuse("a string")
            return
        if self.reader.store.annotations:
            self.out["pattern"] = self.value
        elif (pattern := self.safe(self.value)) is not None:
            self.reader.store.patterns[pattern.source] = pattern
            self.out["pattern"] = pattern.source

    def safe(self, pattern: str) -> Pattern | None:
        self.reader.definition.size += len(pattern)
        try:
            return translate(pattern)
        except UnsafePatternError as error:
            self.reader.warn(self.location, f"{self.key} {pattern[:80]!r} is not checked: {error}")
            return None

    def required(self) -> None:
        if isinstance(self.value, bool) and self.reader.references.draft == 4:
            return  # draft 3's spelling, left in many OpenAPI documents
        if not isinstance(self.value, list | tuple) or not all(isinstance(name, str) for name in self.value):
            self.refuse("an array of strings")
            return
        if self.value:
            self.out["required"] = [self.reader.json(name) for name in dict.fromkeys(self.value)]

    def one(self) -> None:
        if self.key == "items" and isinstance(self.value, list | tuple):
            self.positional()
            return
        if self.key in ("then", "else") and "if" not in self.node:
            return
        if self.key == "additionalItems":
            if isinstance(self.node.get("items"), list | tuple):
                self.out["items"] = self.sub(self.value)
            return
        self.out[self.key] = self.sub(self.value)

    def siblings(self) -> None:
        if isinstance(self.node.get("$ref"), str) and isinstance(self.value, Mapping):
            self.out["$siblings"] = self.sub(self.value)

    def positional(self) -> None:
        # An array here is no 2020-12, yet its meaning is plain, and servers that name no draft send it.
        if self.value:
            self.out["prefixItems"] = [self.sub(node, str(i)) for i, node in enumerate(self.value)]

    def several(self) -> None:
        if not isinstance(self.value, list | tuple) or not self.value:
            self.refuse("an array of schemas")
            return
        schemas = [self.sub(node, str(position)) for position, node in enumerate(self.value)]
        if self.key == "allOf":
            schemas = self.out.get("allOf", []) + schemas
        self.out[self.key] = schemas
        if self.key in ("anyOf", "oneOf"):
            self.discriminator(schemas)

    def discriminator(self, branches: list[Body]) -> None:
        """The branch of each tag, from the names of the branches and then from the mapping."""
        given = self.node.get("discriminator")
        if not isinstance(given, Mapping) or not isinstance(name := given.get("propertyName"), str):
            return
        if self.reader.store.annotations:
            self.out["discriminator"] = {"propertyName": name}
            return
        names: dict[str, int] = {}
        positions: dict[str, int] = {}
        for position, (branch, node) in enumerate(zip(branches, self.value, strict=True)):
            if isinstance(branch, dict) and "$ref" in branch and isinstance(node, Mapping):
                ref = str(node.get("$ref"))
                names.setdefault(ref.rpartition("/")[2].replace("~1", "/").replace("~0", "~"), position)
                positions.setdefault(ref, position)
                positions.setdefault(branch["$ref"], position)
        mapped: dict[str, int] = {}
        mapping = given.get("mapping")
        for tag, target in mapping.items() if isinstance(mapping, Mapping) else ():
            found = positions.get(target, names.get(target)) if isinstance(target, str) else None
            if isinstance(tag, str) and found is not None:
                mapped[tag] = found
        if "discriminator" not in self.out:
            self.out["discriminator"] = {"propertyName": name, "union": self.key, "names": names,
                                                 "mapped": mapped, "decides": False}  # fmt: skip
            self.reader.tagged.append(self.out)

    def named(self) -> None:
        if not isinstance(self.value, Mapping) or not all(isinstance(name, str) for name in self.value):
            self.refuse("an object of schemas")
            return
        self.out[self.key] = {self.reader.json(name): self.sub(node, name) for name, node in self.value.items()}

    def patterned(self) -> None:
        if not isinstance(self.value, Mapping) or not all(isinstance(name, str) for name in self.value):
            self.refuse("an object of schemas")
            return
        if self.reader.store.annotations:
            self.named()
            return
        found: dict[str, Body] = {}
        for pattern, node in self.value.items():
            translated = self.safe(pattern)
            if translated is None:
                # Which properties it would have claimed is not known, so none may be called undeclared.
                self.out["$open"] = True
            else:
                names = translated.of_names()
                self.reader.store.patterns[names.source] = names
                found[names.source] = self.sub(node, pattern)
        self.out["patternProperties"] = found

    def dependencies(self) -> None:
        if not isinstance(self.value, Mapping):
            self.refuse("an object")
            return
        for name, needed in self.value.items():
            if isinstance(needed, list | tuple) and self.key != "dependentSchemas":
                if all(isinstance(other, str) for other in needed):
                    self.out.setdefault("dependentRequired", {})[str(name)] = [str(other) for other in needed]
            elif isinstance(needed, str) and self.key == "dependencies":
                self.out.setdefault("dependentRequired", {})[str(name)] = [needed]
            elif self.key != "dependentRequired":
                self.out.setdefault("dependentSchemas", {})[str(name)] = self.sub(needed, str(name))


READ: dict[str, Callable[[Keyword], None]] = {
    "type": Keyword.type,
    SIBLINGS: Keyword.siblings,
    "enum": Keyword.values,
    "const": Keyword.values,
    "default": Keyword.default,
    "multipleOf": Keyword.number,
    "uniqueItems": Keyword.unique,
    "pattern": Keyword.pattern,
    "required": Keyword.required,
    "properties": Keyword.named,
    "patternProperties": Keyword.patterned,
    "dependencies": Keyword.dependencies,
    "dependentRequired": Keyword.dependencies,
    "dependentSchemas": Keyword.dependencies,
    "prefixItems": Keyword.several,
    "allOf": Keyword.several,
    "anyOf": Keyword.several,
    "oneOf": Keyword.several,
    **dict.fromkeys(_COUNTS, Keyword.count),
    **dict.fromkeys(_BOUNDS, Keyword.number),
    **{key: Keyword.one for key in ONE if key != "contentSchema"},
}
"""How each keyword is read; what is not here is an annotation or unknown."""
