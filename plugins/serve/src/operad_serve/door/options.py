"""The options of `operad serve`: the table ``[serve]``, and the tables of servers in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import attrs

from operad import ConfigError, OperadError, OperationRegistry, PluginError, Plugins, load_plugins
from operad.plugin import Server, check_options
from operad_auth import (
    Authenticator,
    IntrospectionOptions,
    JWTOptions,
    TokenRecord,
    any_of,
    authenticator_from,
)
from operad_serve.listening import KEEP_ALIVE, Address, TLSFiles, check_loopback, parse_address
from operad_serve.oauth.options import OAuthServerOptions


@attrs.frozen(kw_only=True)
class ServeOptions:
    """The options of `operad serve`: the table ``[serve]`` of a configuration."""

    http: str | None = None
    """The address of all servers that use HTTP: ``HOST:PORT`` or ``unix:PATH``. None: no HTTP."""
    mcp: Literal["stdio"] | None = None
    """``"stdio"`` to serve MCP on standard streams. ``stdio = true`` in ``[serve.mcp]`` has the same effect."""
    health: str | None = None
    """A further address for ``/health`` alone: ``HOST:PORT`` or ``unix:PATH``."""
    explorer: bool = True
    """Whether ``/`` shows the explorer."""
    title: str | None = None
    """The title of the OpenAPI document and of the explorer; None for ``operad``."""
    timeout: float | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.gt(0)))
    """Seconds that one call may take; None for the default of each server."""
    max_body: int = attrs.field(default=4 * 1024 * 1024, validator=attrs.validators.gt(0))
    """The largest request body, in bytes."""
    drain_timeout: float = attrs.field(default=10.0, validator=attrs.validators.ge(0))
    """Seconds that running calls get to finish after a signal."""
    allowed_hosts: list[str] = attrs.field(factory=list)
    """Allowed values of ``Host``: ``name`` or ``name:port``; ``*`` for any. A loopback address also allows the
    names of this machine. Any other address allows every value if the list is empty."""
    allowed_origins: list[str] = attrs.field(factory=list)
    """Origins, besides the server's own, whose pages may send requests (CORS); ``*`` for any."""
    proxy_headers: bool = False
    """Whether to trust ``X-Forwarded-For`` and ``-Proto`` of a proxy on this machine, or at the Unix socket."""
    root_path: str = ""
    """The path prefix that a proxy in front removes, such as ``/tools``."""
    keep_alive: float = attrs.field(default=KEEP_ALIVE, validator=attrs.validators.gt(0))
    """Seconds that a connection may stay open without a request. A proxy in front must close it earlier."""
    cert: str | None = None
    """A file with the certificate for HTTPS and those of its issuers, in PEM format. None for plain HTTP."""
    key: str | None = None
    """A file with the private key of ``cert``, in PEM format. None if ``cert`` contains it."""
    access_log: bool = False
    """Whether to write one line of JSON to standard error for each HTTP request."""
    strict: bool = False
    """Whether to refuse to serve if a source cannot be loaded."""
    anonymous: bool = False
    """Whether to accept requests without credentials although callers are authenticated."""
    authenticate: str | None = None
    """The authenticator, as ``module:name`` or ``file.py:name``."""
    jwt: JWTOptions | None = None
    """Checks of JSON Web Tokens: ``[serve.jwt]``."""
    introspection: IntrospectionOptions | None = None
    """The authorization server that is asked whether a token is valid (RFC 7662)."""
    oauth: OAuthServerOptions | None = None
    """Logins of MCP hosts and browsers at an OpenID provider; this server issues the tokens."""
    tokens: list[TokenRecord] = attrs.field(factory=list, repr=False)
    """Valid bearer tokens: ``[[serve.tokens]]``."""
    tokens_file: str | None = None
    """A TOML or JSON file with more bearer tokens."""

    def tls(self, base_dir: Path) -> TLSFiles | None:
        """Return the files for HTTPS; None if ``cert`` is not set. Raises `ConfigError` if they cannot be used."""
        if self.cert is None:
            if self.key is not None:
                raise ConfigError("key: expected cert as well, got none; add --cert FILE, or cert in [serve]")
            return None
        files = TLSFiles(base_dir / self.cert, None if self.key is None else base_dir / self.key)
        files.check()
        return files

    def authenticator(self, base_dir: Path) -> Authenticator | None:
        """Return the configured authenticator; None if no option configures one.

        Relative paths start from ``base_dir``. Raises `ConfigError` if an option cannot be used.
        """
        others = authenticator_from(
            authenticate=self.authenticate,
            jwt=self.jwt,
            introspection=self.introspection,
            tokens=self.tokens,
            tokens_file=self.tokens_file,
            base_dir=base_dir,
        )
        if self.oauth is None:
            return others
        from operad_serve.oauth.tokens import OwnTokens

        own = OwnTokens(self.oauth, base_dir)
        return own if others is None else any_of(own, others)  # its tokens are not shown to the others


def server_tables(registry: OperationRegistry) -> dict[str, Mapping[str, Any]]:
    """Return the tables ``[serve.<server>]`` by the name of the server, without the tables of `ServeOptions`."""
    values = {} if registry.configuration is None else registry.configuration.values("serve")
    own = {field.name for field in attrs.fields(ServeOptions)} - registry.plugins.servers.keys()
    return {name: value for name, value in values.items() if isinstance(value, Mapping) and name not in own}


