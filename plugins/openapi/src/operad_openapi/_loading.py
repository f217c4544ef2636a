"""Load a document and the files that it refers to, as untrusted input."""

from __future__ import annotations

import asyncio
import copy
import os
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from operad import CallError, SourceError
from operad_auth.http.urls import shown_url
from operad_openapi._document.document import Document, Json
from operad_openapi._document.grafting import graft_external, has_external
from operad_openapi._document.listing import Diagnostic
from operad_openapi._document.origins import origin_of
from operad_openapi._document.overlays import apply_overlay
from operad_openapi._document.parsing import parse, parse_aside
from operad_openapi._http.client import HTTPClient
from operad_openapi._http.reading import read_body
from operad_openapi._request.request import Request
from operad_openapi.config import HTTPServiceConfig, is_http
from operad_openapi.fs import LocalFS, OpenAPIFS, read_file

_AT_ONCE = 16
_BATCH = 64

Spec = Mapping[str, Any] | str | os.PathLike[str]


def is_url(spec: object) -> bool:
    """Return True if ``spec`` is a text that begins with ``http://`` or ``https://``."""
    return isinstance(spec, str) and spec.partition("://")[0].lower() in ("http", "https")


class Loader:
    """The loader of a document and of the files that it refers to.

    Args:
        config: the configuration, with limits and allowed external references.
        client: the HTTP client that reads URLs.
        fs: the file system that files are read from; default: the local one.
    """

    def __init__(self, config: HTTPServiceConfig, client: HTTPClient, fs: OpenAPIFS | None = None) -> None:
        self._config = config
        self._client = client
        self._fs = fs or LocalFS()
        self.diagnostics: list[Diagnostic] = []
        """Warnings about references that were not followed, and overlays without effect."""
        self.size = 0
        """The number of bytes that were read."""

    async def load(self, spec: Spec) -> Document:
        """Return the document ``spec``, which is a mapping, a path or a URL.

        Raises:
            SourceError: the document cannot be read or is not an OpenAPI document, or an overlay or
                ``patch`` failed.
        """
        if isinstance(spec, Mapping):
            if not self._config.overlays and self._config.patch is None:
                return Document(spec if isinstance(spec, dict) else dict(spec))
            return Document(await self._changed(copy.deepcopy(dict(spec))))
        if is_url(spec):
            location = str(spec)
            data = await self._read_url(location)
        else:
            location = await self._fs.realpath(_absolute(os.fspath(spec)))
            data = await self._read_file(location)
        root: Any = await parse_aside(data, location)
        text: bytes | None = data
        if self._config.overlays or self._config.patch is not None:
            root, text = await self._changed(root), None  # the text is no longer the document
        document = Document(root, location, text)
        if has_external(text, document.root):
            roots = await self._roots(location)
            limit = self._config.limits.documents
            await graft_external(
                document, lambda targets: self._read_all(targets, location, roots), self._report, limit=limit
            )
        return document

    async def _changed(self, root: Any) -> Any:
        """Return the document after all overlays and ``patch``. Raises `SourceError` if one of them fails."""
        Document(root)  # before anything is changed it has to be one
        for overlay in self._config.overlays:
            where = "an overlay"
            if not isinstance(overlay, Mapping):
                where = str(overlay)
                data = await (self._read_url(where) if is_url(overlay) else self._read_file(_absolute(where)))
                overlay = await parse_aside(data, where)
            self.diagnostics += apply_overlay(root, overlay, where)
        if self._config.patch is not None:
            root = patched(self._config.patch, root)
        return root

    def _report(self, reason: str) -> None:
        self.diagnostics.append(Diagnostic("#", reason, "warning"))

    async def _roots(self, main: str) -> list[str]:
        """Return the folders that files may be read from."""
        own = [] if is_url(main) else [posixpath.dirname(main)]
        return own + [await self._fs.realpath(folder) for folder in self._config.external if not is_url(folder)]

    async def _read_all(self, targets: Sequence[str], main: str, roots: list[str]) -> list[Any]:
        """Return the parsed targets of external references, or a `SourceError` for each that cannot be read."""
        gate = asyncio.Semaphore(_AT_ONCE)
        local: list[str] = []
        others: dict[str, asyncio.Task[Any]] = {}
        async with asyncio.TaskGroup() as group:
            for target in targets:
                if urlsplit(target).scheme or type(self._fs) is not LocalFS:
                    others[target] = group.create_task(self._content(target, main, roots, gate))
                else:
                    local.append(target)
            # One thread for many files: to change threads for each takes longer than to read most of them.
            found: dict[str, Any] = {}
            for first in range(0, len(local), _BATCH):
                batch = local[first : first + _BATCH]
                found |= await asyncio.to_thread(self._local_contents, batch, roots)
        found |= {target: task.result() for target, task in others.items()}
        return [found[target] for target in targets]

    def _local_contents(self, targets: list[str], roots: list[str]) -> dict[str, Any]:
        """Return the parsed content of each file, or a `SourceError`; runs in a thread."""
        contents: dict[str, Any] = {}
        limit = self._config.limits.document_bytes
        for target in targets:
            try:
                path = _realpath(target)
                self._check_folder(target, path, roots)
                contents[target] = parse(self._taken(path, _read(path, limit)), target)
            except SourceError as error:
                contents[target] = error
        return contents

    async def _content(self, target: str, main: str, roots: list[str], gate: asyncio.Semaphore) -> Any:
        async with gate:
            try:
                return await parse_aside(await self._fetch(target, main, roots), target)
            except SourceError as error:
                return error

    async def _fetch(self, target: str, main: str, roots: list[str]) -> bytes:
        """Return the content that an external reference names. Raises `SourceError` if it is not allowed."""
        config = self._config
        scheme = urlsplit(target).scheme
        if scheme in ("http", "https"):
            allowed = (
                config.trusted
                or (is_url(main) and origin_of(target) == origin_of(main))
                or any(is_url(prefix) and _is_below(target, prefix) for prefix in config.external)
            )
            if not allowed:
                raise SourceError(f"{origin_of(target)} may not be read; add it to external to allow it")
            return await self._read_url(target)
        if scheme == "file":
            target = unquote(urlsplit(target).path)
        elif scheme:
            raise SourceError(f'expected a path or a URL of http, https or file, got the scheme "{scheme}"')
        path = await self._fs.realpath(target)
        self._check_folder(target, path, roots)
        return await self._read_file(path)

    def _check_folder(self, target: str, path: str, roots: list[str]) -> None:
        if not self._config.trusted and not any(_is_within(path, root) for root in roots):
            raise SourceError(f"{target} is outside the document's folder; add its folder to external to allow it")

    async def _read_file(self, path: str) -> bytes:
        try:
            data = await self._fs.read(path, self._config.limits.document_bytes)
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from error
        return self._taken(path, data)

    def _taken(self, path: str, data: bytes) -> bytes:
        limit = self._config.limits.document_bytes
        if len(data) > limit:
            raise SourceError(f"{path} is larger than {limit} bytes (limit document_bytes)")
        self.size += len(data)
        return data

    async def _read_url(self, url: str) -> bytes:
        from multidict import CIMultiDict

        config = self._config
        if not is_http(url):
            raise SourceError(f"{shown_url(url)} cannot be read: expected a URL with a valid host and port")
        headers: CIMultiDict[str] = CIMultiDict({"Accept": "application/json, application/yaml, */*;q=0.5"})
        home = url if config.base_url is None else config.base_url
        if origin_of(url) in {origin_of(home), *map(origin_of, config.origins)}:
            headers.update(config.headers)
        try:
            response = await self._client.send(Request("GET", url, headers, [], idle_timeout=config.timeout))
            try:
                if response.status != 200:
                    raise SourceError(
                        f"{shown_url(url)}: expected a document with HTTP 200, got HTTP {response.status}"
                    )
                data = await read_body(response, config.limits.document_bytes, "document_bytes")
                self.size += len(data)
                return data
            finally:
                response.release()
        except CallError as error:
            raise SourceError(f"{shown_url(url)} cannot be read: {error.message}") from error


