"""Safe names for operations, such as names of tools, and the way back to their ids."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from operad.errors import CallError, ErrorCode
from operad.operations import OperationSpec
from operad_schema import object_members

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_HASH = 8


def safe_names(wanted: Mapping[str, str], *, limit: int = 50) -> dict[str, str]:
    """Return a name for each id: ``[A-Za-z_][A-Za-z0-9_-]*``, of at most ``limit`` characters, all different.

    A name that is too long or has other characters is cut and ends in a hash of the id. If two ids would have one
    name, both get the hash. So a name never passes from one id to another when ids come and go: a name that a user
    approved keeps its meaning, or disappears.

    Args:
        wanted: for each id, the text from which its name is made.
        limit: characters; hosts put a prefix of their own before names of at most 64.

    Returns:
        The ids by name, in the order of ``wanted``. Keep this mapping: an id cannot be derived from its name.
    """
    plain = {id: _safe(text) for id, text in wanted.items()}
    counts = Counter(plain.values())
    names: dict[str, str] = {}
    for id, name in plain.items():
        if len(name) > limit or counts[name] > 1:
            digest = _digest(id)
            name = f"{name[: limit - _HASH - 1]}_{digest}"
        names[name] = id
    return names


def _digest(text: str) -> str:
    import hashlib  # imports OpenSSL: only for names that need a hash

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]


def _safe(text: str) -> str:
    name = _UNSAFE.sub("_", text)
    return name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"


OWN_KEYWORDS = frozenset({"self", "timeout"})
"""Parameters of an operation's method besides the fields of its input."""


def attribute_names(names: Iterable[str]) -> dict[str, str]:
    """Return attributes for names of operations, such as ``pulls_create`` for ``pulls/create``.

    A name that can be an attribute stays as it is. In others, characters that are not allowed become ``_``. If the
    result is taken, it ends in a hash, so that no attribute passes from one operation to another as they come and
    go.

    Returns:
        The names by attribute.
    """
    return _identifiers(names, lambda name: not name.startswith("_"), "")


def keyword_names(fields: Iterable[str]) -> dict[str, str]:
    """Return keyword arguments for the fields of an input; see `attribute_names`.

    A field that cannot be a keyword, such as ``from`` or ``X-Api-Key``, gets one that ends in ``_``: ``from_``,
    ``X_Api_Key_``. So does ``timeout``, which is a parameter of the call itself.

    Returns:
        The fields by keyword.
    """
    return _identifiers(fields, lambda name: not name.startswith("__") and name not in OWN_KEYWORDS, "_")


def _identifiers(names: Iterable[str], may_be: Callable[[str], bool], end: str) -> dict[str, str]:
    known = dict.fromkeys(names)
    found = {name: name for name in known if _is_identifier(name) and may_be(name)}
    made = {name: _identifier(name, end) for name in known if name not in found}
    counts = Counter(made.values())
    for name, identifier in made.items():
        if counts[identifier] > 1 or identifier in found:
            digest = _digest(name)
            identifier = f"{identifier.rstrip('_')}_{digest}{end}"
        found[identifier] = name
    return found


def _is_identifier(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def _identifier(name: str, end: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
    if not words[:1].isalpha():
        words = f"n_{words}"
    return f"{words}{end}" if end or "_" in words else f"{words}_"


# --- operations of a registry ----------------------------------------------------------------------

_Tables = dict[str, dict[str, str]]


class Listed(Protocol):
    """The part of a registry that lists operations."""

    def get_spec(self, operation_id: str) -> OperationSpec | None:
        """Return the spec of an operation, or ``None``."""

    def specs(self) -> Sequence[OperationSpec]:
        """Return the specs of all operations."""


_known: WeakKeyDictionary[Any, tuple[Sequence[OperationSpec], _Tables]] = WeakKeyDictionary()


def attributes_of(registry: Listed, namespace: str) -> dict[str, str]:
    """Return the names of a namespace's operations by attribute, computed once for each state of the registry."""
    specs = registry.specs()
    tables = _tables(registry, specs)
    table = tables.get(namespace)
    if table is None:
        tables[namespace] = table = attribute_names(spec.name for spec in specs if spec.namespace == namespace)
    return table


def _tables(registry: Listed, specs: Sequence[OperationSpec]) -> _Tables:
    try:
        known, tables = _known.get(registry, (None, {}))
        if known is not specs:
            tables = {}
            _known[registry] = (specs, tables)
    except TypeError:  # an application's own registry may not support hashing or weak references
        return {}
    return tables


def operation_name(registry: Listed, namespace: str, attribute: str) -> str:
    """Return the name of the operation for an attribute; the attribute itself if none has it."""
    if registry.get_spec(f"{namespace}.{attribute}") is not None:
        return attribute
    return attributes_of(registry, namespace).get(attribute, attribute)


def input_of(registry: Listed, operation_id: str, input: Any, fields: dict[str, Any]) -> Any:
    """Return ``input``, or the object made from keyword arguments; see `keyword_names`.

    Only keywords that end in ``_`` may represent other names. Raises `CallError` if both are given.
    """
    if not fields:
        return input
    if input is not None:
        message = f'"{operation_id}" got both an input and keywords; give one of them'
        raise CallError(ErrorCode.VALIDATION_ERROR, message)
    if not any(name.endswith("_") for name in fields):
        return fields
    spec = registry.get_spec(operation_id)
    names = {} if spec is None else keyword_names(members_of(spec)[0])
    return {names.get(name, name): value for name, value in fields.items()}


def members_of(spec: OperationSpec) -> tuple[dict[str, Any], set[str]]:
    """Return the fields of an operation's input, wherever its schema has them, and which are required."""
    schema = spec.input_schema.bundled()
    definitions = schema.get("$defs", {}) if isinstance(schema, Mapping) else {}
    return object_members(schema, definitions, branches=True)
