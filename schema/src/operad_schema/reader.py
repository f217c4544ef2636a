"""The reader of JSON Schema, drafts 4 to 2020-12, into one normal form (`operad_schema.nodes`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import attrs

from operad_schema.nodes import (
    Body,
    Definition,
    Node,
    Store,
    TrackDynamicError,
    too_many_nodes,
    unless_unknown,
    where,
)
from operad_schema.patterns import Pattern
from operad_schema.references import Location, Scope
from operad_schema.tags import kinds_of
from operad_schema.values import is_number, short
from operad_schema.vocabulary import ANNOTATIONS, KEYWORDS, SIBLINGS, TYPES


def read(store: Store, definition: Definition) -> None:
    """Read a schema into its definition. Raises `SchemaLimitError` if it exceeds `max_schema_nodes`."""
    reader = _Reader(store, definition)
    location, node, scope = definition.target
    definition.body = reader.schema(node, location, scope, 0)
    definition.refs = tuple(reader.refs)


class _Reader:
    """The reader of one schema. `refs` has the definitions that the schema refers to."""

    def __init__(self, store: Store, definition: Definition) -> None:
        self.store = store
        self.limits = store.limits
        self.references = store.references
        self.definition = definition
        self.refs: dict[Definition, None] = {}

    def schema(self, node: Any, location: Location, scope: Scope, depth: int) -> Body:
        self.definition.nodes += 1
        self.definition.size += 4
        if self.definition.nodes > self.limits.max_schema_nodes:
            raise too_many_nodes(self.limits)
        if isinstance(node, bool):
            return node
        if not isinstance(node, Mapping):
            text = f"expected a schema (object or boolean), got {type(node).__name__}"
            self.definition.warn(location, f"{text}: any value is valid here")
            return True
        if depth > (most := self.limits.max_schema_depth):
            text = f"expected at most {most} levels of subschemas (max_schema_depth), got more"
            self.definition.warn(location, f"{text}: any value is valid here")
            return True
        scope = self.references.enter(node, location, scope)
        out = Node()
        hides = scope.draft < 2019 and isinstance(node.get("$ref"), str)
        if not self.reference(node, out, location, scope):
            return True
        if not hides:
            self.keywords(node, out, location, scope, depth)
        else:
            beside = Node()
            self.keywords(node, beside, location, scope, depth)
            for key in ("default", *ANNOTATIONS):
                if key in beside and (key != "format" or self.store.annotations):
                    out[key] = beside.pop(key)
            if beside:
                out["$siblings"] = beside
        if self.store.dialect == "openapi-3.0" and node.get("nullable") is True and not hides:
            return _nullable(out)
        return out

    def reference(self, node: Mapping[str, Any], out: Node, location: Location, scope: Scope) -> bool:
        """Add the references of `node` to `out`; return False if a reference has no target in the document."""
        found = []
        try:
            if isinstance(ref := node.get("$ref"), str):
                found.append(self.references.resolve(ref, scope))
            if KEYWORDS["$dynamicRef"].counts(scope.draft) and isinstance(ref := node.get("$dynamicRef"), str):
                self.track_dynamic()
                found.append(self.references.resolve_dynamic(ref, scope))
            if KEYWORDS["$recursiveRef"].counts(scope.draft) and (ref := node.get("$recursiveRef")) == "#":
                self.track_dynamic()
                found.append(self.references.resolve_recursive(scope))
        except (LookupError, ValueError):
            text = f"the reference {ref!r} has no target in this document, and no other document is read"
            self.definition.warn(location, f"{text}: any value is valid here")
            return False
        definitions = [self.store.define(target) for target in found]
        self.refs.update(dict.fromkeys(definitions))
        if definitions:
            _refer(out, definitions[0])
        if definitions[1:]:
            out["allOf"] = [_refer(Node(), definition) for definition in definitions[1:]]
        return True

    def track_dynamic(self) -> None:
        if not self.references.tracks_dynamic:
            raise TrackDynamicError

    def keywords(self, node: Mapping[str, Any], out: Node, location: Location, scope: Scope, depth: int) -> None:
        for key, value in node.items():
            take = _READ.get(key)
            if key in ANNOTATIONS and (self.store.annotations or not self.store.formats):
                take = None  # `format`, if it is an annotation
            if take is not None:
                if key == SIBLINGS or KEYWORDS[key].counts(scope.draft):
                    self.definition.size += len(key) + 4
                    take(_Keyword(self, key, value, node, out, location, scope, depth))
            elif self.store.annotations and key in ANNOTATIONS:
                size = self.definition.size
                with suppress(ValueError):  # an example may be anything that a YAML parser returns, such as a date
                    out[key] = self.json(value)
                self.definition.size = size
        if out.pop("$open", False):
            out["additionalProperties"] = True

    def json(self, value: Any, depth: int = 0) -> Any:
        """Return a copy of a JSON value. Raises `ValueError` if it is not JSON, or beyond `max_schema_depth`."""
        if depth > self.limits.max_schema_depth:
            most = self.limits.max_schema_depth
            raise ValueError(f"expected a value of at most {most} levels (max_schema_depth), got more")
        self.definition.size += 4
        if isinstance(value, str):
            self.definition.size += len(value)
            return str(value)
        if value is None or isinstance(value, bool) or is_number(value):
            return value
        if isinstance(value, list | tuple):
            return [self.json(item, depth + 1) for item in value]
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {self.json(key): self.json(item, depth + 1) for key, item in value.items()}
        raise ValueError(f"expected a JSON value, got {type(value).__name__}")


def _refer(node: Node, definition: Definition) -> Node:
    node["$ref"] = f"#/$defs/{definition.name}"
    node.ref = definition
    return node


def _nullable(out: Node) -> Node:
    """Return the schema for OpenAPI 3.0's `nullable: true`, which also allows null."""
    apart = {key: out.pop(key) for key in ("default", *ANNOTATIONS) if key in out}
    types = out.get("type")
    if "enum" in out and None not in out["enum"]:
        out["enum"] = [*out["enum"], None]
    if types is None or any(key in out for key in ("$ref", "allOf", "anyOf", "oneOf", "not", "if")):
        if isinstance(out.get("anyOf"), list) and len(out) == 1:
            return Node({"anyOf": [*out["anyOf"], Node({"type": "null"})], **apart})
        return Node({"anyOf": [out, Node({"type": "null"})], **apart} if out else apart)
    names = [types] if isinstance(types, str) else types
    if "null" not in names:
        out["type"] = [*names, "null"]
    out.update(apart)
    return out


