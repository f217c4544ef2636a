"""The locations of the schemas in a document, and the targets of their references.

A reference may also point to a meta-schema of JSON Schema, which is installed. Nothing else is ever read.

Sources: JSON Pointer (RFC 6901), URI resolution (RFC 3986), `$id`, `$anchor`, `$dynamicAnchor` and
`$recursiveAnchor` of JSON Schema 2020-12 and 2019-09 (core, section 8), `id` of draft 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from operad_schema.vocabulary import DIALECTS, META_SCHEMAS, subschemas

Location = tuple[Any, ...]
"""The location of a node in a document: the decoded tokens of its JSON Pointer."""


def dialect_of(schema: Any) -> str | None:
    """Return the dialect that a schema's `$schema` names; None if it is missing or unknown."""
    uri = schema.get("$schema") if isinstance(schema, Mapping) else None
    if not isinstance(uri, str):
        return None
    return META_SCHEMAS.get(uri.partition("://")[2].rstrip("#").rstrip("/"))


def parse_pointer(pointer: str) -> Location:
    """Return the decoded tokens of a JSON Pointer, which may begin with the `#` of a URI fragment.

    Raises `ValueError` if the pointer is malformed.
    """
    if pointer.startswith("#"):
        pointer = unquote(pointer[1:])
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"expected a JSON Pointer such as '/components/schemas/Pet', got {pointer!r:.80}")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def follow(node: Any, tokens: Location) -> Any:
    """Return the node that `tokens` lead to from `node`. Raises `LookupError` if the node does not exist."""
    for token in tokens:
        if isinstance(node, list):
            if not (token.isascii() and token.isdigit()):
                raise LookupError(token)
            node = node[int(token)]
        elif isinstance(node, Mapping):
            node = node[token]
        else:
            raise LookupError(token)
    return node


class Scope(NamedTuple):
    """The context in which a reference is resolved.

    It has the URI and the location of the resource that contains the reference, the draft, and the dynamic scope.
    """

    base: str
    resource: Location
    draft: int
    dynamic: tuple[tuple[str, Location], ...] = ()


class Target(NamedTuple):
    """The target of a reference: its location, its node, and the scope inside it."""

    location: Location
    node: Any
    scope: Scope


class _Index:
    """The resources and anchors of a document, collected once when first needed."""

    __slots__ = ("anchors", "dynamic", "resources")

    def __init__(self) -> None:
        self.resources: dict[str, Location] = {}
        self.anchors: dict[tuple[Location, str], Location] = {}
        self.dynamic: dict[Location, dict[str, Location]] = {}


RECURSIVE = "$recursiveAnchor"
"""The name, in a dynamic scope, of the root to which `$recursiveRef` refers."""


