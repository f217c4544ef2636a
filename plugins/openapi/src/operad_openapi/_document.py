"""A document: parsed once, never copied; references are followed as pointers when something needs them.

External references are grafted when the document is loaded: each file that may be read becomes a member of
``x-operad-documents``, and the references to it become pointers. After that there is one document.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from operad.errors import SourceError
from operad_openapi._yaml import YAMLError, load_yaml

GRAFTS = "x-operad-documents"
_EXTERNAL = re.compile(rb'\$ref["\']?\s*:\s*["\']?[^#"\'\s]')
_ONLY = re.compile(rb"""Only["']?\s*:""")
_MAX_HOPS = 64
_MAX_DOCUMENTS = 500

Json = dict[str, Any]


class PointerError(LookupError):
    """A reference leads nowhere; the message names it."""


def parse(data: bytes, where: str) -> Any:
    """The value of a JSON or YAML text.

    JSON is tried first wherever the text looks like it: PyYAML refuses some JSON, and is 40 times slower.

    Raises:
        SourceError: the text is neither, or is nested too deeply.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    reason = ""
    if data[:1024].lstrip()[:1] in (b"{", b"["):
        try:
            return msgspec.json.decode(data)
        except RecursionError as error:
            raise SourceError(f"{where}: nested too deeply for a JSON document") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            reason = f"not JSON ({error}), and "
    try:
        return load_yaml(data)
    except YAMLError as error:
        raise SourceError(f"{where}: {reason}not YAML: {error}") from error


class Document:
    """An OpenAPI document of any version.

    Args:
        root: the parsed document.
        base: the URL or absolute path that it came from, or ``None``.
        text: the bytes that it was parsed from, if any: a look at them spares walks through the tree.
    """

    __slots__ = ("_text_flags", "base", "root", "version")

    def __init__(self, root: Any, base: str | None = None, text: bytes | None = None) -> None:
        where = base or "the document"
        if not isinstance(root, dict):
            raise SourceError(f"{where}: expected an object, got {type(root).__name__}")
        version = root.get("openapi", root.get("swagger"))
        if isinstance(version, (int, float)) and not isinstance(version, bool):
            version = str(version)  # YAML's `swagger: 2.0`
        if not isinstance(version, str) or not re.match(r"(2\.0|3\.[0-9])", version):
            raise SourceError(
                f'{where}: expected an OpenAPI document with `openapi: 3.x` or `swagger: "2.0"`, got {version!r}'
            )
        self.root: Json = root
        self.version = version[:3]
        self.base = base
        self._text_flags: tuple[bool, bool] | None = None
        if text is not None:
            # One look tells of most documents that they have neither; each of the others takes as long again.
            has_any = _ONLY.search(text) is not None
            self._text_flags = (has_any and b"readOnly" in text, has_any and b"writeOnly" in text)

    @property
    def dialect(self) -> str:
        """The schema dialect, as `operad.from_schema` names it."""
        return "openapi-3.0" if self.version in ("2.0", "3.0") else "openapi-3.1"

    def may_use(self, keyword: str) -> bool:
        """Whether ``readOnly`` or ``writeOnly`` can occur in the document."""
        if self._text_flags is None:
            return True
        return self._text_flags[0 if keyword == "readOnly" else 1]

    def lookup(self, reference: str) -> Any:
        """What ``#/a/b`` points to, one step only.

        Raises:
            PointerError: the reference is not within the document, or its target is missing.
        """
        if not reference.startswith("#"):
            raise PointerError(f'external reference "{reference}" was not loaded')
        node: Any = self.root
        for token in pointer_tokens(reference[1:]):
            if isinstance(node, dict) and token in node:
                node = node[token]
            elif isinstance(node, list) and token.isdecimal() and int(token) < len(node):
                node = node[int(token)]
            else:
                raise PointerError(f'"{reference}" does not exist (no "{token}")')
        return node

    def resolve(self, node: Any) -> Any:
        """``node``, or what its chain of ``$ref`` ends at.

        Raises:
            PointerError: the chain leads nowhere, or in a circle.
        """
        if node.__class__ is dict and "$ref" not in node:
            return node
        for _ in range(_MAX_HOPS):
            if not isinstance(node, dict) or not isinstance(reference := node.get("$ref"), str):
                return node
            node = self.lookup(reference)
        raise PointerError(f'"{reference}" leads in a circle')


def pointer_tokens(pointer: str) -> list[str]:
    """The tokens of a JSON pointer in a URL fragment (RFC 6901, 6)."""
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise PointerError(f'"#{pointer}" is no JSON pointer')
    if "%" in pointer:
        pointer = unquote(pointer)
    tokens = pointer[1:].split("/")
    if "~" in pointer:
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in tokens]
    return tokens


def escape_token(token: str) -> str:
    """A token as it stands in a JSON pointer."""
    return token.replace("~", "~0").replace("/", "~1")


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