@attrs.define(eq=False, repr=False)
class _Keyword:
    """One keyword of one schema, while it is read into the normal form."""

    reader: _Reader
    key: str
    value: Any
    node: Mapping[str, Any]
    out: Node
    location: Location
    scope: Scope
    depth: int

    def refuse(self, expected: str) -> None:
        got = f"{type(self.value).__name__} {short(self.value, 60)}"
        self.reader.definition.warn(self.location, f"{self.key}: expected {expected}, got {got}: it is ignored")

    def lose(self, text: str) -> None:
        self.reader.definition.warn(self.location, text)
        self.out.is_lax = self.reader.definition.is_lax = True

    def sub(self, node: Any, *tokens: str) -> Body:
        location = (*self.location, self.key, *tokens)
        return self.reader.schema(node, location, self.scope, self.depth + 1)

    def types(self) -> None:
        types = [self.value] if isinstance(self.value, str) else self.value
        if (
            isinstance(types, list | tuple)
            and types
            and all(isinstance(name, str) and name in TYPES for name in types)
        ):
            unique = list(dict.fromkeys(types))
            self.out["type"] = unique[0] if len(unique) == 1 else unique
        else:
            self.refuse("a type of JSON Schema or a list of types")

    def values(self) -> None:
        values = [self.value] if self.key == "const" else self.value
        if not isinstance(values, list | tuple):
            self.refuse("an array")
            return
        if len(values) > (most := self.reader.limits.max_schema_enum):
            self.lose(f"enum: expected at most {most} members (max_schema_enum), got {len(values)}: it is ignored")
            return
        try:
            copies = [self.reader.json(value) for value in values]
        except ValueError as error:
            self.reader.definition.warn(self.location, f"{self.key}: {error}: it is ignored")
            return
        self.out[self.key] = copies[0] if self.key == "const" else copies

    def default(self) -> None:
        try:
            self.out["default"] = self.reader.json(self.value)
        except ValueError as error:
            self.reader.definition.warn(self.location, f"default: {error}: it is ignored")

    def format(self) -> None:
        from operad_schema.formats import CHECKED, find  # only if a schema has a format to check

        if isinstance(self.value, str) and self.value in CHECKED:
            self.out["format"] = find(self.value)

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
        # `minimum` stays beside `exclusiveMinimum`, because a zero value is made from it.
        self.out[self.key] = value

    def count(self) -> None:
        if not is_number(self.value) or self.value != self.value // 1 or self.value < 0:
            self.refuse("a whole number of at least 0")
            return
        self.out[self.key] = int(self.value)

    def flag(self) -> None:
        if self.value is True:
            self.out[self.key] = True
        elif self.value is not False:
            self.refuse("a boolean")

    def pattern(self) -> None:
        if not isinstance(self.value, str):
            self.refuse("a string")
            return
        if self.reader.store.annotations:
            self.out["pattern"] = self.value
        elif (pattern := self.safe(self.value)) is not None:
            self.out["pattern"] = pattern

    def safe(self, pattern: str) -> Pattern | None:
        from operad_schema.translating import UnsafePatternError, translate  # most schemas have no pattern

        store = self.reader.store
        try:
            made = translate(pattern, store.limits, unchecked=store.unchecked)
        except UnsafePatternError as error:
            text = f"{self.key} {pattern[:80]!r} is not checked: {error}"
            self.reader.definition.unchecked.append(f"{text} (at {where(self.location)})")
            self.lose(text)
            return None
        finally:
            self.reader.definition.size += len(pattern)
        # A program of RE2 has the same limit, because compiling it takes time.
        self.reader.definition.size += made.weight if made.of_bytes else 0
        store.has_costly_patterns = store.has_costly_patterns or not made.is_cheap
        return made

    def names(self) -> None:
        if isinstance(self.value, bool) and self.reader.references.draft == 4:
            return  # the spelling of draft 3, which many OpenAPI documents still have
        if not isinstance(self.value, list | tuple) or not all(isinstance(name, str) for name in self.value):
            self.refuse("an array of strings")
            return
        if self.value:
            self.out["required"] = [self.reader.json(name) for name in dict.fromkeys(self.value)]

    def subschema(self) -> None:
        if self.key == "items" and isinstance(self.value, list | tuple):
            self.positional()
            return
        if self.key in ("then", "else") and "if" not in self.node:
            return
        if self.key == "additionalItems":
            if isinstance(self.node.get("items"), list | tuple):
                self.out["items"] = self.sub(self.value)
            return
        body = self.sub(self.value)
        if self.key == "not" and body is True and self.value is not True:
            return  # the excluded schema is unknown, so nothing is excluded
        self.out[self.key] = body

    def siblings(self) -> None:
        if isinstance(self.node.get("$ref"), str) and isinstance(self.value, Mapping):
            self.out["$siblings"] = self.sub(self.value)

    def positional(self) -> None:
        # 2020-12 allows no array here, but its meaning is clear, and servers send it without naming a draft.
        if self.value:
            self.out["prefixItems"] = [self.sub(node, str(i)) for i, node in enumerate(self.value)]

    def subschemas(self) -> None:
        if not isinstance(self.value, list | tuple) or not self.value:
            self.refuse("an array of schemas")
            return
        read = [self.sub(node, str(position)) for position, node in enumerate(self.value)]
        schemas = [unless_unknown(body, node) for body, node in zip(read, self.value, strict=True)]
        if self.key == "oneOf" and "anyOf" not in self.node:
            # An unknown branch must not count as a second match.
            self.key = "oneOf" if schemas == read else "anyOf"
        if self.key == "allOf":
            schemas = self.out.get("allOf", []) + schemas
        self.out[self.key] = schemas
        if self.key in ("anyOf", "oneOf"):
            self.discriminator(schemas)

    def discriminator(self, branches: list[Body]) -> None:
        """Record the `discriminator` of a union: the branch for each name of a branch, and for each mapped tag."""
        given = self.node.get("discriminator")
        if not isinstance(given, Mapping) or not isinstance(name := given.get("propertyName"), str):
            return
        names: dict[str, int] = {}
        for position, (branch, node) in enumerate(zip(branches, self.value, strict=True)):
            if isinstance(branch, Node) and branch.ref is not None and isinstance(node, Mapping):
                last = str(node.get("$ref")).rpartition("/")[2]
                names.setdefault(last.replace("~1", "/").replace("~0", "~"), position)
        mapping = given.get("mapping")
        mapped = {}
        for tag, target in mapping.items() if isinstance(mapping, Mapping) else ():
            found = self.position(branches, names, target)
            if isinstance(tag, str) and found is not None:
                mapped[tag] = found
        if "discriminator" not in self.out:
            self.out["discriminator"] = {"propertyName": name, "union": self.key, "names": names, "mapped": mapped}
            self.reader.definition.tagged.append(self.out)

    def position(self, branches: list[Body], names: Mapping[str, int], target: Any) -> int | None:
        """Return the position of the branch that a mapping names or refers to; None if no branch fits."""
        if not isinstance(target, str) or target in names:
            return names.get(target) if isinstance(target, str) else None
        with suppress(LookupError, ValueError):
            location = self.reader.references.resolve(target, self.scope).location
            for position, branch in enumerate(branches):
                if isinstance(branch, Node) and branch.ref is not None and branch.ref.target.location == location:
                    return position
        return None

    def kinds(self) -> None:
        """Record the `$kinds` of a base schema, from its `discriminator`."""
        if not self.node.keys().isdisjoint(("anyOf", "oneOf")):  # read with the branches
            return
        if given := kinds_of(self.value, self.reader.definition.target, self.reader.references, self.scope):
            self.out["$kinds"] = given
            self.reader.definition.has_kinds = True

    def named_subschemas(self) -> None:
        if not isinstance(self.value, Mapping) or not all(isinstance(name, str) for name in self.value):
            self.refuse("an object of schemas")
            return
        self.out[self.key] = {self.reader.json(name): self.sub(node, name) for name, node in self.value.items()}

    def patterned(self) -> None:
        if not isinstance(self.value, Mapping) or not all(isinstance(name, str) for name in self.value):
            self.refuse("an object of schemas")
            return
        if self.reader.store.annotations:
            self.named_subschemas()
            return
        found: dict[Pattern, Body] = {}
        for pattern, node in self.value.items():
            translated = self.safe(pattern)
            if translated is None:
                # Which properties it would have matched is not known, so none may be treated as undeclared.
                self.out["$open"] = True
            else:
                found[translated] = self.sub(node, pattern)
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


_TAKES: dict[str, Callable[[_Keyword], None]] = {
    "types": _Keyword.types,
    "values": _Keyword.values,
    "default": _Keyword.default,
    "format": _Keyword.format,
    "number": _Keyword.number,
    "count": _Keyword.count,
    "flag": _Keyword.flag,
    "pattern": _Keyword.pattern,
    "names": _Keyword.names,
    "dependencies": _Keyword.dependencies,
    "discriminator": _Keyword.kinds,
    "patterned": _Keyword.patterned,
    "schema": _Keyword.subschema,
    "list": _Keyword.subschemas,
    "map": _Keyword.named_subschemas,
}
"""The method that reads a keyword's value, by the keyword's `takes` or `holds` in `KEYWORDS`."""

_READ = {
    key: _TAKES[word.takes or word.holds]
    for key, word in KEYWORDS.items()
    if word.takes or word.applies != "nothing"
} | {SIBLINGS: _Keyword.siblings}
"""The method that reads each keyword. Any other keyword is an annotation or unknown."""
