"""The source ``mcp``: one server, or the servers of an ``mcpServers`` file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import attrs

from operad import CallError, ConfigError, Operation, SourceError
from operad.plugin import Login, SourceContext, SourceSession, record
from operad_auth import provider_of
from operad_mcp.config import MCPClientConfig
from operad_mcp.hosts.files import load_mcp_servers
from operad_mcp.pins import FILE

if TYPE_CHECKING:
    from pathlib import Path

    from operad_mcp.client.servers import MCPClientWrapper

# The client and asyncio are imported where they are used: every application that finds this plugin imports
# this module.


@record(kw_only=True)
class MCPSourceConfig(MCPClientConfig):
    """The options of an ``mcp`` source: the fields of `MCPClientConfig`, and options for a file of servers."""

    config: str | None = None
    """The path of an ``mcpServers`` file, relative to the configuration's folder, instead of ``command``, ``url``
    or ``server``; the other options then apply to all of its servers.
    """
    name: str | None = None
    """The only server of that file to load; its operations have no prefix. If ``None``, all servers are loaded.
    Their operations are named ``<namespace>.<server>.<tool>``, or ``<server>.<tool>`` without a namespace."""
    inputs: dict[str, str] = attrs.field(factory=dict, repr=False)
    """The values for ``${input:…}`` in the file, by name."""

    def __attrs_post_init__(self) -> None:
        """Check nothing, because the servers are checked when they are loaded."""


_PLACES = ("command", "url", "server", "args", "env", "cwd", "headers", "auth", "transport")
_LOCAL_PATHS = ("stderr", "tls_ca", "tls_cert", "tls_key", "pin")


async def load(config: Any, context: SourceContext) -> SourceSession:
    """Connect to the server or servers of a source, and return a session with their operations.

    Raises:
        ConfigError: the options do not specify a server, or cannot be used.
        SourceError: the server cannot be loaded, or no server of a file can. Other failures are logged.
    """
    values = _values(config, context)
    if config.config is None:
        values["auth"] = _of_callers(values, context)
        if values["cwd"] is not None:
            values["cwd"] = str(context.path(values["cwd"]))
        elif context.base_dir is not None and values["command"] is not None:
            values["cwd"] = str(context.base_dir)
        if config.name is not None:
            raise ConfigError("name needs config, the path of an mcpServers file, and none is set; set config too")
        return await _load_one(context.namespace or "mcp", MCPClientConfig(**values), context)
    return await _load_file(config, values, context)


def _values(config: Any, context: SourceContext) -> dict[str, Any]:
    """Return the options of a client; paths are resolved from the configuration's folder."""
    values = {field.name: getattr(config, field.name) for field in attrs.fields(MCPClientConfig)}
    if values["pin"] is True and context.base_dir is not None:
        values["pin"] = FILE
    for name in _LOCAL_PATHS:
        if isinstance(values[name], str):
            values[name] = str(context.path(values[name]))
    return values


def _of_callers(values: dict[str, Any], context: SourceContext) -> Any:
    """Return ``auth`` with the provider that it names. Raises `ConfigError` if the provider does not exist."""
    auth = values["auth"]
    if auth is None or auth.type != "caller":
        return auth
    if isinstance(auth.provider, str):
        auth = attrs.evolve(auth, provider=provider_of(context.registry, auth.provider))
    if values["url"] is not None:
        auth.provider.check(values["url"])
    return auth


async def login(config: Any, context: SourceContext, account: str | None) -> Login:
    """Return the login at the server of a source, for ``account`` if it is not ``None``.

    Raises:
        ConfigError: the server needs no login, or ``config`` is a file and ``name`` selects no server that is on.
    """
    values = _values(config, context)
    name = context.namespace or "mcp"
    if config.config is None:
        values["auth"] = _of_callers(values, context)
        server = MCPClientConfig(**values)
    elif config.name is None:
        raise ConfigError('config is a file of servers; select the server to log in to with name = "…"')
    else:
        path = context.path(config.config)
        found = load_mcp_servers(path, inputs=config.inputs, name=config.name)
        if not found:
            raise _disabled(path, config.name)
        server = _shared(found[config.name], values)
    if server.auth is not None and server.auth.type == "caller":  # the user logs in for the listing
        server = attrs.evolve(server, auth=server.list_auth, list_auth=None)
    if server.url is None or server.auth is None or server.auth.type != "oauth":
        hint = 'if it should log in, set auth = { type = "oauth" } and its url'
        if config.config is not None:
            hint = f'if it should log in, set "oauth": {{}} and its url in {path}'
        raise ConfigError(f'source "{name}": this server needs no login; {hint}')
    from operad_mcp.client.login import MCPLogin

    auth = server.auth if account is None else attrs.evolve(server.auth, account=account)
    return MCPLogin(name, attrs.evolve(server, auth=auth))