def configured_address(registry: OperationRegistry, key: str, text: str | None, base_dir: Path) -> Address | None:
    """Return the address in a key of ``[serve]``; None if ``text`` is None.

    ``text`` is the value of the key. Raises `ConfigError`, with the place of the key, if it is not an address.
    """
    if text is None:
        return None
    try:
        return parse_address(text, base_dir)
    except ConfigError as error:
        raise _placed(registry, error, "serve", key) from None


def configured_tls(registry: OperationRegistry, options: ServeOptions, base_dir: Path) -> TLSFiles | None:
    """Return the result of `ServeOptions.tls`; its `ConfigError` gets the place in the configuration."""
    try:
        return options.tls(base_dir)
    except ConfigError as error:
        raise _placed(registry, error, "serve", "key" if options.cert is None else "cert") from None


def configured_authenticator(
    registry: OperationRegistry, options: ServeOptions, base_dir: Path
) -> Authenticator | None:
    """Return the result of `ServeOptions.authenticator`; its `ConfigError` gets the place in the configuration."""
    try:
        return options.authenticator(base_dir)
    except ConfigError as error:
        word = str(error).partition(":")[0].partition(" ")[0]
        key = {"token": ("tokens",), "the": ("tokens_file",), "authenticate": ("authenticate",)}.get(word, ())
        raise _placed(registry, error, "serve", *key) from None


def server_options(registry: OperationRegistry, server: Server, shared: Mapping[str, Any]) -> Any:
    """Return a server's options: ``shared``, overridden by ``[serve.<server>]``.

    Raises `ConfigError`, with the place in the configuration, if an option is unknown or not valid.
    """
    table = f"serve.{server.name}"
    values = {**shared, **server_tables(registry).get(server.name, {})}
    if server.name == "mcp":
        values.pop("stdio", None)  # a key of the command, see `plan_of`
    where = table if registry.configuration is None else registry.configuration.where(table)
    return check_options(values, server.config_type, where=where)


def server_plugins(registry: OperationRegistry) -> Plugins:
    """Return the plugins whose servers serve a registry: its own, or all installed ones if they have no server."""
    return registry.plugins if registry.plugins.servers else _installed()


@cache
def _installed() -> Plugins:
    return load_plugins()


def offered_server(registry: OperationRegistry, name: str) -> Server:
    """Return the server of ``[serve.<name>]``. Raises `PluginError`, with the place, if no plugin provides it."""
    try:
        return server_plugins(registry).server(name)
    except PluginError as error:
        raise _placed(registry, error, "serve", name) from None


def credentials_needed(registry: OperationRegistry, is_authenticated: bool, accepts_anonymous: bool) -> str:
    """Return a text that states how many operations need no credentials over HTTP, and why.

    Args:
        registry: the registry that is served.
        is_authenticated: whether there is an authenticator.
        accepts_anonymous: whether a server accepts requests without credentials.
    """
    if not accepts_anonymous:
        return "every operation requires them"
    count = sum(spec.access_control.is_open for spec in registry.specs())
    why = "anonymous = true" if is_authenticated else "no authenticator"
    return f"{count} of {len(registry)} operations require none ({why})"


def open_operations(registry: OperationRegistry) -> str | None:
    """Return a text that states how many operations ``[serve]`` offers over HTTP without credentials.

    Return None if there is no such operation, ``[serve]`` has no ``http``, or `problems` reports an error in it.
    """
    tables = server_tables(registry)
    try:
        options = registry.configured("serve", ServeOptions, exclude=tables.keys())
        folder = Path() if registry.configuration is None else registry.configuration.base_dir
        is_authenticated = options.http is not None and options.authenticator(folder) is not None
    except OperadError:
        return None
    accepts_anonymous = options.anonymous or any(table.get("anonymous") is True for table in tables.values())
    if options.http is None or (is_authenticated and not accepts_anonymous):
        return None
    if not any(spec.access_control.is_open for spec in registry.specs()):
        return None
    return credentials_needed(registry, is_authenticated, accepts_anonymous=True)


def problems(registry: OperationRegistry) -> Iterator[tuple[str, OperadError]]:
    """Yield the name and the error of each table that `operad serve` would reject.

    The names are ``serve`` and ``serve.<server>``.
    """
    servers = server_tables(registry)
    try:
        _check(registry, servers.keys())
    except OperadError as error:
        yield "serve", error
    for name in servers:
        try:
            server_options(registry, offered_server(registry, name), {})
        except OperadError as error:
            yield f"serve.{name}", error


def _check(registry: OperationRegistry, servers: Collection[str]) -> None:
    """Read ``[serve]`` as `operad serve` does. Raises the `OperadError` with which that would fail."""
    folder = Path() if registry.configuration is None else registry.configuration.base_dir
    options = registry.configured("serve", ServeOptions, exclude=servers)
    http = configured_address(registry, "http", options.http, folder)
    configured_address(registry, "health", options.health, folder)
    configured_tls(registry, options, folder)
    if configured_authenticator(registry, options, folder) is None and isinstance(http, tuple):
        try:
            check_loopback(http[0])
        except ConfigError as error:
            raise _placed(registry, error, "serve", "http") from None


def _placed(registry: OperationRegistry, error: OperadError, *table: str) -> OperadError:
    """Return the error with its place in the configuration, if there is one."""
    return error if registry.configuration is None else registry.configuration.placed(error, *table)
