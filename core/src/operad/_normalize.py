"""Any JSON Schema in, one normal form out: what validation and cast read, and nothing else.

The normal form is JSON Schema 2020-12 with every reference rewritten to `#/$defs/d<n>`, made from the
schema and what it reaches: annotations, `format` and unknown keywords are gone, older spellings are
translated, dynamic references are resolved, and every hostile or broken part is unknown, with a warning.
Two private keywords serve the cast: `$siblings` (what stands beside a `$ref` that hides it, drafts 4 to 7)
and `discriminator` (its mapping, as positions in the union).
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from operad._patterns import UnsafePatternError, translate
from operad._references import ONE, Location, References, Scope, Target, dialect_of, parse_pointer

MAX_BYTES = 1024 * 1024
"""`max_schema_bytes`: the size of a schema with all that it reaches, as JSON without annotations."""
MAX_NODES = 20_000
"""`max_schema_nodes`: the subschemas of a schema with all that it reaches."""
MAX_DEPTH = 64
"""`max_schema_depth`: subschemas within subschemas, and levels of a `default`, `const` or `enum` value."""
MAX_ENUM = 5_000
"""`max_schema_enum`: the members of one `enum`."""
MAX_IN_PLACE = 10_000
"""`max_schema_in_place`: the subschemas that apply to one and the same value."""

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
Body = dict[str, Any] | bool

_COUNTS = tuple(f"{end}{what}" for end in ("min", "max") for what in ("Contains", "Items", "Length", "Properties"))
_BOUNDS = ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")
_SINCE = {
    "const": 6,
    "contains": 6,
    "propertyNames": 6,
    "if": 7,
    "then": 7,
    "else": 7,
    "dependentRequired": 2019,
    "dependentSchemas": 2019,
    "unevaluatedItems": 2019,
    "unevaluatedProperties": 2019,
    "minContains": 2019,
    "maxContains": 2019,
    "prefixItems": 2020,
    "$dynamicRef": 2020,
}
_UNTIL = {"dependencies": 7, "additionalItems": 2019, "$recursiveRef": 2019}
_ANNOTATIONS = (
    "$comment",
    "title",
    "description",
    "format",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
)
_MISSING: Any = object()


class SchemaLimitError(ValueError):
    """A schema is beyond a named limit, and unknown for that."""


@dataclass(slots=True)
class Definition:
    """One schema of the normal form, with what was found out about it."""

    name: str
    target: Target
    body: Body = True
    nodes: int = 0
    size: int = 0
    digest: bytes = b""
    refs: tuple[str, ...] = ()
    weight: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Closure:
    """A schema with all that it reaches, in normal form."""

    root: str
    bodies: Mapping[str, Body]
    names: tuple[str, ...]
    key: bytes
    warnings: tuple[str, ...]
    patterns: Mapping[str, str]
    store: Any
    """Kept, so that the document's other schemas find it for as long as this one is used."""


