"""Read the documents that external references name, and turn these references into pointers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import attrs

from operad import SourceError
from operad_openapi._document.document import GRAFTS, Document, Json, occurs

_EXTERNAL = re.compile(rb'\$ref["\']?\s*:\s*["\']?[^#"\'\s]')
# Objects whose keys are names from the document, not words of the specification.
_NAMED = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "schemas", "paths", "webhooks"}
    | {"responses", "parameters", "requestBodies", "headers", "securitySchemes", "securityDefinitions", "links"}
    | {"callbacks", "pathItems", "mediaTypes", "content", "encoding", "additionalOperations"}
)
# Keys that hold values and prose: a "$ref" in it is data.
_DATA = frozenset({"example", "examples", "default", "enum", "const", "value", "description", "summary"})

Read = Callable[[Sequence[str]], Awaitable[list[Any]]]
"""Locations -> the parsed content of each, or a `SourceError` if it cannot or must not be read."""


@attrs.frozen(eq=False, repr=False)
class _Reference:
    """A place of the document that holds a reference."""

    holder: Json
    key: str
    is_extension: bool
    """Whether it is in an extension (``x-…``), in which a broken reference causes no warning."""

    @property
    def text(self) -> str:
        return str(self.holder[self.key])


def has_external(text: bytes | None, root: Any) -> bool:
    """Return True if a reference may lead out of the document; return False if certainly none does."""
    if text is not None:
        return occurs(_EXTERNAL, text)
    return any(not reference.text.startswith("#") for reference in _references(root, is_map=False))


def _references(root: Any, *, is_map: bool) -> Iterator[_Reference]:
    """Yield the references below ``root``, by an iterative walk; nodes that YAML aliases share are visited once.

    Args:
        root: a document, or a part of one.
        is_map: whether the keys of ``root`` itself are names.
    """
    stack: list[tuple[Any, bool, bool]] = [(root, is_map, False)]
    seen = set()
    while stack:
        node, named, extension = stack.pop()
        if not isinstance(node, (dict, list)) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, list):
            stack.extend((item, False, extension) for item in node)
            continue
        if isinstance(node.get("$ref"), str):
            yield _Reference(node, "$ref", extension)
        mapping = node.get("mapping")
        if isinstance(mapping, dict) and "propertyName" in node:
            for name, target in mapping.items():
                if isinstance(target, str):
                    yield _Reference(mapping, name, extension)
        for key, child in node.items():
            if not named and key in _DATA:
                continue
            is_named = not named and key in _NAMED
            stack.append((child, is_named, extension or (not named and str(key).startswith("x-"))))


async def graft_external(
    document: Document, read: Read, report: Callable[[str], None], *, limit: int = 10_000
) -> None:
    """Read the documents that ``document`` refers to, and replace the references by pointers.

    Args:
        document: the document, changed in place: its references are rewritten.
        read: the function that reads documents; see `Read`.
        report: the function that is called with the reason for each document that cannot be read.
        limit: the maximum number of documents to read.
    """
    await _Grafting(document, read, report, limit).run()


@attrs.frozen(eq=False, repr=False)
class _Part:
    """A document whose references are still to be followed."""

    location: str
    prefix: str
    """The start of pointers into it; empty for the main document."""
    root: Any
    is_map: bool = False


class _Grafting:
    """Follows references in waves: the documents that one wave refers to are read together and form the next."""

    def __init__(self, document: Document, read: Read, report: Callable[[str], None], limit: int) -> None:
        own = document.root.get("$self") if isinstance(document.root.get("$self"), str) else None
        base = document.base or ""
        self._document = document
        self._read_all = read
        self._report = report
        self._base = base
        if own:
            try:
                self._base = urljoin(base, own)
            except ValueError as error:
                report(f'$self: "{own:.200}" is not a URL: {error}')
        self._left = self._most = limit
        self._known: dict[str, str] = {self._base: "", base: ""}
        """Locations -> prefixes of pointers."""
        self._grafts: dict[str, Any] = {}
        self._refused: set[str] = set()

    async def run(self) -> None:
        wave = [_Part(self._base, "", self._document.root)]
        while wave:
            waiting: dict[str, list[tuple[_Reference, _Part, str]]] = {}
            for part in wave:
                for reference in list(_references(part.root, is_map=part.is_map)):
                    self._follow(reference, part, waiting)
            wave = await self._read(waiting)
        if self._grafts:
            self._document.root[GRAFTS] = self._grafts

    def _follow(
        self, reference: _Reference, part: _Part, waiting: dict[str, list[tuple[_Reference, _Part, str]]]
    ) -> None:
        """Turn a reference to a known document into a pointer; add any other reference to ``waiting``."""
        text = reference.text
        if reference.key != "$ref" and not _is_reference(text, part.root):
            if part.prefix and text in _component_schemas(part.root):
                reference.holder[reference.key] = f"#{part.prefix}/components/schemas/{text}"
            return
        target, _, fragment = text.partition("#")
        if not target:
            if part.prefix:
                reference.holder[reference.key] = f"#{part.prefix}{fragment}"
            return
        try:
            absolute = _join(part.location, target)
        except ValueError as error:
            absolute = target
            if target not in self._refused and not reference.is_extension:
                self._report(f'reference "{text:.200}" in {part.location or "the document"}: not a URL: {error}')
            self._refused.add(target)
        if absolute in self._refused:
            return
        if absolute in self._known:
            reference.holder[reference.key] = f"#{self._known[absolute]}{fragment}"
        else:
            waiting.setdefault(absolute, []).append((reference, part, fragment))

    async def _read(self, waiting: dict[str, list[tuple[_Reference, _Part, str]]]) -> list[_Part]:
        """Read the documents in ``waiting``, turn the references to them into pointers, and return them."""
        allowed = list(waiting)[: self._left]
        self._left -= len(allowed)
        contents = await self._read_all(allowed) if allowed else []
        beyond = SourceError(f"expected references to at most {self._most} files (limit documents), got more")
        contents += [beyond] * (len(waiting) - len(allowed))
        wave = []
        for (absolute, references), content in zip(waiting.items(), contents, strict=True):
            first, part, _ = references[0]
            if isinstance(content, SourceError):
                self._refused.add(absolute)
                if not all(reference.is_extension for reference, _, _ in references):
                    self._report(f'reference "{first.text:.200}" in {part.location or "the document"}: {content}')
                continue
            key = str(len(self._grafts))
            self._grafts[key] = content
            self._known[absolute] = prefix = f"/{GRAFTS}/{key}"
            for reference, _, fragment in references:
                reference.holder[reference.key] = f"#{prefix}{fragment}"
            # A file of which only parts are wanted is a collection of them, under names.
            is_map = all(fragment.strip("/") for _, _, fragment in references)
            wave.append(_Part(absolute, prefix, content, is_map))
        return wave


def _is_reference(text: str, root: Any) -> bool:
    """Return True if the value of a discriminator's mapping is a reference, not the name of a schema."""
    if text in _component_schemas(root):
        return False
    return text.startswith("#") or "/" in text or text.endswith((".json", ".yaml", ".yml"))


def _component_schemas(root: Any) -> Mapping[str, Any]:
    components = root.get("components") if isinstance(root, dict) else None
    schemas = components.get("schemas") if isinstance(components, dict) else None
    return schemas if isinstance(schemas, dict) else {}


def _join(base: str, target: str) -> str:
    """Return ``target`` relative to ``base``; both may be URLs or absolute paths."""
    if urlsplit(target).scheme:
        return target
    if urlsplit(base).scheme:
        return urljoin(base, target)
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(target)))
