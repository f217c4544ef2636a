"""The normal form of schemas, the only form that checks and casts read.

The normal form is JSON Schema 2020-12, made from a schema and everything that it refers to. Unknown keywords are
removed, as are annotations and `format` unless requested. Older spellings are translated, and references point to
objects. Every hostile or broken part accepts any value, with a warning. Three private keywords serve casts and
unions: `$siblings` (the keywords beside a `$ref`, which hides them from validation in drafts 4 to 7),
`discriminator` (see `operad_schema.tags`) and `$kinds` (see `operad_schema.kinds`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from operad_schema.groups import components
from operad_schema.limits import Limits
from operad_schema.loosening import loosen
from operad_schema.references import Location, References, Target
from operad_schema.tags import settle_tags
from operad_schema.vocabulary import KEYWORDS

_MISSING: Any = object()
FEW = 64
"""If more schemas than this can apply to one part of a value, each applied schema is counted."""
MANY = 1_000
"""If this many schemas can apply to one part of a value, results for a part are remembered within a call."""


class SchemaLimitError(ValueError):
    """Raised if a schema exceeds one of its `Limits`. It then accepts any value."""


def too_many_nodes(limits: Limits) -> SchemaLimitError:
    """Return the error for a schema with more than `max_schema_nodes` subschemas."""
    most = limits.max_schema_nodes
    return SchemaLimitError(f"expected a schema of at most {most} subschemas (max_schema_nodes), got more")


class Node(dict[str, Any]):
    """A schema in the normal form: its keywords, and the check compiled from them. Nodes are compared by identity.

    The value of `$ref` is a text such as `#/$defs/d7`, for exports. The attribute `ref` is the definition itself.
    """

    __slots__ = ("_lesser", "check", "counts", "is_hidden", "is_lax", "ref")

    def __init__(self, keywords: Mapping[str, Any] | None = None, ref: Definition | None = None) -> None:
        super().__init__(keywords or {})
        self.ref = ref
        self.check: Callable[[Any], bool] | None = None
        """The compiled check; None until it is first needed."""
        self.counts = False
        """Whether each check draws on the budget of its call."""
        self.is_lax = False
        """Whether it accepts more values than the original: a pattern is not run, or an `enum` is too large."""
        self.is_hidden = False
        """Whether only casts use it, because a `$ref` beside it hides it from validation (drafts 4 to 7)."""
        self._lesser: dict[tuple[str, ...], Node] = {}

    __hash__ = object.__hash__  # type: ignore[assignment]  # a dict has no hash, but nodes are compared by identity

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def less(self, *keys: str) -> Node:
        """Return the schema without some keywords. Calls with the same `keys` return the same object."""
        if self.keys().isdisjoint(keys):
            return self
        made = self._lesser.get(keys)
        if made is None:
            made = Node({key: value for key, value in self.items() if key not in keys})
            made.ref = None if "$ref" in keys else self.ref
            made.is_hidden = self.is_hidden
            made = self._lesser.setdefault(keys, made)
        return made

    def hidden(self) -> Node:
        """Return a copy that only casts use (`is_hidden`). Each call returns the same object."""
        made = self._lesser.get(())
        if made is None:
            made = Node(self, self.ref)
            made.is_hidden = True
            made = self._lesser.setdefault((), made)
        return made

    def here(self) -> Iterator[Body]:
        """Yield the subschemas that apply to the same value, except the target of `$ref`."""
        return self._below("itself")

    def parts(self) -> Iterator[Body]:
        """Yield the subschemas that apply to properties or items of the value."""
        return self._below("one part", "each part")

    def _below(self, *what: str) -> Iterator[Body]:
        for key, value in self.items():
            if key == "$siblings":
                if "itself" in what:
                    yield value
            elif (word := KEYWORDS.get(key)) is not None and word.applies in what:
                if word.holds == "map":
                    yield from value.values()
                elif word.holds == "list":
                    yield from value
                else:
                    yield value


Body = Node | bool


class Definition:
    """A named schema of the normal form, with the facts that were computed about the schema."""

    __slots__ = (
        "body", "counts", "crowd", "has_kinds", "is_heavy", "is_lax", "is_read", "is_recursive", "name", "nodes",
        "refs", "size", "tagged", "target", "unchecked", "warnings",
    )  # fmt: skip

    def __init__(self, name: str, target: Target) -> None:
        self.name = name
        self.target = target
        self.body: Body = True
        self.is_read = False
        self.nodes = 0
        self.size = 0
        self.refs: tuple[Definition, ...] = ()
        self.crowd = 0
        """How many schemas, with all that it refers to, can apply to one part of a value; 0 until computed."""
        self.is_heavy: bool
        """Whether `crowd` is so high that results for a part of a value are remembered within a call."""
        self.counts = False
        """Whether `crowd` is so high that each applied schema draws on the budget of its call."""
        self.is_recursive: bool
        self.is_lax = False
        """Whether any schema that it refers to accepts more values than the original."""
        self.has_kinds = False
        """Whether a cast may read further schemas: the kinds that tags name."""
        self.warnings: list[str] = []
        self.unchecked: list[str] = []
        """A text for each pattern that is not run, with its place and the reason."""
        self.tagged: list[Node] = []
        """The unions with a `discriminator`."""

    def warn(self, location: Location, text: str) -> None:
        """Record a warning about the part at a location. Warnings after the 20th are ignored."""
        if len(self.warnings) < 20:
            self.warnings.append(f"{where(location)}: {text}")


def where(location: Location) -> str:
    """Return a location as a JSON Pointer in a URI fragment, such as `#/components/schemas/Pet`."""
    tokens = [token.replace("~", "~0").replace("/", "~1") for token in location if isinstance(token, str)]
    return "#" + "".join("/" + token for token in tokens)


@attrs.define(eq=False, repr=False)
class Closure:
    """A schema with all schemas that it refers to, directly or indirectly."""

    root: Definition
    definitions: tuple[Definition, ...]
    """The root, followed by the other definitions in the order of their distance from the root."""
    store: Store
    """Kept so that the document's other schemas share it while this one is in use."""
    warnings: tuple[str, ...]