class Store:
    """The normal form of a document's schemas, made when first reached and shared by all that reach it."""

    def __init__(self, document: Any, dialect: str, *, roots: tuple[Location, ...] = ((),), trusted: bool = False,
                 annotations: bool = False) -> None:  # fmt: skip
        self.references = References(document, dialect, roots)
        self.nullable = dialect == "openapi-3.0"
        self.trusted = trusted
        self.annotations = annotations
        self.bodies: dict[str, Body] = {}
        self.patterns: dict[str, str] = {}
        self.lock = threading.RLock()
        self.heavy: set[str] = set()
        self.recursive: set[str] = set()
        self.warned: set[str] = set()
        self.casting: Any = None
        self._definitions: dict[str, Definition] = {}
        self._names: dict[Any, str] = {}

    def closure(self, location: Location, schema: Any = _MISSING) -> Closure:
        """The schema at a location, or `schema` as if it stood in the document's root.

        Raises `LookupError` for no such location, `SchemaLimitError` beyond a limit.
        """
        with self.lock:
            while True:
                try:
                    root = self.name(self._root(location, schema))
                    return self._closure(root)
                except _TrackDynamicError:
                    # The first dynamic reference: names now depend on how a schema was reached.
                    self.references.tracks_dynamic = True
                    for state in (self.bodies, self._definitions, self._names, self.heavy, self.recursive):
                        state.clear()

    def _root(self, location: Location, schema: Any) -> Target:
        if schema is _MISSING:
            return self.references.locate(location)
        base = self.references.locate(())
        scope = self.references.enter(base.node, (), base.scope)
        # A number cannot be a token of a pointer, so no location of the document is hidden by it.
        return Target((id(schema),), schema, scope)

    def name(self, target: Target) -> str:
        """The name of a target in the normal form."""
        key = target.location, target.scope.dynamic
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"d{len(self._names)}"
            self._definitions[name] = Definition(name, target)
        return name

    def location(self, name: str) -> Location:
        """Where the schema of a name is; raises `KeyError`."""
        return self._definitions[name].target.location

    def _closure(self, root: str) -> Closure:
        seen = {root: None}
        queue = deque([root])
        nodes = size = 0
        while queue:
            definition = self._definitions[queue.popleft()]
            if definition.name not in self.bodies:
                _Reader(self, definition, MAX_NODES - nodes).read()
                self.bodies[definition.name] = definition.body
            nodes += definition.nodes
            size += definition.size
            if not self.trusted and (nodes > MAX_NODES or size > MAX_BYTES):
                raise SchemaLimitError(_limits(nodes, size))
            for name in definition.refs:
                if name not in seen:
                    seen[name] = None
                    queue.append(name)
        names = tuple(seen)
        # What is new reaches all that it refers to, so what was settled before cannot change.
        fresh = tuple(name for name in names if not self._definitions[name].weight)
        self._cut_loops(fresh)
        self._cut_expansion(fresh)
        self._weigh(fresh)
        warnings = [text for name in names for text in self._definitions[name].warnings]
        digest = hashlib.sha256(root.encode())
        for name in names:
            definition = self._definitions[name]
            definition.digest = definition.digest or _digest(definition)
            digest.update(definition.digest)
        return Closure(root, self.bodies, names, digest.digest(), tuple(warnings), self.patterns, self)

    def _cut_loops(self, names: tuple[str, ...]) -> None:
        """Make unknown every reference that leads back to itself without descending into the value."""
        edges = {name: in_place_refs(self.bodies[name]) for name in names}
        for group in components(edges):
            for name in group:
                if len(group) > 1 or name in edges[name]:
                    self._replace(name, _without(self.bodies[name], group))
                    warning = "it refers to itself in place: that reference is unknown"
                    self._definitions[name].warnings.append(f"{where(self._definitions[name].target)}: {warning}")

    def _cut_expansion(self, names: tuple[str, ...]) -> None:
        """Make unknown every schema that is too many schemas at once."""
        edges = {name: in_place_refs(self.bodies[name]) for name in names}
        weights: dict[str, int] = {}
        for group in components(edges):
            for name in group:
                weight = 1 + sum(weights.get(ref, 1) for ref in edges[name])
                if weight > MAX_IN_PLACE and not self.trusted:
                    self._replace(name, True)
                    warning = f"beyond max_schema_in_place = {MAX_IN_PLACE}: it is unknown"
                    self._definitions[name].warnings.append(f"{where(self._definitions[name].target)}: {warning}")
                    weight = 1
                weights[name] = weight

    def _replace(self, name: str, body: Body) -> None:
        self.bodies[name] = self._definitions[name].body = body

    def _weigh(self, names: tuple[str, ...]) -> None:
        """Note which schemas recurse, and which are so many that one value could be looked at too often."""
        edges = {name: refs_of(self.bodies[name]) for name in names}
        for group in components(edges):
            cyclic = len(group) > 1 or any(name in edges[name] for name in group)
            if cyclic:
                self.recursive |= group
            for name in group:
                below = sum(self._definitions[ref].weight for ref in edges[name]) if not cyclic else MAX_IN_PLACE
                self._definitions[name].weight = weight = min(1 + below, MAX_IN_PLACE + 1)
                if weight > MAX_IN_PLACE:
                    self.heavy.add(name)