def _disabled(path: Path, name: str) -> ConfigError:
    return ConfigError(f'{path}: the server "{name}" is disabled in this file; enable it there')


async def _load_one(name: str, config: MCPClientConfig, context: SourceContext) -> SourceSession:
    from operad_mcp.client.servers import create_mcp_client

    try:
        wrapper = await create_mcp_client(name, config, namespace=context.namespace)
    except CallError as error:
        raise SourceError(f"{error.message}{not_loaded(config, error)}") from error
    return MCPSession([wrapper])


async def _load_file(config: Any, values: dict[str, Any], context: SourceContext) -> SourceSession:
    import asyncio

    from operad_mcp.client.servers import connect_all, safe_namespace

    for name in _PLACES:
        if values[name] not in (None, [], {}, "http"):
            raise ConfigError(f"expected either {name} or config (an mcpServers file), got both; remove one")
    path = context.path(config.config)
    # Asking a user for inputs may take long.
    unusable: dict[str, ConfigError] = {}
    options = {"inputs": config.inputs, "name": config.name, "failures": unusable if config.name is None else None}
    servers = await asyncio.to_thread(load_mcp_servers, path, **options)
    servers = {name: _shared(server, values) for name, server in servers.items()}
    if config.name is not None and not servers:
        raise _disabled(path, config.name)
    if config.name is not None:
        return await _load_one(
            config.name,
            servers[config.name],
            attrs.evolve(context, namespace=context.namespace or safe_namespace(config.name)),
        )
    if unusable and not servers:
        raise next(iter(unusable.values()))
    namespace = context.namespace or None  # without one, each server has its own
    wrappers, failed = await connect_all(
        servers, lambda name: f"{safe_namespace(name)}." if namespace else "", namespace=namespace
    )
    failures = {**failed, **unusable}
    if servers and not wrappers:
        reasons = "; ".join(str(error) for error in failures.values())
        raise SourceError(f"{path}: no server could be loaded: {reasons}")
    for name, error in failures.items():
        context.logger.warning("MCP server %s is not loaded: %s", name, error)
    return MCPSession(wrappers)


def _shared(server: MCPClientConfig, values: dict[str, Any]) -> MCPClientConfig:
    """Return a server of a file with the options of its source. The tool filters of both apply."""
    shared = {name: value for name, value in values.items() if name not in _PLACES}
    shared["exclude"] = [*server.exclude, *values["exclude"]]
    if values["include"] is None:
        shared["include"] = server.include
    elif server.include is not None:
        both = [name for name in server.include if any(fnmatchcase(name, given) for given in values["include"])]
        shared["include"] = both
    return attrs.evolve(server, **shared)


class MCPSession(SourceSession):
    """The operations of one or several connected servers. They follow the servers' changes."""

    def __init__(self, wrappers: Sequence[MCPClientWrapper]) -> None:
        self._wrappers = wrappers
        super().__init__(self._all())
        for wrapper in wrappers:
            wrapper.on_change(lambda _: self.changed(self._all()))

        if len(wrappers) == 1:
            server = wrappers[0].client.server
            self.title = server.get("title") or server.get("name")
            self.instructions = wrappers[0].instructions

    def _all(self) -> Sequence[Operation[..., Any]]:
        return [operation for wrapper in self._wrappers for operation in wrapper.operations]

    @property
    def held(self) -> Mapping[str, str]:
        """The reasons why tools are held, by the ids of their operations."""
        return {id: reason for wrapper in self._wrappers for id, reason in wrapper.held.items()}

    async def aclose(self) -> None:
        """Close all connections, even if one fails; then raise the first failure."""
        import asyncio

        ended = await asyncio.gather(*(wrapper.aclose() for wrapper in self._wrappers), return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome


def not_loaded(config: MCPClientConfig, error: CallError) -> str:
    """Return advice about the HTTP status with which a server rejected the connection; empty if none is known."""
    details = error.details if isinstance(error.details, dict) else {}
    status = details.get("statusCode")
    if status in (401, 403) and config.auth is not None and config.auth.type == "caller":
        given = "the server does not accept" if config.list_auth is not None else "set"
        return f"; {given} list_auth, the credential with which the listing is requested"
    if status in (401, 403):
        if config.auth is not None:
            return "; the server does not accept its auth"
        return "; set auth, or correct headers" if config.headers else "; set auth or headers"
    if status in (404, 405) and config.url is not None:
        other = "sse" if config.transport == "http" else "http"
        return f'; check the path of the url, or try transport = "{other}"'
    return ""