class Store:
    """The normal form of a document's schemas. Each schema is read once, when it is first needed.

    `read` is the function that reads one definition; see `operad_schema.reader.read`.
    """

    def __init__(self, references: References, read: Callable[[Store, Definition], None], dialect: str, *,
                 limits: Limits, annotations: bool = False, formats: bool = False,
                 unchecked: bool = False) -> None:  # fmt: skip
        self.references = references
        self.dialect = dialect
        self.limits = limits
        self.annotations = annotations
        self.formats = formats
        self.unchecked = unchecked
        self.has_costly_patterns = False
        """Whether the match of any pattern that was read may draw on the budget of its call."""
        self.lock = threading.RLock()
        self.warned: set[str] = set()
        self.made: dict[Any, Any] = {}
        """The checks, casts and compiled forms of the schemas."""
        self._read = read
        self._definitions: dict[Any, Definition] = {}

    def closure(self, location: Location, schema: Any = _MISSING) -> Closure:
        """Return the closure of the schema at a location, or of `schema` as if it were in the document's root.

        Raises `LookupError` if the location does not exist, `SchemaLimitError` if the schema exceeds a limit.
        """
        with self.lock:
            try:
                return self._closure(self.define(self._root(location, schema)))
            except TrackDynamicError:
                # The first dynamic reference: what a schema is now depends on how it was reached.
                self.references.tracks_dynamic = True
                self._definitions.clear()
                return self._closure(self.define(self._root(location, schema)))

    def kind(self, location: Location) -> Definition | None:
        """Return the definition at a location that a tag names; None if it does not exist or exceeds a limit."""
        try:
            return self.closure(location).root
        except (LookupError, SchemaLimitError, RecursionError):
            return None

    def _root(self, location: Location, schema: Any) -> Target:
        if schema is _MISSING:
            return self.references.locate(location)
        base = self.references.locate(())
        scope = self.references.enter(base.node, (), base.scope)
        # A number cannot be a token of a pointer, so it hides no location of the document. The definition holds
        # the schema, so its id is not reused.
        return Target((id(schema),), schema, scope)

    def define(self, target: Target) -> Definition:
        """Return the definition of a reference's target. It may not be read yet."""
        key = target.location, target.scope.dynamic
        found = self._definitions.get(key)
        if found is None:
            found = self._definitions[key] = Definition(f"d{len(self._definitions)}", target)
        return found

    def _closure(self, root: Definition) -> Closure:
        seen = {root: None}
        queue = deque([root])
        nodes = size = 0
        while queue:
            definition = queue.popleft()
            if not definition.is_read:
                self._read(self, definition)
                definition.is_read = True
            nodes += definition.nodes
            size += definition.size
            self._hold(nodes, size)
            for ref in definition.refs:
                if ref not in seen:
                    seen[ref] = None
                    queue.append(ref)
        # New definitions reach everything that they refer to, so those that were settled before cannot change.
        self._settle([definition for definition in seen if not definition.crowd])
        warnings = [text for definition in seen for text in definition.warnings]
        return Closure(root, tuple(seen), self, tuple(warnings))

    def _hold(self, nodes: int, size: int) -> None:
        if nodes > self.limits.max_schema_nodes:
            raise too_many_nodes(self.limits)
        if size > self.limits.max_schema_bytes:
            most = self.limits.max_schema_bytes
            raise SchemaLimitError(f"expected a schema of at most {most} bytes (max_schema_bytes), got more")

    def _settle(self, fresh: list[Definition]) -> None:
        """Remove references that would never end, and record which definitions recurse and which are heavy."""
        for group in components({one: in_place_refs(one.body) for one in fresh}):
            for one in group:
                if len(group) > 1 or one in in_place_refs(one.body):
                    one.body = without(one.body, group)
                    text = "it refers to itself for the same value: that reference is ignored"
                    one.warn(one.target.location, text)
        weights: dict[Definition, int] = {}
        most = self.limits.max_schema_in_place
        edges = {one: in_place_refs(one.body) for one in fresh}
        for group in components(edges):
            for one in group:
                weights[one] = 1 + sum(weights.get(ref, 1) for ref in edges[one])
                if weights[one] > most:
                    one.body, weights[one] = True, 1
                    text = f"expected at most {most} schemas for one value (max_schema_in_place), got more"
                    one.warn(one.target.location, f"{text}: any value is valid here")
        edges = {one: refs_of(one.body) for one in fresh}
        for group in components(edges):
            recurses = len(group) > 1 or any(one in edges[one] for one in group)
            crowd = _recursive_crowd(group) if recurses else 0
            is_lax = any(one.is_lax or any(ref.is_lax for ref in edges[one]) for one in group)
            for one in group:
                one.is_lax = is_lax
                one.is_recursive = recurses
                one.crowd = crowd or max(_crowd(one.body))
                one.is_heavy = one.crowd >= MANY
        _count([one for one in fresh if one.crowd > FEW])
        loosen(fresh)
        for one in fresh:
            for node in one.tagged:
                settle_tags(node, decides=self.dialect.startswith("openapi"))


