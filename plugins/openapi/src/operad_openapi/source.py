"""The source ``openapi``, which loads a document for a registry."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from operad import ConfigError, SourceError
from operad.plugin import SourceContext, SourceSession, record
from operad_auth import provider_of
from operad_auth.http import RetryPolicy
from operad_openapi.config import HTTPOptions, HTTPServiceConfig, shown_place

if TYPE_CHECKING:
    from operad_auth import OAuthClient

_PATHS = ("upload_root", "tls_ca", "tls_cert", "tls_key")


@record(kw_only=True)
class OpenAPISourceConfig(HTTPOptions):
    """The options of the source ``openapi``: the document, and the options of `HTTPOptions`."""

    spec: dict[str, Any] | str | os.PathLike[str] = attrs.field(repr=shown_place)
    """A parsed document, a URL, or a path, which may be relative to the configuration's folder."""
    retries: RetryPolicy | int = 2  # type: ignore[assignment]  # a table or a number, as a configuration file has it
    """A policy, a table of its fields, or the number of attempts after the first."""
    fs: Any = None
    """An `OpenAPIFS` to read files from; default: the local file system."""


class OpenAPISession(SourceSession):
    """The operations of a document, and their HTTP session, which `aclose` closes."""

    def __init__(self, operations: Any) -> None:
        super().__init__(operations)
        self._loaded = operations
        self.title, self.instructions = operations.info.get("title"), operations.info.get("description")

    async def aclose(self) -> None:
        """Close the HTTP session; idempotent."""
        await self._loaded.aclose()


async def load(config: OpenAPISourceConfig, context: SourceContext) -> OpenAPISession:
    """Load the operations of a document.

    Raises:
        SourceError: the document cannot be read or is not an OpenAPI document, or an overlay or ``patch`` failed.
        ConfigError: options contradict each other, or name something that the document does not have.
    """
    from operad_openapi.api import load_operation, load_operations

    spec, service = _prepared(config, context)
    namespace, _, name = (context.operation or "").partition(".")
    if name and namespace == service.namespace and isinstance(spec, Path) and config.fs is None:
        return OpenAPISession(await load_operation(spec, service, name))
    return OpenAPISession(await load_operations(spec, service, config.fs))


async def login(config: OpenAPISourceConfig, context: SourceContext, account: str | None) -> OAuthClient:
    """Return the OAuth client with which a user logs in to a source.

    Raises:
        SourceError: the document cannot be read.
        ConfigError: the source needs no login, or no authorization server is known.
    """
    from operad_openapi._login import login_of

    spec, service = _prepared(config, context)
    return await login_of(spec, service, config.fs, account)


def _prepared(config: OpenAPISourceConfig, context: SourceContext) -> tuple[Any, HTTPServiceConfig]:
    """Return the document or its place, and the configuration; paths start at the configuration's folder."""
    from operad_openapi._loading import is_url

    spec: Any = config.spec
    if not isinstance(spec, (Mapping, str, os.PathLike)):
        raise SourceError(f"spec: expected a document, a path or a URL, got {type(spec).__name__}")
    if not isinstance(spec, Mapping) and not is_url(spec):
        spec = context.path(os.fspath(spec))
    shared = {field.name: getattr(config, field.name) for field in attrs.fields(HTTPOptions)}
    for name in _PATHS:
        if shared[name] is not None:
            shared[name] = str(context.path(shared[name]))
    shared["overlays"] = [
        item if isinstance(item, Mapping) or is_url(item) else str(context.path(os.fspath(item)))
        for item in config.overlays
    ]
    shared["external"] = [folder if is_url(folder) else str(context.path(folder)) for folder in config.external]
    namespace = context.namespace or _namespace_of(spec)
    caller, auth = None, config.auth
    if auth is not None and auth.type == "caller" and auth.provider is not None:
        if config.credentials_for is not None:
            raise ConfigError('auth: type = "caller" and credentials_for cannot be used together; remove one')
        caller, shared["auth"] = provider_of(context.registry, auth.provider), None
        if config.base_url is not None:
            caller.check(config.base_url)
    return spec, HTTPServiceConfig(**shared, namespace=namespace, trusted=context.trusted, caller=caller)


def _namespace_of(spec: Any) -> str:
    """Return a namespace for a source without one: from the document's title, or from its file's name."""
    if isinstance(spec, Mapping):
        info = spec.get("info")
        title = info.get("title") if isinstance(info, Mapping) else None
    else:
        title = re.sub(r"\.\w+$", "", os.fspath(spec).rstrip("/").rpartition("/")[2])
    return re.sub(r"[^A-Za-z0-9_]+", "-", str(title or "")).strip("-").lower() or "openapi"
