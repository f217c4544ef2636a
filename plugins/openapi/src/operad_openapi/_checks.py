"""Check a configuration against its document when the document is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from operad import ConfigError
from operad.words import did_you_mean
from operad_openapi._document.document import Document, Json
from operad_openapi._document.listing import Diagnostic, NotUsableError, RawOperation
from operad_openapi._document.naming import fits, words_of
from operad_openapi._document.origins import origin_of, without_default_port
from operad_openapi._document.security import scheme_of, schemes_of
from operad_openapi._document.servers import moved, server_of, swagger_url
from operad_openapi._http.credentials import Authenticator
from operad_openapi._http.tokens import endpoints_of
from operad_openapi.config import HTTPServiceConfig

_VARIABLE = re.compile(r"\{([^{}]+)\}")


def check_document(document: Document, config: HTTPServiceConfig) -> None:
    """Check that the document has the security schemes, servers and variables that the configuration names.

    Raises:
        ConfigError: the document lacks one of these, or a credential of type ``oauth2`` has no token URL.
    """
    schemes = schemes_of(document)
    for name in config.credentials:
        if name not in schemes:
            raise ConfigError(
                f'credentials: the document has no security scheme "{name}"{did_you_mean(name, schemes)}'
            )
    for name, auth in (("auth", config.auth), *config.credentials.items()):
        if auth is None or auth.type != "oauth2" or auth.token_url or auth.issuer:
            continue
        candidates = [name] if name in config.credentials else list(schemes)
        if not any(endpoints_of(auth, scheme_of(document, scheme), "") for scheme in candidates):
            where = f"credentials.{name}" if name in config.credentials else name
            raise ConfigError(
                f"{where}: oauth2 needs token_url or issuer, because the document has no URL for this grant"
            )
    if config.server_variables:
        known = {name for server in _servers(document) for name in _VARIABLE.findall(str(server.get("url", "")))}
        for name in config.server_variables:
            if name not in known:
                raise ConfigError(
                    f'server_variables: no server has the variable "{name}"{did_you_mean(name, known)}'
                )
    for source in config.servers:
        urls = {_filled(server) for server in _servers(document)}
        if not any(moved(url, {source: "x:"}) is not None for url in urls):
            raise ConfigError(f'servers: the document has no server "{source}"{did_you_mean(source, urls)}')


def check_names(config: HTTPServiceConfig, names: Iterable[str], operations: Iterable[RawOperation]) -> None:
    """Raise `ConfigError` if the configuration names operations or path parameters that do not exist.

    Args:
        config: the configuration to check.
        names: the names that were given to the operations of the document.
        operations: all operations of the document.
    """
    _check_globs("operation_types", config.operation_types, names)
    _check_globs("pagination", config.pagination, names)
    if isinstance(config.media_types, Mapping) and config.media_types:
        _check_globs("media_types", config.media_types, {word for raw in operations for word in words_of(raw)})
    if config.path_parameters or config.slashes:
        templates = {name for raw in operations for name in _VARIABLE.findall(raw.path)}
        for option, wanted in (("path_parameters", config.path_parameters), ("slashes", config.slashes)):
            for name in wanted:
                if name not in templates:
                    raise ConfigError(f'{option}: no path has "{name}"{did_you_mean(name, templates)}')


def _check_globs(option: str, globs: Iterable[str], names: Iterable[str]) -> None:
    """Raise `ConfigError` for a glob of a table that matches none of ``names``."""
    for glob in globs:
        if not any(fits(name, glob) for name in names):
            raise ConfigError(f'{option}: no operation matches "{glob}"{did_you_mean(glob, names)}')


def warnings_of(
    document: Document, config: HTTPServiceConfig, authenticator: Authenticator, chosen: Iterable[RawOperation]
) -> Iterator[Diagnostic]:
    """Yield warnings about unusable servers, servers not replaced by ``base_url``, and missing credentials."""
    chosen = list(chosen)
    yield from _no_server(document, config, chosen)
    yield from _other_servers(document, config, chosen)
    if config.auth is not None or config.credentials:
        yield from _unmet(document, config, authenticator, chosen)


def _no_server(document: Document, config: HTTPServiceConfig, chosen: list[RawOperation]) -> Iterator[Diagnostic]:
    """Yield a warning if the document's server is unusable: in a document from a file, it is often only a path."""
    usual = (raw for raw in chosen if "servers" not in raw.node and "servers" not in raw.item)
    if (raw := next(usual, None)) is not None:
        try:
            server_of(document, raw, config, trusted=config.trusted)
        except NotUsableError as error:
            yield Diagnostic("#/servers", f"no operation can be called: {error}", "warning")


