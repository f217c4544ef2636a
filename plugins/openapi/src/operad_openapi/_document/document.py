"""An OpenAPI document. It is parsed once and not copied; references are resolved when they are used.

When a document is loaded, each file that it refers to and that may be read becomes a member of
``x-operad-documents``, and the references to the file become pointers into that member.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from operad import SourceError

GRAFTS = "x-operad-documents"
_ONLY = re.compile(rb"""Only["']?\s*:""")
_MAX_HOPS = 64

Json = dict[str, Any]


class PointerError(LookupError):
    """The error for a reference that has no target or leads in a circle; the message names the reference."""


class Document:
    """An OpenAPI document of any version.

    Args:
        root: the parsed document.
        base: the URL or absolute path that the document came from; ``None`` if it was passed as an object.
        text: the bytes that ``root`` was parsed from, or ``None``; searching them is faster than walking the tree.

    Raises:
        SourceError: ``root`` is not an OpenAPI document of version 2.0 or 3.x.
    """

    __slots__ = ("_text_flags", "base", "children", "root", "version")

    def __init__(self, root: Any, base: str | None = None, text: bytes | None = None) -> None:
        where = base or "the document"
        if not isinstance(root, dict):
            raise SourceError(f"{where}: expected an object, got {type(root).__name__}")
        version = root.get("openapi", root.get("swagger"))
        if isinstance(version, (int, float)) and not isinstance(version, bool):
            version = str(version)  # YAML's `swagger: 2.0`
        if not isinstance(version, str) or not re.match(r"(2\.0|3\.[0-9])", version):
            got = "neither" if version is None else f"{version!r:.100}"
            raise SourceError(
                f'{where}: expected an OpenAPI document with `openapi: 3.x` or `swagger: "2.0"`, got {got}'
            )
        self.root: Json = root
        self.version = version[:3]
        self.base = base
        self.children: dict[str, list[str]] | None = None
        """Reference -> references to named schemas with it in their ``allOf``; ``None`` until it is needed."""
        self._text_flags: tuple[bool, bool] | None = None
        if text is not None:
            # Most documents have neither word, and one search shows that. The others need one more for each.
            has_any = occurs(_ONLY, text)
            self._text_flags = (has_any and b"readOnly" in text, has_any and b"writeOnly" in text)

    @property
    def dialect(self) -> str:
        """The dialect for `operad.from_schema`: ``openapi-3.0`` for 2.0 and 3.0, else ``openapi-3.1``."""
        return "openapi-3.0" if self.version in ("2.0", "3.0") else "openapi-3.1"

    def may_use(self, keyword: str) -> bool:
        """Return True if ``readOnly`` or ``writeOnly`` (``keyword``) may occur in the document."""
        if self._text_flags is None:
            return True
        return self._text_flags[0 if keyword == "readOnly" else 1]

    def lookup(self, reference: str) -> Any:
        """Return the target of a reference such as ``#/a/b``. A target that is itself a reference is not followed.

        Raises:
            PointerError: the reference is not within the document, or its target is missing.
        """
        if not reference.startswith("#"):
            raise PointerError(f'external reference "{reference:.200}" was not loaded')
        node: Any = self.root
        for token in pointer_tokens(reference[1:]):
            if isinstance(node, dict) and token in node:
                node = node[token]
            elif isinstance(node, list) and token.isdecimal() and int(token) < len(node):
                node = node[int(token)]
            else:
                raise PointerError(f'reference "{reference:.200}" has no target: "{token:.200}" is missing')
        return node

    def resolve(self, node: Any) -> Any:
        """Return ``node``, or the final target of its ``$ref``.

        Raises:
            PointerError: references lead in a circle, or one of them has no target.
        """
        if node.__class__ is dict and "$ref" not in node:
            return node
        for _ in range(_MAX_HOPS):
            if not isinstance(node, dict) or not isinstance(reference := node.get("$ref"), str):
                return node
            node = self.lookup(reference)
        raise PointerError(f'reference "{reference:.200}" leads in a circle')


def occurs(pattern: re.Pattern[bytes], text: bytes) -> bool:
    """Return True if ``pattern``, which must begin with a literal byte, matches somewhere in a large text.

    It takes half the time of ``pattern.search``, which tries each byte: `bytes.find` skips to the literal one.
    """
    first, match = pattern.pattern.lstrip(b"\\")[:1], pattern.match
    at = text.find(first)
    while at >= 0:
        if match(text, at):
            return True
        at = text.find(first, at + 1)
    return False


def pointer_tokens(pointer: str) -> list[str]:
    """Return the tokens of a JSON pointer in a URL fragment (RFC 6901, 6).

    Raises `PointerError` if ``pointer`` does not begin with "/".
    """
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise PointerError(f'expected a JSON pointer such as "#/components", got "#{pointer:.200}"')
    if "%" in pointer:
        pointer = unquote(pointer)
    tokens = pointer[1:].split("/")
    if "~" in pointer:
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in tokens]
    return tokens
