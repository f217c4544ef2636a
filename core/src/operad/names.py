"""Safe names for operations, such as tool names and Python attributes, and the ids behind them."""

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
    """Return unique names that match ``[A-Za-z_][A-Za-z0-9_-]*``, and the id of each name.

    Other characters become ``_``. A name longer than ``limit`` is cut and ends in a hash of the id. If two ids
    would get the same name, both names end in a hash, so that an added operation never takes over a name that a
    user has approved for another one.

    Args:
        wanted: for each id, the text from which its name is made.
        limit: maximum length in characters. Many hosts allow 64, including a prefix that they add themselves.

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
    """Return the names of operations by Python attribute, such as ``pulls/create`` by ``pulls_create``.

    An ASCII identifier that is not a keyword and does not start with ``_`` is its own attribute. In other names,
    each run of characters except letters and digits becomes ``_``, a first digit gets the prefix ``n_``, and a
    result without ``_`` gets one at its end: ``class_``. If the attribute is already taken, or several names would
    get it, it also ends in a hash of the name.
    """
    return _identifiers(names, lambda name: not name.startswith("_"), "")


def keyword_names(fields: Iterable[str]) -> dict[str, str]:
    """Return the fields of an input by keyword argument; see `attribute_names`.

    A field that cannot be a keyword, such as ``from`` or ``X-Api-Key``, gets a keyword that ends in ``_``:
    ``from_``, ``X_Api_Key_``. So do ``self`` and ``timeout``, which are parameters of the method itself.
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
        """Return the spec of an operation, or ``None`` if the id is unknown."""

    def specs(self) -> Sequence[OperationSpec]:
        """Return the specs of all operations."""


_known: WeakKeyDictionary[Any, tuple[Sequence[OperationSpec], _Tables]] = WeakKeyDictionary()


def attributes_of(registry: Listed, namespace: str) -> dict[str, str]:
    """Return the `attribute_names` of a namespace's operations, cached until the registry changes."""
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
    """Return the name of the operation for an attribute; ``attribute`` unchanged if no operation matches."""
    if registry.get_spec(f"{namespace}.{attribute}") is not None:
        return attribute
    return attributes_of(registry, namespace).get(attribute, attribute)


def input_of(registry: Listed, operation_id: str, input: Any, fields: dict[str, Any]) -> Any:
    """Return ``input``, or the input object made from the keyword arguments ``fields``; see `keyword_names`.

    Only keywords that end in ``_`` are renamed. Raises `CallError` ``VALIDATION_ERROR`` if ``input`` and
    ``fields`` are both given.
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
    """Return the schemas of an input's fields by name, including ``anyOf`` branches, and the required names."""
    schema = spec.input_schema.bundled()
    definitions = schema.get("$defs", {}) if isinstance(schema, Mapping) else {}
    return object_members(schema, definitions, branches=True)
