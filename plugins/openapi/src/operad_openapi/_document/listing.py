"""One normal form of operations, whatever the version of the document.

`list_operations` walks the paths once and looks at no more than it must; `parameters_of`, `body_of`,
`responses_of` and `servers_of` look at the rest when an operation is first used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import attrs

from operad_openapi._document.document import Document, Json, PointerError

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")


_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


class NotUsableError(ValueError):
    """A part of the document cannot be used; the message says which and why."""


@attrs.frozen(eq=False)
class RawOperation:
    """An operation as the document has it."""

    method: str
    """Upper case."""
    path: str
    item: Json
    """The path item."""
    node: Json
    """The operation object."""
    pointer: str
    """Where it stands: ``#/paths/~1pets/get``."""

    @property
    def placeholders(self) -> list[str]:
        """The names in braces of its path."""
        return _PLACEHOLDER.findall(self.path.partition("#")[0].partition("?")[0]) if "{" in self.path else []


@attrs.frozen
class Diagnostic:
    """Something of a document that could not be used, and why."""

    pointer: str
    """Where in the document: a JSON pointer."""
    reason: str
    severity: str = "error"
    """``error``: an operation is missing; ``warning``: it is there, with a defect of the document."""

    def __str__(self) -> str:
        return f"{self.pointer}: {self.reason}"


def list_operations(document: Document) -> Iterator[RawOperation | Diagnostic]:
    """The operations of a document, and what cannot be one."""
    paths = document.root.get("paths")
    if paths is None:
        return
    if not isinstance(paths, dict):
        yield Diagnostic("#/paths", f"expected an object, got {type(paths).__name__}")
        return
    for path, raw_item in paths.items():
        if path.startswith("x-"):
            continue
        pointer = "#/paths/" + path.replace("~", "~0").replace("/", "~1")
        if not path.startswith("/"):
            yield Diagnostic(pointer, 'a path has to start with "/"')
            continue
        try:
            item = _path_item(document, raw_item)
        except (PointerError, NotUsableError) as error:
            yield Diagnostic(pointer, str(error))
            continue
        yield from _item_operations(path, item, pointer)


def _path_item(document: Document, raw: Any) -> Json:
    item = document.resolve(raw)
    if not isinstance(item, dict):
        raise NotUsableError(f"expected an object, got {type(item).__name__}")
    if item is not raw and len(raw) > 1:  # 3.x: members beside a path item's $ref are added to it
        return {**item, **{key: value for key, value in raw.items() if key != "$ref"}}
    return item


def _item_operations(path: str, item: Json, pointer: str) -> Iterator[RawOperation | Diagnostic]:
    for key, node in item.items():
        if key in METHODS:
            if isinstance(node, dict):
                yield RawOperation(key.upper(), path, item, node, f"{pointer}/{key}")
            else:
                yield Diagnostic(f"{pointer}/{key}", f"expected an object, got {type(node).__name__}")
        elif key == "additionalOperations" and isinstance(node, dict):
            for method, more in node.items():
                if isinstance(more, dict) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", method):
                    yield RawOperation(method, path, item, more, f"{pointer}/{key}/{method}")
                else:
                    yield Diagnostic(f"{pointer}/{key}/{method}", "expected a method name and an operation object")