def _digest(definition: Definition) -> bytes:
    text = json.dumps([definition.name, definition.body], separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _limits(nodes: int, size: int) -> str:
    if nodes > MAX_NODES:
        return f"beyond max_schema_nodes = {MAX_NODES}"
    return f"beyond max_schema_bytes = {MAX_BYTES} ({size} bytes so far)"


def where(target: Target) -> str:
    """A location for people: `#/components/schemas/Pet`."""
    tokens = [
        str(token).replace("~", "~0").replace("/", "~1") for token in target.location if isinstance(token, str)
    ]
    return "#" + "".join("/" + token for token in tokens)


class _TrackDynamicError(Exception):
    pass


class _Reader:
    """Reads one schema of a document into one definition of the normal form."""

    def __init__(self, store: Store, definition: Definition, budget: int) -> None:
        self.store = store
        self.references = store.references
        self.definition = definition
        self.budget = budget
        self.refs: dict[str, None] = {}

    def read(self) -> None:
        definition = self.definition
        location, node, scope = definition.target
        definition.body = self.schema(node, location, scope, 0)
        definition.refs = tuple(self.refs)

    def warn(self, location: Location, text: str) -> None:
        if len(self.definition.warnings) < 20:
            self.definition.warnings.append(
                f"{where(Target(location, None, self.definition.target.scope))}: {text}"
            )

    def schema(self, node: Any, location: Location, scope: Scope, depth: int) -> Body:
        self.definition.nodes += 1
        self.definition.size += 4
        if self.definition.nodes > self.budget and not self.store.trusted:
            raise SchemaLimitError(_limits(MAX_NODES + 1, 0))
        if isinstance(node, bool):
            return node
        if not isinstance(node, Mapping):
            self.warn(location, f"expected a schema (object or boolean), got {type(node).__name__}: it is unknown")
            return True
        if depth > MAX_DEPTH:
            self.warn(location, f"beyond max_schema_depth = {MAX_DEPTH}: it is unknown")
            return True
        scope = self.references.enter(node, location, scope)
        out: dict[str, Any] = {}
        hides = scope.draft <= 7 and isinstance(node.get("$ref"), str)
        if not self.reference(node, out, location, scope):
            return True
        if not hides:
            self.keywords(node, out, location, scope, depth)
        else:
            beside: dict[str, Any] = {}
            self.keywords(node, beside, location, scope, depth)
            for key in ("default", *_ANNOTATIONS):
                if key in beside:
                    out[key] = beside.pop(key)
            if beside:
                out["$siblings"] = beside
        if self.store.nullable and node.get("nullable") is True and not hides:
            return _nullable(out)
        return out

    def reference(self, node: Mapping[str, Any], out: dict[str, Any], location: Location, scope: Scope) -> bool:
        """Add the node's references; False when one leads nowhere, so that the node is unknown."""
        found = []
        try:
            if isinstance(ref := node.get("$ref"), str):
                found.append(self.references.resolve(ref, scope))
            if self.allowed("$dynamicRef", scope) and isinstance(ref := node.get("$dynamicRef"), str):
                self.track_dynamic()
                found.append(self.references.resolve_dynamic(ref, scope))
            if self.allowed("$recursiveRef", scope) and (ref := node.get("$recursiveRef")) == "#":
                self.track_dynamic()
                found.append(self.references.resolve_recursive(scope))
        except (LookupError, ValueError):
            self.warn(location, f"nothing in this document at {ref!r} (nothing outside it is read): it is unknown")
            return False
        names = [self.store.name(target) for target in found]
        self.refs.update(dict.fromkeys(names))
        if names:
            out["$ref"] = f"#/$defs/{names[0]}"
        if names[1:]:
            out["allOf"] = [{"$ref": f"#/$defs/{name}"} for name in names[1:]]
        return True

    def track_dynamic(self) -> None:
        if not self.references.tracks_dynamic:
            raise _TrackDynamicError

    @staticmethod
    def allowed(key: str, scope: Scope) -> bool:
        return _SINCE.get(key, 0) <= scope.draft <= _UNTIL.get(key, 9999)

    def keywords(
        self, node: Mapping[str, Any], out: dict[str, Any], location: Location, scope: Scope, depth: int
    ) -> None:
        for key, value in node.items():
            read = _READ.get(key)
            if read is not None:
                if self.allowed(key, scope):
                    self.definition.size += len(key) + 4
                    read(_Keyword(self, key, value, node, out, location, scope, depth))
            elif self.store.annotations and key in _ANNOTATIONS:
                size = self.definition.size
                with suppress(ValueError):  # an example may be anything that a YAML parser makes, a date for one
                    out[key] = self.json(value)
                self.definition.size = size
        if out.pop("$open", False):
            out["additionalProperties"] = True
            out.pop("unevaluatedProperties", None)

    def json(self, value: Any, depth: int = 0) -> Any:
        """A private copy of a JSON value; raises `ValueError` for what is none."""
        if depth > MAX_DEPTH:
            raise ValueError(f"beyond max_schema_depth = {MAX_DEPTH}")
        self.definition.size += 4
        if isinstance(value, str):
            self.definition.size += len(value)
            return str(value)
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        if isinstance(value, list | tuple):
            return [self.json(item, depth + 1) for item in value]
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {self.json(key): self.json(item, depth + 1) for key, item in value.items()}
        raise ValueError(f"expected a JSON value, got {type(value).__name__}")


@dataclass(slots=True)
class _Keyword:
    """One keyword of one schema, on its way into the normal form."""

    reader: _Reader
    key: str
    value: Any
    node: Mapping[str, Any]
    out: dict[str, Any]
    location: Location
    scope: Scope
    depth: int

    def refuse(self, expected: str) -> None:
        got = f"{type(self.value).__name__} {self.value!r:.60}"
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
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
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
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or value < 0:
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
        elif (source := self.safe(self.value)) is not None:
            self.out["pattern"] = source

    def safe(self, pattern: str) -> str | None:
        self.reader.definition.size += len(pattern)
        try:
            source = translate(pattern)
        except UnsafePatternError as error:
            self.reader.warn(self.location, f"{self.key} {pattern[:80]!r} is not checked: {error}")
            return None
        self.reader.store.patterns[source] = pattern
        return source

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
        tags: dict[str, int] = {}
        positions: dict[str, int] = {}
        for position, (branch, node) in enumerate(zip(branches, self.value, strict=True)):
            if isinstance(branch, dict) and "$ref" in branch and isinstance(node, Mapping):
                ref = str(node.get("$ref"))
                tags.setdefault(ref.rpartition("/")[2].replace("~1", "/").replace("~0", "~"), position)
                positions.setdefault(ref, position)
                positions.setdefault(branch["$ref"], position)
        mapping = given.get("mapping")
        for tag, target in mapping.items() if isinstance(mapping, Mapping) else ():
            found = positions.get(target, tags.get(target)) if isinstance(target, str) else None
            if isinstance(tag, str) and found is not None:
                tags[tag] = found
        if tags and "discriminator" not in self.out:
            self.out["discriminator"] = {"propertyName": name, "union": self.key, "tags": tags}

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
            source = self.safe(pattern)
            if source is None:
                # Which properties it would have claimed is not known, so none may be called undeclared.
                self.out["$open"] = True
            else:
                found[source] = self.sub(node, pattern)
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


_READ: dict[str, Callable[[_Keyword], None]] = {
    "type": _Keyword.type,
    "enum": _Keyword.values,
    "const": _Keyword.values,
    "default": _Keyword.default,
    "multipleOf": _Keyword.number,
    "uniqueItems": _Keyword.unique,
    "pattern": _Keyword.pattern,
    "required": _Keyword.required,
    "properties": _Keyword.named,
    "patternProperties": _Keyword.patterned,
    "dependencies": _Keyword.dependencies,
    "dependentRequired": _Keyword.dependencies,
    "dependentSchemas": _Keyword.dependencies,
    "prefixItems": _Keyword.several,
    "allOf": _Keyword.several,
    "anyOf": _Keyword.several,
    "oneOf": _Keyword.several,
    **dict.fromkeys(_COUNTS, _Keyword.count),
    **dict.fromkeys(_BOUNDS, _Keyword.number),
    **{key: _Keyword.one for key in ONE if key != "contentSchema"},
}


def _nullable(out: dict[str, Any]) -> dict[str, Any]:
    """The schema of OpenAPI 3.0's `nullable: true`: null, or what the schema says."""
    apart = {key: out.pop(key) for key in ("default", *_ANNOTATIONS) if key in out}
    types = out.get("type")
    if "enum" in out and None not in out["enum"]:
        out["enum"] = [*out["enum"], None]
    if types is None or any(key in out for key in ("$ref", "allOf", "anyOf", "oneOf", "not", "if")):
        if isinstance(out.get("anyOf"), list) and len(out) == 1:
            return {"anyOf": [*out["anyOf"], {"type": "null"}], **apart}
        return {"anyOf": [out, {"type": "null"}], **apart} if out else apart
    names = [types] if isinstance(types, str) else types
    if "null" not in names:
        out["type"] = [*names, "null"]
    return out | apart


# --- reading the normal form ---------------------------------------------------------------------------

IN_PLACE_ONE = ("not", "if", "then", "else", "$siblings")
IN_PLACE_LIST = ("allOf", "anyOf", "oneOf")


def in_place(body: Body) -> Iterator[Body]:
    """The subschemas of a normal form that apply to the same value as it does."""
    if isinstance(body, dict):
        for key in IN_PLACE_ONE:
            if key in body:
                yield body[key]
        for key in IN_PLACE_LIST:
            yield from body.get(key, ())
        yield from body.get("dependentSchemas", {}).values()


def in_place_refs(body: Body) -> list[str]:
    """The names that a normal form refers to in place; one that it refers to twice is in it twice."""
    found = []
    stack = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, dict) and "$ref" in node:
            found.append(ref_name(node))
        stack.extend(in_place(node))
    return found