def _other_servers(
    document: Document, config: HTTPServiceConfig, chosen: list[RawOperation]
) -> Iterator[Diagnostic]:
    """Yield warnings about servers of single operations that are unusable or not replaced by ``base_url``."""
    home = None if config.base_url is None else without_default_port(origin_of(config.base_url))
    named = {without_default_port(origin_of(url)) for url in (*config.servers, *config.origins)}
    counts: dict[str, int] = {}
    useless: set[str] = set()
    for raw in chosen:
        if "servers" not in raw.node and "servers" not in raw.item:
            continue
        try:
            origin = without_default_port(origin_of(server_of(document, raw, config, trusted=config.trusted).url))
        except NotUsableError as error:
            if str(error) not in useless:
                useless.add(str(error))
                yield Diagnostic(raw.pointer, f"the operation cannot be called: {error}", "warning")
            continue
        if home is not None and origin != home and origin not in named:
            counts[origin] = counts.get(origin, 0) + 1
    for origin, count in counts.items():
        having = "1 operation has a server of its" if count == 1 else f"{count} operations have a server of their"
        reason = (
            f"{having} own, {origin}, which base_url does not replace; to replace it, set "
            f'servers = {{ "{origin}" = "…" }}; to keep it, set the same URL there'
        )
        yield Diagnostic("#/paths", reason, "warning")


def _unmet(
    document: Document, config: HTTPServiceConfig, authenticator: Authenticator, chosen: list[RawOperation]
) -> Iterator[Diagnostic]:
    """Yield a warning for each security requirement that the configured credentials meet only in part."""
    seen: set[str] = set()
    for raw in chosen:
        security = raw.node.get("security", document.root.get("security"))
        if not isinstance(security, list) or not security or {} in security:
            continue
        key = json.dumps(security, sort_keys=True, default=str)
        if key in seen:
            continue
        seen.add(key)
        missing: list[str] = []
        for alternative in security:
            names = list(alternative) if isinstance(alternative, Mapping) else []
            lacking = [name for name in names if not authenticator.meets(name)]
            if not lacking:
                break
            if len(lacking) < len(names):
                missing.append(" and ".join(lacking))
        else:
            if missing:
                reason = f"the security requirement also needs credentials for {' or '.join(missing)}; set them"
                yield Diagnostic(raw.pointer, reason, "warning")


def _servers(document: Document) -> Iterator[Json]:
    """Yield all servers that the document declares."""
    paths = document.root.get("paths")
    items = [item for item in paths.values() if isinstance(item, dict)] if isinstance(paths, dict) else []
    holders: list[Any] = [document.root, *items]
    holders += [node for item in items for node in item.values() if isinstance(node, dict)]
    for holder in holders:
        servers = holder.get("servers")
        yield from (
            (server for server in servers or () if isinstance(server, dict)) if isinstance(servers, list) else ()
        )
    if document.version == "2.0" and isinstance(host := document.root.get("host"), str):
        schemes = document.root.get("schemes")
        for scheme in schemes if isinstance(schemes, list) else ["https"]:
            yield {"url": swagger_url(scheme, host, document.root.get("basePath"))}


def _filled(server: Json) -> str:
    variables = server.get("variables")
    declared = variables if isinstance(variables, dict) else {}

    def value(match: re.Match[str]) -> str:
        variable = declared.get(match[1])
        return str(variable.get("default", match[0])) if isinstance(variable, dict) else match[0]

    return _VARIABLE.sub(value, str(server.get("url", "")))
