"""The export of schemas: one self-contained copy, or many copies that share their definitions."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from operad_schema.compiling import closure_of, dialect, new_store
from operad_schema.groups import components
from operad_schema.nodes import Closure, Definition, Node, Store, refs_of
from operad_schema.records import Origin
from operad_schema.references import Location, follow, parse_pointer
from operad_schema.values import MAX_BITS
from operad_schema.vocabulary import KEYWORDS, SIBLINGS

_DEFS = "#/$defs/"
_MAX_LEVELS = 200
"""The levels of JSON that every reader accepts: the parsers of common servers stop at 255."""
_MAX_VALUES = 200_000
"""The maximum number of JSON values in a schema that is sent unchanged. Python objects that contain one another
have no end.
"""


def bundle(origin: Origin) -> dict[str, Any] | bool:
    """Return a schema as JSON Schema 2020-12 with the schemas that it refers to; True if it cannot be read."""
    closure = closure_of(new_store(origin, annotations=True), origin)
    taken: dict[str, int] = {}
    names = {one: _free(_export_name(one.target.location), taken) for one in closure.definitions}
    bodies = {one: _renamed(one.body, lambda ref: _DEFS + _token(names[ref])) for one in closure.definitions}
    root: dict[str, Any] | bool = bodies.pop(closure.root)
    if isinstance(root, bool):
        return root
    if _is_recursive(closure):
        bodies[closure.root] = root
        root = {"$ref": _DEFS + _token(names[closure.root])}
    if bodies:
        root = {**root, "$defs": {names[one]: body for one, body in bodies.items()}}
    return root


def _is_recursive(closure: Closure) -> bool:
    return any(closure.root in refs_of(one.body) for one in closure.definitions)


def is_larger(origin: Origin, values: int) -> bool:
    """Return True if a schema, with everything that it refers to, has more than ``values`` JSON values.

    Counting stops at that number. Only references by JSON Pointer are followed, so the count is a lower bound.
    """
    document = origin.raw if origin.document is None else origin.document
    waiting, seen, count = [origin.raw], set(), 0
    while waiting:
        node = waiting.pop()
        count += 1
        if count > values:
            return True
        if isinstance(node, Mapping):
            reference = node.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/") and reference not in seen:
                seen.add(reference)
                with suppress(LookupError, ValueError):
                    waiting.append(follow(document, parse_pointer(reference)))
            waiting.extend(node.values())
        elif isinstance(node, (list, tuple)):
            waiting.extend(node)
    return False


def is_sendable(value: Any) -> bool:
    """Return True if a schema can be sent unchanged: JSON in UTF-8 of at most 200 levels and 200,000 values."""
    waiting, count = [(value, 0)], 0
    while waiting:
        node, level = waiting.pop()
        count += 1
        if level > _MAX_LEVELS or count > _MAX_VALUES:
            return False
        if isinstance(node, dict):
            if not all(isinstance(key, str) and _is_sendable_text(key) for key in node):
                return False
            waiting.extend((item, level + 1) for item in node.values())
        elif isinstance(node, (list, tuple)):
            waiting.extend((item, level + 1) for item in node)
        elif not _is_sendable_scalar(node):
            return False
    return True


def _is_sendable_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return _is_sendable_text(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and value.bit_length() <= MAX_BITS)


def _escaped(text: str) -> str:
    """Return the text with characters that UTF-8 cannot encode escaped, as operad does for operations."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_sendable_text(text: str) -> bool:
    return text.isascii() or _escaped(text) == text