def patched(patch: Callable[[Json], Json | None], root: Json) -> Json:
    """Return the document that ``patch`` returns, or ``root``, changed in place, if it returns ``None``.

    Raises `SourceError` if ``patch`` raises an exception.
    """
    try:
        found = patch(root)
    except Exception as error:
        raise SourceError(f"patch raised {type(error).__name__}: {error}") from error
    return root if found is None else found


def _realpath(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _read(path: str, limit: int) -> bytes:
    try:
        return read_file(path, limit)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


_ADDRESS = re.compile(r"/((?:www\.[\w.-]+|(?:[\w-]+\.)+(?:com|org|net|io|dev))/.+)")


def _unreadable(path: str, error: OSError | ValueError) -> SourceError:
    address = _ADDRESS.search(path) if isinstance(error, FileNotFoundError) else None
    meant = f'; did you mean "https://{address[1]}"?' if address else ""
    return SourceError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}{meant}")


def _is_within(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")


def _is_below(url: str, prefix: str) -> bool:
    """Return True if ``url`` is ``prefix`` or below it: not another host that begins with the same letters."""
    if origin_of(url) != origin_of(prefix):
        return False
    path = posixpath.normpath(unquote(urlsplit(url).path) or "/")
    return path == urlsplit(prefix).path or _is_within(path, urlsplit(prefix).path or "/")


def _absolute(path: str) -> str:
    """Return ``path`` as an absolute path without using the disk, because an `OpenAPIFS` may have other files."""
    return posixpath.normpath(path if path.startswith("/") else f"{Path.cwd()}/{path}")