def _crowd(body: Body) -> tuple[int, int]:
    """Return how many schemas can apply to a value itself and to one part of the value, each at most `MANY`."""
    if isinstance(body, bool):
        return 1, 0
    itself, parts = 1, 0
    for one in body.here():
        below = _crowd(one)
        itself, parts = itself + below[0], parts + below[1]
    if body.ref is not None:
        itself, parts = itself + body.ref.crowd, parts + body.ref.crowd
    for key, held in body.items():
        word = KEYWORDS.get(key)
        if word is not None and word.applies in ("one part", "each part"):
            schemas = held.values() if word.holds == "map" else held if word.holds == "list" else (held,)
            each = [max(_crowd(one)) for one in schemas]
            parts += max(each, default=0) if word.applies == "one part" else sum(each)
    return min(itself, MANY), min(parts, MANY)


_SCALAR = {"type", "default", "enum", "const", "format"} | {
    key for key, word in KEYWORDS.items() if word.kind in ("string", "number")
}
_TREE = _SCALAR | {"$ref", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
                   "anyOf", "oneOf", "$kinds"}  # fmt: skip
_CONTAINERS = {"object", "array"}


def _recursive_crowd(group: frozenset[Definition]) -> int:
    """Return how many schemas of a recursive group can apply to one part of a value, at most `MANY`.

    Each level of a value could double them, unless the schemas are plain trees. In a tree, each part is either a
    declared property, another property or an item, and exactly one schema applies to it.
    """
    if not all(_is_tree(one.body) for one in group):
        return MANY
    each = [_crowd(one.body) for one in group]  # references to the group are not counted yet
    if any(ref in group for one in group for ref in in_place_refs(one.body)):
        return min(MANY, 1 + sum(itself + parts for itself, parts in each))
    return min(MANY, 1 + max(itself for itself, _ in each) + max(parts for _, parts in each))


