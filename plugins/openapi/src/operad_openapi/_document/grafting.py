"""External references: what may be read is put into the document, and references to it become pointers."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from operad import SourceError
from operad_openapi._document.document import _EXTERNAL, _MAX_DOCUMENTS, GRAFTS, Document, Json
from operad_openapi._document.parsing import parse


def has_external(text: bytes | None, root: Any) -> bool:
    """Whether a reference leaves the document: a guess that errs to yes."""
    if text is not None:
        return _EXTERNAL.search(text) is not None
    return any(not node["$ref"].startswith("#") for node in _references(root))


def _references(root: Any) -> Iterator[Json]:
    """The objects with a textual ``$ref``, by an iterative walk; aliased nodes count once."""
    stack, seen = [root], set()
    while stack:
        node = stack.pop()
        if isinstance(node, (dict, list)):
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, dict):
                if isinstance(node.get("$ref"), str):
                    yield node
                stack.extend(node.values())
            else:
                stack.extend(node)


Fetch = Callable[[str], Awaitable[bytes]]


async def graft_external(document: Document, fetch: Fetch, report: Callable[[str], None]) -> None:
    """Read what ``document`` refers to outside itself, and turn those references into pointers.

    Args:
        document: has to be this loader's own: its references are rewritten.
        fetch: reads a URL or path. Raises `SourceError` for what must not or cannot be read.
        report: is told of each reference that stays as it is, with the reason.
    """
    own = document.root.get("$self") if isinstance(document.root.get("$self"), str) else None
    base = urljoin(document.base or "", own) if own else (document.base or "")
    known: dict[str, str] = {base: "", (document.base or ""): ""}  # location -> prefix of its pointers
    grafts: dict[str, Any] = {}
    queue: list[tuple[str, str, Any]] = [(base, "", document.root)]
    refused: set[str] = set()
    while queue:
        location, prefix, root = queue.pop()
        for node in list(_references(root)):
            target, _, fragment = node["$ref"].partition("#")
            if not target:
                if prefix:
                    node["$ref"] = f"#{prefix}{fragment}"
                continue
            absolute = _join(location, target)
            if absolute in refused:
                continue
            if absolute not in known:
                try:
                    if len(grafts) >= _MAX_DOCUMENTS:
                        raise SourceError(f"more than {_MAX_DOCUMENTS} external documents")
                    content = parse(await fetch(absolute), absolute)
                except SourceError as error:
                    refused.add(absolute)
                    report(f'reference "{node["$ref"]}" in {location or "the document"}: {error}')
                    continue
                key = str(len(grafts))
                grafts[key] = content
                known[absolute] = f"/{GRAFTS}/{key}"
                queue.append((absolute, known[absolute], content))
            node["$ref"] = f"#{known[absolute]}{fragment}"
    if grafts:
        document.root[GRAFTS] = grafts


def _join(base: str, target: str) -> str:
    """``target`` relative to ``base``; both may be URLs or absolute paths."""
    if urlsplit(target).scheme:
        return target
    if urlsplit(base).scheme:
        return urljoin(base, target)
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(target)))
