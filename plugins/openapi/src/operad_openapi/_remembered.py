"""Cache the part of a large document that one operation needs, for commands that make one call.

The cached part goes through the same checks as a document. It is used only while the file of the document is
unchanged (`operad_auth.http.cache_files.recall`), and contains nothing of the configuration.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from operad_auth.http.cache_files import recall, remember
from operad_openapi.config import HTTPServiceConfig

if TYPE_CHECKING:
    from operad_openapi._document.document import Document
    from operad_openapi.operations import OpenAPIOperations

_KIND = "openapi"
_SMALLEST = 256 * 1024
"""The minimum size in bytes of a document that is cached; a smaller one is read as quickly."""
_LARGEST = 1024 * 1024
"""The maximum length of a cached part in characters."""
_JUST_NOW = 2.0
"""Seconds within which a file may be written twice without a new modification time."""
_OF_ALL = (
    "credentials", "exclude", "include", "media_types", "names", "operation_types", "overlays", "pagination",
    "patch", "path_parameters", "servers", "slashes",
)  # fmt: skip
"""Options that name operations or change the document, and so need the whole document."""


class Remembered:
    """A cache on disk for the part of a document that one operation needs.

    Args:
        path: the path of the document.
        config: the source's options.
        name: the name of the operation, without the namespace.
    """

    def __init__(self, path: Path, config: HTTPServiceConfig, name: str) -> None:
        defaults = attrs.fields_dict(HTTPServiceConfig)
        self._path = path
        self._config = config
        self._name = name
        self._is_usable = all(getattr(config, option) == _default(defaults[option]) for option in _OF_ALL)
        self._key = self._now()

    def _now(self) -> list[Any] | None:
        """Return a key for the document's file and this program's version; ``None`` if it must not be cached."""
        try:
            own, file = os.stat(__file__), os.stat(self._path)
        except OSError:
            return None
        if file.st_size < _SMALLEST or abs(time.time() - file.st_mtime) < _JUST_NOW:
            return None
        whole = [file.st_mtime_ns, file.st_ctime_ns, file.st_size, file.st_ino, file.st_dev]
        return [own.st_mtime_ns, str(self._path), whole, self._name]

    def read(self) -> OpenAPIOperations | None:
        """Return the operation, with its streaming twin; ``None`` if the cache lacks it or is out of date."""
        from operad import SourceError
        from operad_openapi._document.document import Document
        from operad_openapi.operations import build_operations

        if not self._is_usable or self._key is None:
            return None
        try:
            found = Document(recall(_KIND, self._slot, self._key), os.path.realpath(self._path))
            operations = build_operations(found, self._config)
        except SourceError:
            return None
        return operations if self._name in operations.built else None

    def write(self, document: Document, operations: OpenAPIOperations, size: int) -> None:
        """Cache the part of ``document`` that the operation needs, if possible; ``size`` is its size in bytes."""
        from operad_openapi._circle import is_operads
        from operad_openapi._document.document import GRAFTS
        from operad_openapi._document.listing import METHODS
        from operad_openapi._document.pruning import pruned, without_siblings

        if self._name not in operations.built:
            return
        raw = operations.built[self._name].raw
        method = raw.method.lower()
        # Of several files, one could change unseen; what a mark means shows in the whole document.
        if self._key is None or self._now() != self._key or size != self._key[2][2]:
            return
        if not self._is_usable or method not in METHODS or GRAFTS in document.root or is_operads(document):
            return
        item = {**without_siblings(raw), method: raw.node}
        root = {**pruned(document, [raw]), "paths": {raw.path: item}}
        try:
            text = json.dumps(root, allow_nan=False)
            if len(text) <= _LARGEST and json.loads(text) == root:
                remember(_KIND, self._slot, self._key, root)
        except (ValueError, TypeError, RecursionError):  # YAML holds more than JSON
            return

    @property
    def _slot(self) -> list[str]:
        return [str(self._path), self._name]


def _default(field: attrs.Attribute[Any]) -> Any:
    default: Any = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]  # a class
