"""Determine the server, and so the base URL, of an operation."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urljoin, urlsplit

from operad.plugin import record
from operad_openapi._document.document import Document
from operad_openapi._document.listing import NotUsableError, RawOperation
from operad_openapi._document.origins import is_private_host, origin_of, without_default_port
from operad_openapi.config import HTTPOptions

_VARIABLE = re.compile(r"\{([^{}]+)\}")


@record
class Server:
    """The server that the requests of an operation are sent to."""

    url: str
    """The base URL, without a trailing slash and without a query."""
    declared_origin: str
    """The origin in the document or ``base_url``, before the option ``servers`` replaced it."""
    query: str = ""
    """The query of ``base_url``, encoded, to send with every request; empty for a server of the document."""


def server_of(document: Document, operation: RawOperation, options: HTTPOptions, *, trusted: bool) -> Server:
    """Return the server of an operation.

    The servers of the operation come first, then those of its path, the option ``base_url``, and those of the
    document's root. Of several servers, the first is used. The option ``servers`` replaces URLs that the
    document names.

    Raises:
        NotUsableError: no absolute http or https URL is known, a variable has no allowed value, or the document
            came from a public address and names a private one, and ``trusted`` is False.
    """
    for holder in (operation.node, operation.item):
        servers = holder.get("servers")
        if isinstance(servers, list) and servers:
            return _declared(document, servers, options, trusted=trusted)
    if options.base_url is not None:
        url = _checked(options.base_url, "base_url")
        return Server(url, origin_of(url), options.base_url.partition("#")[0].partition("?")[2])
    if document.version == "2.0":
        return _placed(document, _swagger_server(document), options, trusted=trusted)
    servers = document.root.get("servers")
    if not isinstance(servers, list) or not servers:
        servers = [{"url": "/"}]
    return _declared(document, servers, options, trusted=trusted)


def home_origins(document: Document, options: HTTPOptions, *, trusted: bool) -> frozenset[str]:
    """Return the origins that configured headers and credentials may be sent to.

    They are the origin of the API's server, before and after the option ``servers`` replaces it, and ``origins``.
    """
    try:
        root = server_of(document, RawOperation("GET", "/", {}, {}, "#"), options, trusted=trusted)
    except NotUsableError:
        return frozenset(map(origin_of, options.origins))
    return frozenset([root.declared_origin, origin_of(root.url), *map(origin_of, options.origins)])


def moved(url: str, servers: dict[str, str]) -> str | None:
    """Return ``url`` with its start replaced by the option ``servers``; ``None`` if no key matches.

    The longest key that matches is used. A default port in ``url`` or in a key makes no difference.
    """
    if not servers:
        return None
    plain = without_default_port(url)
    for source in sorted(servers, key=len, reverse=True):
        start = without_default_port(source)
        if plain == start or plain.startswith((f"{start}/", f"{start}?")):
            return servers[source] + plain[len(start) :]
    return None


def _placed(document: Document, url: str, options: HTTPOptions, *, trusted: bool) -> Server:
    """Return the server for a URL of the document."""
    if (target := moved(url, options.servers)) is not None:
        return Server(_checked(target, "servers"), origin_of(url))
    url = _permitted(document, url, trusted=trusted)
    return Server(url, origin_of(url))


def _declared(document: Document, servers: list[Any], options: HTTPOptions, *, trusted: bool) -> Server:
    server = servers[0]
    url = server.get("url") if isinstance(server, dict) else None
    if not isinstance(url, str):
        got = f"the url {url!r:.60}" if isinstance(server, dict) else type(server).__name__
        raise NotUsableError(f"servers[0]: expected an object with a url as text, got {got}")
    variables = server.get("variables")
    url = _VARIABLE.sub(
        lambda match: _variable(match[1], variables if isinstance(variables, dict) else {}, options), url
    )
    base = options.base_url or document.base or ""
    try:
        url = url or "/"  # by RFC 3986 the document's own URL, but connexion writes it for the root
        if not urlsplit(url).scheme and urlsplit(base).scheme in ("http", "https"):
            url = urljoin(base, url)
        elif url.startswith("//"):
            url = f"https:{url}"
    except ValueError as error:
        raise NotUsableError(f'servers: expected a URL, got "{url:.200}": {error}') from error
    same = options.base_url is not None and origin_of(url) == origin_of(options.base_url)
    return _placed(document, url, options, trusted=trusted or same)


def _variable(name: str, variables: dict[str, Any], options: HTTPOptions) -> str:
    declared = variables.get(name)
    declared = declared if isinstance(declared, dict) else {}
    value = options.server_variables.get(name, declared.get("default"))
    if value is None or (name not in options.server_variables and _VARIABLE.search(str(value))):
        # Some documents have a placeholder as the default, such as "{your-host}".
        raise NotUsableError(f'servers: the variable "{name}" has no value; set server_variables.{name}')
    allowed = declared.get("enum")
    if isinstance(allowed, list) and allowed and value not in allowed:
        known = ", ".join(f'"{item}"' for item in allowed)[:200]
        raise NotUsableError(f'servers: expected one of {known} for the variable "{name}", got "{value!s:.200}"')
    return str(value)


def _swagger_server(document: Document) -> str:
    root = document.root
    base = document.base if document.base and urlsplit(document.base).scheme in ("http", "https") else None
    schemes = root.get("schemes")
    schemes = [s for s in schemes if isinstance(s, str)] if isinstance(schemes, list) else []
    if "https" in schemes or not schemes:
        scheme = "https" if schemes or base is None else urlsplit(base).scheme
    else:
        scheme = schemes[0]
    host = root.get("host")
    if not isinstance(host, str):
        if base is None:
            raise NotUsableError("the document has no host; set base_url")
        host = urlsplit(base).netloc
    return swagger_url(scheme, host, root.get("basePath"))


def swagger_url(scheme: str, host: str, path: Any) -> str:
    """Return the server URL of a 2.0 document. ``basePath`` may lack its slash, and ``host`` may have a scheme."""
    host = host.rpartition("://")[2].rstrip("/")
    return f"{scheme}://{host}/{path.lstrip('/')}" if isinstance(path, str) and path else f"{scheme}://{host}"


def _permitted(document: Document, url: str, *, trusted: bool) -> str:
    url = _checked(url, "servers")
    source = urlsplit(document.base or "")
    if (
        source.scheme in ("http", "https")
        and not trusted
        and not is_private_host(source.hostname)
        and is_private_host(urlsplit(url).hostname)
    ):
        raise NotUsableError(
            f"servers: a document from {source.hostname} names the private address {urlsplit(url).hostname}; "
            "set base_url, or trusted = true"
        )
    return url


def _checked(url: str, what: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise NotUsableError(f'{what}: expected a URL, got "{url:.200}": {error}') from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NotUsableError(f'{what}: expected an absolute http or https URL, got "{url:.200}"; set base_url')
    return url.partition("#")[0].partition("?")[0].rstrip("/")