class References:
    """The resolver of the references in one document.

    Args:
        document: a schema, or a document that contains schemas.
        dialect: the dialect of schemas without their own `$schema`.
        roots: the locations of the schemas in the document.
        most: the maximum number of nodes that are searched for `$id` and anchors.
    """

    def __init__(
        self, document: Any, dialect: str, roots: tuple[Location, ...] = ((),), most: int = 100_000
    ) -> None:
        self.document = document
        self.draft = DIALECTS[dialect]
        self.roots = roots
        self.most = most
        self.tracks_dynamic = False
        self._index: _Index | None = None

    def identifier(self, node: Any, draft: int) -> str | None:
        """Return the `$id` (`id` in draft 4) that makes a node a resource; None if the node is not a resource."""
        if not isinstance(node, Mapping) or (draft < 2019 and "$ref" in node):
            return None
        found = node.get("id" if draft == 4 else "$id")
        return found if isinstance(found, str) and not found.startswith("#") else None

    def enter(self, node: Any, location: Location, scope: Scope) -> Scope:
        """Return the scope inside `node`: that of a new resource if `node` has an `$id`, otherwise `scope`."""
        identifier = self.identifier(node, scope.draft)
        if identifier is None:
            return scope
        return self._with_dynamic(self._within(identifier, location, scope))

    @staticmethod
    def _within(identifier: str, location: Location, scope: Scope) -> Scope:
        return scope._replace(base=join(scope.base, urldefrag(identifier).url), resource=location)

    def locate(self, location: Location, dynamic: tuple[tuple[str, Location], ...] = ()) -> Target:
        """Return the node at a location with its scope. Raises `LookupError` if the location does not exist."""
        scope = Scope("", (), self.draft, dynamic)
        node = self.document
        start = 0
        if location and isinstance(location[0], tuple):
            [uri] = location[0]
            node = _meta_schema(uri)
            scope = Scope(uri, location[:1], DIALECTS[dialect_of(node) or "2020-12"], dynamic)
            start = 1
        for depth, token in enumerate(location[start:], start):
            # A resource on the way is passed through, not entered: it is not part of the dynamic scope.
            if (identifier := self.identifier(node, scope.draft)) is not None:
                scope = self._within(identifier, location[:depth], scope)
            node = follow(node, (token,))
        if self.identifier(node, scope.draft) is None:
            scope = self._with_dynamic(scope)
        # The reader enters a node that begins a resource.
        return Target(location, node, scope)

    def resolve(self, ref: str, scope: Scope) -> Target:
        """Return the target of a `$ref`.

        Raises `LookupError` if neither the document nor a meta-schema has it, `ValueError` if `ref` is malformed.
        """
        url, fragment = urldefrag(ref)
        resource = scope.resource
        if url:
            resource = self._resource(join(scope.base, url))
        if fragment.startswith("/") or not fragment:
            location = resource + parse_pointer("#" + fragment)
        else:
            location = self.index.anchors[resource, unquote(fragment)]
        return self.locate(location, scope.dynamic)

    def resolve_dynamic(self, ref: str, scope: Scope) -> Target:
        """Return the target of a `$dynamicRef`, or if it is a `$dynamicAnchor`, the outermost one of its name."""
        target = self.resolve(ref, scope)
        name = urldefrag(ref).fragment
        resource = self.enter(target.node, target.location, target.scope).resource
        if self.index.dynamic.get(resource, {}).get(name) != target.location:
            return target
        return self.locate(dict(scope.dynamic).get(name, target.location), scope.dynamic)

    def resolve_recursive(self, scope: Scope) -> Target:
        """Return the target of `$recursiveRef: "#"` (2019-09): the resource that contains the reference.

        If that resource has `$recursiveAnchor: true`, the target is the outermost resource that has it.
        """
        target = self.locate(scope.resource, scope.dynamic)
        if not (isinstance(target.node, Mapping) and target.node.get(RECURSIVE) is True):
            return target
        return self.locate(dict(scope.dynamic).get(RECURSIVE, target.location), scope.dynamic)

    def _resource(self, url: str) -> Location:
        found = self.index.resources.get(url.removesuffix("#"))
        if found is None:
            _meta_schema(url)
            # Its location is not a path in this document: it begins with a token that pointers cannot have.
            found = ((url,),)
            tracks, self.tracks_dynamic = self.tracks_dynamic, False
            self._read(self.locate(found), self.index, self.most)
            self.tracks_dynamic = tracks
        return found

    def _with_dynamic(self, scope: Scope) -> Scope:
        if not self.tracks_dynamic:
            return scope
        known = dict(scope.dynamic)
        for name, location in self.index.dynamic.get(scope.resource, {}).items():
            known.setdefault(name, location)
        return scope._replace(dynamic=tuple(sorted(known.items())))

    @property
    def index(self) -> _Index:
        """The document's resources and anchors, collected at the first access."""
        if self._index is None:
            index = _Index()
            left = self.most
            tracks, self.tracks_dynamic = self.tracks_dynamic, False
            for root in self.roots:
                left = self._read(self.locate(root), index, left)
            self.tracks_dynamic = tracks
            self._index = index
        return self._index

    def _read(self, root: Target, index: _Index, left: int) -> int:
        stack = [root]
        while stack and left:
            location, node, scope = stack.pop()
            if not isinstance(node, Mapping):
                continue
            left -= 1
            scope = self.enter(node, location, scope)
            if scope.resource == location:
                index.resources.setdefault(scope.base, location)
            self._read_anchors(node, location, scope, index)
            stack.extend(Target(location + tokens, child, scope) for tokens, child in subschemas(node))
        return left

    @staticmethod
    def _read_anchors(node: Mapping[str, Any], location: Location, scope: Scope, index: _Index) -> None:
        names = [node.get("$anchor"), node.get("$dynamicAnchor")]
        if scope.draft < 2019:
            identifier = node.get("id" if scope.draft == 4 else "$id")
            names = [urldefrag(identifier).fragment] if isinstance(identifier, str) else []
        for name in names:
            if isinstance(name, str):
                index.anchors.setdefault((scope.resource, name), location)
        dynamic = node.get("$dynamicAnchor")
        if isinstance(dynamic, str):
            index.dynamic.setdefault(scope.resource, {}).setdefault(dynamic, location)
        if node.get(RECURSIVE) is True and location == scope.resource:
            index.dynamic.setdefault(location, {})[RECURSIVE] = location


def _meta_schema(uri: str) -> Any:
    """Return a meta-schema of JSON Schema, or of one of its vocabularies, from jsonschema-specifications.

    Raises `LookupError` for any other URI.
    """
    if not uri.partition("://")[2].startswith("json-schema.org/draft"):
        raise LookupError(uri)
    from jsonschema_specifications import REGISTRY

    return REGISTRY.contents(uri)


def join(base: str, url: str) -> str:
    """Return `url` resolved against `base`; `url` itself if either cannot be parsed or `base` is like `urn:a`."""
    try:
        return urljoin(base, url) if base else url
    except ValueError:
        return url