def _is_tree(body: Body) -> bool:
    """Return True if one schema applies to each part of a value, and a cast visits each part once."""
    stack = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, bool):
            continue
        if not node.keys() <= _TREE or (node.ref is not None and len(node) > 1) or lists_containers(node):
            return False
        for key in ("anyOf", "oneOf"):
            if key in node:
                branches = [one for one in node[key] if not _is_scalar(one)]
                if len(branches) > 1 or not node.keys() <= {key, "default"}:
                    return False
                stack.extend(branches)
        stack.extend(node.get("properties", {}).values())
        stack.extend(node[key] for key in ("items", "additionalProperties") if key in node)
    return True


def _is_scalar(body: Body) -> bool:
    """Return True if the types of a schema allow neither arrays nor objects."""
    if isinstance(body, bool) or "type" not in body or not body.keys() <= _SCALAR:
        return False
    types = body["type"]
    return _CONTAINERS.isdisjoint([types] if isinstance(types, str) else types)


def lists_containers(node: Node) -> bool:
    """Return True if the `const` or `enum` of a schema contains an array or an object."""
    return any(isinstance(value, (dict, list)) for value in [node.get("const"), *node.get("enum", ())])


def _count(crowded: list[Definition]) -> None:
    """Mark definitions, and all that they refer to, as drawing on the budget of a call."""
    stack: list[Any] = list(crowded)
    while stack:
        one = stack.pop()
        if isinstance(one, Definition) and not one.counts:
            one.counts = True
            stack.append(one.body)
        elif isinstance(one, Node):
            # A check that was made before does not count steps, so it is made again.
            one.counts, one.check = True, None
            stack.extend([*one.here(), *one.parts()])
            if one.ref is not None:
                stack.append(one.ref)


class TrackDynamicError(Exception):
    """Raised at the first dynamic reference. `Store` then reads all schemas again with their dynamic scopes."""


def in_place_refs(body: Body) -> list[Definition]:
    """Return the definition of each reference in a schema that applies to the same value as the schema."""
    return _refs(body, parts=False)


def refs_of(body: Body) -> list[Definition]:
    """Return the definition of each reference in a schema, at any depth."""
    return _refs(body, parts=True)


def _refs(body: Body, *, parts: bool) -> list[Definition]:
    found = []
    stack: list[Any] = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, Node):
            if node.ref is not None:
                found.append(node.ref)
            stack.extend(node.here())
            if parts:
                stack.extend(node.parts())
    return found


def without(body: Body, group: frozenset[Definition]) -> Body:
    """Return a copy in which references to definitions of a group, for the same value, accept any value."""
    if isinstance(body, bool):
        return body
    if body.ref in group:
        return True
    out = Node(body, body.ref)
    for key, value in body.items():
        if key == "$siblings" or (key in KEYWORDS and KEYWORDS[key].applies == "itself"):
            if isinstance(value, list):
                out[key] = [unless_unknown(without(node, group), node) for node in value]
            elif key == "dependentSchemas":
                out[key] = {name: without(node, group) for name, node in value.items()}
            else:
                out[key] = without(value, group)
    # An unknown schema rejects nothing: neither inside `not`, nor as the second match of a `oneOf`.
    if out.get("not") is True and body["not"] is not True:
        del out["not"]
    if "anyOf" not in out and any(node.ref in group for node in body.get("oneOf", ()) if isinstance(node, Node)):
        out["anyOf"] = out.pop("oneOf")
        out.pop("discriminator", None)
    return out


def unless_unknown(made: Body, given: Any) -> Body:
    """Return ``made``, or an open object schema if ``made`` became unknown: it is True, and ``given`` was not.

    An unknown schema in an `allOf` or a union may declare properties that the schemas beside it do not declare, so
    no cast may drop undeclared properties.
    """
    return Node({"additionalProperties": True}) if made is True and given is not True else made
