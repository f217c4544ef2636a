"""Make operations from documents: `from_openapi`, `from_openapi_file` and `from_openapi_url`."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operad import SourceError
from operad_openapi._collecting import building
from operad_openapi._document.document import Document
from operad_openapi._document.listing import Diagnostic
from operad_openapi._document.overlays import apply_overlay
from operad_openapi._document.parsing import ASIDE_BYTES
from operad_openapi._http.client import HTTPClient
from operad_openapi._loading import Loader, Spec, is_url, patched
from operad_openapi.config import HTTPServiceConfig, shown_place
from operad_openapi.fs import OpenAPIFS
from operad_openapi.operations import OpenAPIOperations, build_operations


def from_openapi(document: Mapping[str, Any], config: HTTPServiceConfig) -> OpenAPIOperations:
    """Return the operations of a parsed document. References to other documents are not followed.

    Args:
        document: a document of OpenAPI 2.0, 3.0, 3.1 or 3.2; it must not be changed afterwards.
        config: the server, and options for its calls.

    Returns:
        A list of operations. Its ``diagnostics`` describe problems of the document, such as operations that cannot
        be used. Close the list (``aclose``) after the last call of its operations.

    Raises:
        SourceError: ``document`` is not an OpenAPI document, or an overlay or ``patch`` failed.
        ConfigError: the configuration does not fit the document: for example, it names an unknown operation.
    """
    root = document if isinstance(document, dict) else dict(document)
    found: list[Diagnostic] = []
    if config.overlays or config.patch is not None:
        root = copy.deepcopy(root)
        for overlay in config.overlays:
            if not isinstance(overlay, Mapping):
                raise SourceError(
                    "overlays: expected parsed overlays, because from_openapi reads no files, got "
                    f"{shown_place(overlay)}"
                )
            found += apply_overlay(root, overlay, "an overlay")
        root = root if config.patch is None else patched(config.patch, root)
    return _built(Document(root), config, found)


async def from_openapi_file(
    path: str | os.PathLike[str], config: HTTPServiceConfig, fs: OpenAPIFS | None = None
) -> OpenAPIOperations:
    """Return the operations of the JSON or YAML document at ``path``.

    Files that it refers to are read, too, if they are in its folder or the option ``external`` allows them.

    Args:
        path: the path of the document.
        config: the server, and options for its calls.
        fs: the file system that the files are read from; default: the local one.

    Raises:
        SourceError: the file cannot be read or is not an OpenAPI document, or an overlay or ``patch`` failed.
        ConfigError: the configuration does not fit the document: for example, it names an unknown operation.
    """
    return await load_operations(os.fspath(path), config, fs)


async def from_openapi_url(url: str, config: HTTPServiceConfig) -> OpenAPIOperations:
    """Return the operations of the document at ``url``.

    Its references to the same origin, and to URLs that the option ``external`` allows, are followed.

    Raises:
        SourceError: the URL cannot be read or does not return an OpenAPI document, or an overlay or ``patch``
            failed.
        ConfigError: the configuration does not fit the document: for example, it names an unknown operation.
    """
    if not is_url(url):
        raise SourceError(f"url: expected an http or https URL, got {shown_place(url)}")
    return await load_operations(url, config)


async def load_operations(spec: Spec, config: HTTPServiceConfig, fs: OpenAPIFS | None = None) -> OpenAPIOperations:
    """Return the operations of a document, given as a dict, a path or a URL.

    Raises:
        SourceError: the document cannot be read or is not an OpenAPI document, or an overlay or ``patch`` failed.
        ConfigError: the configuration does not fit the document: for example, it names an unknown operation.
    """
    document, loader = await load_document(spec, config, fs)
    return await _build(document, config, loader)


async def load_operation(path: Path, config: HTTPServiceConfig, name: str) -> OpenAPIOperations:
    """Return the operation ``name`` of a file if it is cached, else all operations, and cache ``name``.

    Raises the same errors as `load_operations`.
    """
    from operad_openapi._remembered import Remembered

    remembered = Remembered(path, config, name)
    if (operations := remembered.read()) is not None:
        return operations
    document, loader = await load_document(path, config, None)
    operations = await _build(document, config, loader)
    remembered.write(document, operations, loader.size)
    return operations


async def _build(document: Document, config: HTTPServiceConfig, loader: Loader) -> OpenAPIOperations:
    if loader.size < ASIDE_BYTES:
        return _built(document, config, loader.diagnostics)
    return await asyncio.to_thread(_built, document, config, loader.diagnostics)


def _built(document: Document, config: HTTPServiceConfig, found: list[Diagnostic]) -> OpenAPIOperations:
    with building():
        return build_operations(document, config, found)


async def load_document(spec: Spec, config: HTTPServiceConfig, fs: OpenAPIFS | None) -> tuple[Document, Loader]:
    """Return the document in a dict, file or URL, and its loader. Raises `SourceError` if it cannot be read."""
    client = HTTPClient(config, trusted=config.trusted)
    try:
        loader = Loader(config, client, fs)
        return await loader.load(spec), loader
    finally:
        await client.aclose()