class SharedDefinitions:
    """Definitions that many exported schemas share, so that each is exported once instead of once per schema.

    Equal definitions are merged, even if they come from different documents.

    Args:
        prefix: the text before the name of a definition in references, such as `#/$defs/`.
    """

    def __init__(self, prefix: str = _DEFS) -> None:
        self.definitions: dict[str, dict[str, Any] | bool] = {}
        """The definitions that the added schemas refer to, by name."""
        self._prefix = prefix
        self._stores: dict[tuple[int, str], _Names] = {}
        self._by_digest: dict[bytes, str] = {}
        self._taken: dict[str, int] = {}

    def add(self, origin: Origin) -> dict[str, Any] | bool:
        """Return a copy of a schema, and put the schemas that it refers to into `definitions`.

        The result is True if the schema cannot be read.
        """
        if origin.document is None:
            names = _Names(new_store(origin, annotations=True))
        else:
            key = id(origin.document), dialect(origin)  # the store holds the document, so its id is not reused
            names = self._stores.get(key) or _Names(new_store(origin, annotations=True))
            self._stores[key] = names
        closure = closure_of(names.store, origin)
        if closure.store is not names.store:  # a schema that cannot be read accepts any value
            return True
        is_recursive = _is_recursive(closure)
        self._define(names, closure, None if is_recursive else closure.root)
        if is_recursive:
            return {"$ref": self._link(names, closure.root)}
        root: dict[str, Any] | bool = _renamed(closure.root.body, lambda ref: self._link(names, ref))
        return root

    def _link(self, names: _Names, definition: Definition) -> str:
        return self._prefix + _token(names.known[definition])

    def _define(self, names: _Names, closure: Closure, root: Definition | None) -> None:
        """Give each definition that a schema refers to a name and an entry, except the schema itself (`root`)."""
        import hashlib  # imports OpenSSL, which many schemas do not need

        fresh = [one for one in closure.definitions if one not in names.known and one is not root]
        added = []
        # A definition comes after those that it refers to, because its digest is made from theirs.
        for group in components({one: refs_of(one.body) for one in fresh}):
            bases = {one: _export_name(one.target.location) for one in group}
            inner = {**names.digests, **bases}
            texts = {one: json.dumps(_renamed(one.body, inner.__getitem__), sort_keys=True) for one in group}
            ordered = [texts[one] for one in sorted(group, key=bases.__getitem__)]
            for one in group:
                whole = "\0".join([bases[one], texts[one], *ordered])
                digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).digest()
                names.digests[one] = digest.hex()
                known = self._by_digest.get(digest)
                if known is None:
                    known = self._by_digest[digest] = _free(bases[one], self._taken)
                    added.append(one)
                names.known[one] = known
        for one in added:
            self.definitions[names.known[one]] = _renamed(one.body, lambda ref: self._link(names, ref))


class _Names:
    """The names of the definitions of one document."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known: dict[Definition, str] = {}
        self.digests: dict[Definition, str] = {}


def _export_name(location: Location) -> str:
    words = [token for token in location if isinstance(token, str)]
    # JSON text may have a lone surrogate, but UTF-8 cannot encode it.
    return words[-1].encode("utf-8", "replace").decode() if words else "root"


def _free(base: str, taken: dict[str, int]) -> str:
    """Return a name that is not taken; `taken` has the number of the last name made from each base."""
    name = base
    while name in taken:
        taken[base] += 1
        name = f"{base}{taken[base]}"
    taken[name] = 1
    return name


def _token(name: str) -> str:
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="~$&+,;=@!*'()")


def _renamed(node: Any, link: Callable[[Definition], str]) -> Any:
    """Return a copy of a schema as a document; `link` makes its references."""
    if not isinstance(node, Node):
        return node
    out: dict[str, Any] = {}
    for key, value in node.items():
        word = KEYWORDS.get(key)
        if key == "$ref":
            out[key] = link(node.ref) if node.ref is not None else _copied(value)
        elif key == "$siblings":
            out[SIBLINGS] = _renamed(value, link)
        elif key == "discriminator":
            out[key] = _discriminator(node, value, link)
        elif key == "$kinds":
            # The kinds are omitted. Their tag alone tells readers that kinds exist, so that they drop no
            # properties.
            out["discriminator"] = {"propertyName": _escaped(value["propertyName"])}
        elif word is not None and word.holds == "map":
            out[key] = {_escaped(name): _renamed(child, link) for name, child in value.items()}
        elif word is not None and word.holds == "list":
            out[key] = [_renamed(child, link) for child in value]
        elif word is not None and word.holds == "schema":
            out[key] = _renamed(value, link)
        else:
            out[_escaped(key)] = _copied(value)
    return out


def _copied(value: Any) -> Any:
    """Return a copy of a JSON value whose strings UTF-8 can encode, because exports are sent to other programs."""
    if isinstance(value, str):
        return _escaped(value)
    if isinstance(value, Mapping):
        return {_escaped(key): _copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(item) for item in value]
    return copy.deepcopy(value)


def _discriminator(node: Node, given: dict[str, Any], link: Callable[[Definition], str]) -> dict[str, Any]:
    branches = node[given["union"]]
    mapping = {
        _escaped(tag): link(ref) for tag, at in given["mapped"].items() if (ref := branches[at].ref) is not None
    }
    return {"propertyName": _escaped(given["propertyName"]), **({"mapping": mapping} if mapping else {})}
