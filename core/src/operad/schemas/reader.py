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
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from operad.schemas.keywords import READ, Keyword
from operad.schemas.nodes import Body, components, in_place_refs, refs_of, settle_tags, without
from operad.schemas.patterns import Pattern
from operad.schemas.references import Location, References, Scope, Target
from operad.schemas.values import is_number

MAX_BYTES = 1024 * 1024
"""`max_schema_bytes`: the size of a schema with all that it reaches, as JSON without annotations."""
MAX_NODES = 20_000
"""`max_schema_nodes`: the subschemas of a schema with all that it reaches."""
MAX_DEPTH = 64
"""`max_schema_depth`: subschemas within subschemas, and levels of a `default`, `const` or `enum` value."""
MAX_IN_PLACE = 10_000
"""`max_schema_in_place`: the subschemas that apply to one and the same value."""

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
    tagged: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Closure:
    """A schema with all that it reaches, in normal form."""

    root: str
    bodies: Mapping[str, Body]
    names: tuple[str, ...]
    key: bytes
    warnings: tuple[str, ...]
    patterns: Mapping[str, Pattern]
    store: Any
    """Kept, so that the document's other schemas find it for as long as this one is used."""


class Store:
    """The normal form of a document's schemas, made when first reached and shared by all that reach it."""

    def __init__(self, document: Any, dialect: str, *, roots: tuple[Location, ...] = ((),), trusted: bool = False,
                 annotations: bool = False) -> None:  # fmt: skip
        self.references = References(document, dialect, roots)
        self.nullable = dialect == "openapi-3.0"
        self.decides = dialect.startswith("openapi")
        self.trusted = trusted
        self.annotations = annotations
        self.bodies: dict[str, Body] = {}
        self.patterns: dict[str, Pattern] = {}
        self.lock = threading.RLock()
        self.heavy: set[str] = set()
        self.recursive: set[str] = set()
        self.warned: set[str] = set()
        self.castings: dict[bool, Any] = {}
        self.checks: Any = None
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
                Reader(self, definition, MAX_NODES - nodes).read()
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
        for name in fresh:
            for body in self._definitions[name].tagged:
                settle_tags(self.bodies, body, decides=self.decides)
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
                    self._replace(name, without(self.bodies[name], group))
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


class Reader:
    """Reads one schema of a document into one definition of the normal form."""

    def __init__(self, store: Store, definition: Definition, budget: int) -> None:
        self.store = store
        self.references = store.references
        self.definition = definition
        self.budget = budget
        self.refs: dict[str, None] = {}
        self.tagged: list[dict[str, Any]] = []

    def read(self) -> None:
        definition = self.definition
        location, node, scope = definition.target
        definition.body = self.schema(node, location, scope, 0)
        definition.refs = tuple(self.refs)
        definition.tagged = self.tagged

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
            read = READ.get(key)
            if read is not None:
                if self.allowed(key, scope):
                    self.definition.size += len(key) + 4
                    read(Keyword(self, key, value, node, out, location, scope, depth))
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
        if value is None or isinstance(value, bool) or is_number(value):
            return value
        if isinstance(value, list | tuple):
            return [self.json(item, depth + 1) for item in value]
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {self.json(key): self.json(item, depth + 1) for key, item in value.items()}
        raise ValueError(f"expected a JSON value, got {type(value).__name__}")


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