def ref_name(body: Mapping[str, Any]) -> str:
    """The name behind a `$ref` of the normal form."""
    return str(body["$ref"])[8:]


def refs_of(body: Body) -> list[str]:
    """The names that a normal form refers to, wherever."""
    found = []
    stack: list[Any] = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                found.append(ref_name(node))
            stack.extend(child for child, _ in children_of(node))
            stack.extend(in_place(node))
            if "propertyNames" in node:
                stack.append(node["propertyNames"])
    return found


def children_of(body: Mapping[str, Any]) -> Iterator[tuple[Body, str]]:
    """The subschemas of parts of a value, each with the part: a property's name, `{}` or `[]`."""
    for name, node in body.get("properties", {}).items():
        yield node, "." + name
    for node in body.get("patternProperties", {}).values():
        yield node, "{}"
    for key in ("additionalProperties", "unevaluatedProperties"):
        if key in body:
            yield body[key], "{}"
    for node in body.get("prefixItems", ()):
        yield node, "[]"
    for key in ("items", "contains", "unevaluatedItems"):
        if key in body:
            yield body[key], "[]"


def _without(body: Body, names: frozenset[str]) -> Body:
    """A normal form whose in-place references to `names` are unknown."""
    if not isinstance(body, dict):
        return body
    if "$ref" in body and ref_name(body) in names:
        return True
    out = dict(body)
    for key in IN_PLACE_ONE:
        if key in out:
            out[key] = _without(out[key], names)
    for key in IN_PLACE_LIST:
        if key in out:
            out[key] = [_without(node, names) for node in out[key]]
    if "dependentSchemas" in out:
        out["dependentSchemas"] = {key: _without(node, names) for key, node in out["dependentSchemas"].items()}
    return out


def components(edges: Mapping[str, list[str]]) -> Iterator[frozenset[str]]:
    """The strongly connected groups of a graph, what is referred to first (Tarjan, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for start in edges:
        if start in order:
            continue
        work = [(start, iter(edges[start]))]
        order[start] = low[start] = len(order)
        stack.append(start)
        on_stack.add(start)
        while work:
            name, rest = work[-1]
            for ref in rest:
                if ref not in edges:
                    continue
                if ref not in order:
                    order[ref] = low[ref] = len(order)
                    stack.append(ref)
                    on_stack.add(ref)
                    work.append((ref, iter(edges[ref])))
                    break
                if ref in on_stack:
                    low[name] = min(low[name], order[ref])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == order[name]:
                    group = set()
                    while name not in group:
                        group.add(stack.pop())
                    on_stack -= group
                    yield frozenset(group)


__all__ = [
    "Closure",
    "SchemaLimitError",
    "Store",
    "children_of",
    "components",
    "dialect_of",
    "in_place",
    "in_place_refs",
    "parse_pointer",
    "ref_name",
    "refs_of",
]
