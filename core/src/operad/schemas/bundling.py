"""Schemas for export: a self-contained copy of one, or many that share their definitions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from operad.schemas.compiled import closure_of
from operad.schemas.keywords import SIBLINGS
from operad.schemas.nodes import components, ref_name, refs_of
from operad.schemas.reader import Closure, Store
from operad.schemas.references import dialect_of

_DEFS = "#/$defs/"


def bundle(raw: Any, document: Any, pointer: str, dialect: str | None) -> dict[str, Any] | bool:
    """A schema with all that it refers to in its own `$defs`, in JSON Schema 2020-12."""
    used = dialect_of(raw) or dialect_of(document) or dialect or "2020-12"
    store = Store(raw if document is None else document, used, annotations=True)
    closure = closure_of(store, raw, pointer, detached=document is not None and not pointer)
    names: dict[str, str] = {}
    taken: dict[str, int] = {}
    for name in closure.names:
        names[name] = _free(_export_name(closure.store.location(name)), taken)
    bodies = {name: _renamed(closure.bodies[name], names, _DEFS) for name in closure.names}
    root: dict[str, Any] | bool = bodies.pop(closure.root)
    if isinstance(root, bool):
        return root
    if any(closure.root in refs_of(closure.bodies[name]) for name in closure.names):
        bodies[closure.root] = root
        root = {"$ref": _DEFS + _token(names[closure.root])}
    if bodies:
        root = {**root, "$defs": {names[name]: body for name, body in bodies.items()}}
    return root


class SharedDefinitions:
    """Definitions of many schemas, each there once: what would make a hundred copies of a `Pet` makes one.

    Definitions that say the same are one, whatever documents they come from.

    Args:
        prefix: what a reference to a definition begins with.
    """

    def __init__(self, prefix: str = _DEFS) -> None:
        self.definitions: dict[str, dict[str, Any] | bool] = {}
        """The definitions that the added schemas refer to, by name."""
        self._prefix = prefix
        self._stores: dict[tuple[int, str], _Names] = {}
        self._by_digest: dict[bytes, str] = {}
        self._taken: dict[str, int] = {}

    def add(self, raw: Any, document: Any, pointer: str, dialect: str | None) -> dict[str, Any] | bool:
        """As `bundle`, with references to `definitions` instead of ``$defs`` of its own."""
        used = dialect_of(raw) or dialect_of(document) or dialect or "2020-12"
        if document is None:
            names = _Names(Store(raw, used, annotations=True))
        else:
            key = id(document), used  # the store holds the document, so that its id stays its own
            names = self._stores.get(key) or _Names(Store(document, used, annotations=True))
            self._stores[key] = names
        closure = closure_of(names.store, raw, pointer, detached=document is not None and not pointer)
        if closure.store is not names.store:  # what cannot be read is a schema that says nothing
            return True
        is_recursive = any(closure.root in refs_of(closure.bodies[name]) for name in closure.names)
        self._define(names, closure, None if is_recursive else closure.root)
        if is_recursive:
            return {"$ref": self._prefix + _token(names.known[closure.root])}
        root: dict[str, Any] | bool = _renamed(closure.bodies[closure.root], names.known, self._prefix)
        return root

    def _define(self, names: _Names, closure: Closure, root: str | None) -> None:
        """Give all that a schema reaches a name, and a definition; not the schema itself, which stands alone."""
        fresh = [name for name in closure.names if name not in names.known and name != root]
        added = []
        # What a definition refers to comes before it, so that its digest can be made of theirs.
        for group in components({name: refs_of(closure.bodies[name]) for name in fresh}):
            bases = {name: _export_name(names.store.location(name)) for name in group}
            inner = {**names.digests, **bases}
            texts = [
                _text(_renamed(closure.bodies[name], inner, "")) for name in sorted(group, key=bases.__getitem__)
            ]
            for name in group:
                own = _text(_renamed(closure.bodies[name], inner, ""))
                digest = hashlib.sha256(
                    "\0".join([bases[name], own, *texts]).encode("utf-8", "surrogatepass")
                ).digest()
                names.digests[name] = digest.hex()
                known = self._by_digest.get(digest)
                if known is None:
                    known = self._by_digest[digest] = _free(bases[name], self._taken)
                    self.definitions[known] = True  # the name is taken; what it means follows
                    added.append(name)
                names.known[name] = known
        for name in added:
            self.definitions[names.known[name]] = _renamed(closure.bodies[name], names.known, self._prefix)


class _Names:
    """What the definitions of one document are called."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known: dict[str, str] = {}
        self.digests: dict[str, str] = {}


def _text(body: Any) -> str:
    return json.dumps(body, sort_keys=True)


def _export_name(location: tuple[Any, ...]) -> str:
    words = [token for token in location if isinstance(token, str)]
    # A lone surrogate is legal in JSON text, and nothing else can write it.
    return words[-1].encode("utf-8", "replace").decode() if words else "root"


def _free(base: str, taken: dict[str, int]) -> str:
    """A name that is not taken; `taken` has the number of the last one made of each base."""
    name = base
    while name in taken:
        taken[base] += 1
        name = f"{base}{taken[base]}"
    taken[name] = 1
    return name


def _token(name: str) -> str:
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="~$&+,;=@!*'()")


def _renamed(node: Any, names: Mapping[str, str], prefix: str, values: bool = False) -> Any:
    """A copy of a normal form with the names of `names`; inside `const` and the like nothing is a reference."""
    if isinstance(node, list):
        return [_renamed(item, names, prefix, values) for item in node]
    if not isinstance(node, dict):
        return node
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key == "$ref" and isinstance(value, str) and not values:
            out[key] = prefix + _token(names[ref_name(node)])
        elif key == "$siblings" and not values:
            out[SIBLINGS] = _renamed(value, names, prefix)
        elif (
            key in ("properties", "patternProperties", "dependentSchemas")
            and not values
            and isinstance(value, dict)
        ):
            out[key] = {name: _renamed(child, names, prefix) for name, child in value.items()}
        else:
            out[key] = _renamed(
                value, names, prefix, values or key in ("const", "enum", "default", "examples", "example")
            )
    return out
