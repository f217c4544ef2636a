"""List the operations of a document, in one form for all versions of OpenAPI.

`list_operations` only walks the paths. `parameters_of`, `body_of`, `responses_of` and `server_of` read the rest
when an operation is first used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from operad.plugin import record
from operad_openapi._document.document import Document, Json, PointerError

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_METHOD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")


class NotUsableError(ValueError):
    """The error for a part of a document that cannot be used; the message states which one and why."""


@attrs.frozen(eq=False, repr=False)
class RawOperation:
    """An operation as it is in the document."""

    method: str
    """The method in upper case; a method of ``additionalOperations`` as it is written."""
    path: str
    item: Json
    """The path item."""
    node: Json
    """The operation object."""
    pointer: str
    """The place of the operation in the document, such as ``#/paths/~1pets/get``."""

    @property
    def placeholders(self) -> list[str]:
        """The names in braces in the path of the operation, such as ``id`` of ``/pets/{id}``."""
        return _PLACEHOLDER.findall(self.path.partition("#")[0].partition("?")[0]) if "{" in self.path else []


@record
class Diagnostic:
    """A problem that was found while a document was loaded."""

    pointer: str
    """A JSON pointer to the place in the document."""
    reason: str
    severity: str = "error"
    """``error`` if an operation was left out, else ``warning``."""

    def __str__(self) -> str:
        return f"{self.pointer}: {self.reason}"


def list_operations(document: Document) -> Iterator[RawOperation | Diagnostic]:
    """Yield the operations of a document, and a `Diagnostic` for each path or operation that cannot be used."""
    paths = document.root.get("paths")
    if paths is None:
        return
    if not isinstance(paths, dict):
        yield Diagnostic("#/paths", f"expected an object, got {type(paths).__name__}")
        return
    for path, raw_item in paths.items():
        if not isinstance(path, str):
            reason = f"expected a path as text, got {path!r} ({type(path).__name__})"
            yield Diagnostic(f"#/paths/{path}", reason)
            continue
        if path.startswith("x-"):
            continue
        pointer = "#/paths/" + path.replace("~", "~0").replace("/", "~1")
        if not path.startswith("/"):
            yield Diagnostic(pointer, f'expected a path that begins with "/", got {path!r:.100}')
            continue
        try:
            item = _path_item(document, raw_item)
        except (PointerError, NotUsableError) as error:
            yield Diagnostic(pointer, str(error))
            continue
        for key, node in item.items():
            if key in METHODS:
                yield _operation(document, key.upper(), path, item, node, f"{pointer}/{key}")
            elif key == "additionalOperations" and isinstance(node, dict):
                yield from _additional_operations(document, path, item, node, f"{pointer}/{key}")
            elif str(key).lower() in METHODS:
                yield Diagnostic(f"{pointer}/{key}", f'expected a method in lower case, got "{key}"')


def _path_item(document: Document, raw: Any) -> Json:
    item = document.resolve(raw)
    if not isinstance(item, dict):
        raise NotUsableError(f"expected an object, got {type(item).__name__}")
    if item is not raw and len(raw) > 1:  # 3.x: members beside a path item's $ref are added to it
        return {**item, **{key: value for key, value in raw.items() if key != "$ref"}}
    return item


def _additional_operations(
    document: Document, path: str, item: Json, nodes: Mapping[Any, Any], pointer: str
) -> Iterator[RawOperation | Diagnostic]:
    for method, node in nodes.items():
        where = f"{pointer}/{method}"
        if isinstance(method, str) and _METHOD.match(method):
            yield _operation(document, method, path, item, node, where)
        else:
            yield Diagnostic(where, f"expected the name of a method, got {method!r:.100}")


def _operation(
    document: Document, method: str, path: str, item: Json, node: Any, pointer: str
) -> RawOperation | Diagnostic:
    """Return the operation that ``node`` is or, against the specification, refers to."""
    try:
        node = document.resolve(node)
    except PointerError as error:
        return Diagnostic(pointer, str(error))
    if isinstance(node, dict):
        return RawOperation(method, path, item, node, pointer)
    return Diagnostic(pointer, f"expected an object, got {type(node).__name__}")
