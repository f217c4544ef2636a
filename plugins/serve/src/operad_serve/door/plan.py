"""The plan of `operad serve`: what to serve and where, from the command line and the configuration."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from operad import ConfigError, OperationRegistry
from operad_auth import TokenRecord
from operad_calls import CallSettings
from operad_serve.door.options import (
    ServeOptions,
    configured_address,
    configured_tls,
    offered_server,
    server_plugins,
    server_tables,
)
from operad_serve.door.transport import transport_of
from operad_serve.listening import Address, TLSFiles


@attrs.frozen(kw_only=True)
class Plan:
    """The servers that `operad serve` starts, with their addresses and options."""

    options: ServeOptions
    """The table ``[serve]``, with the values of the command line."""
    http: Address | None = None
    """The address of all servers that use HTTP; None to serve no HTTP."""
    tls: TLSFiles | None = None
    """The certificate for HTTPS; None for plain HTTP."""
    is_stdio: bool = False
    """Whether to serve MCP on standard streams."""
    transport: str | None = None
    """The URL of the transport; None for the one in ``[transport]``, or if ``has_transport`` is False."""
    has_transport: bool = False
    """Whether to serve other processes over a transport."""
    health: Address | None = None
    """A further address for ``/health`` alone; None to serve it with the other paths only."""
    identity: Any = None
    """The identity of calls over the transport, see `CallHandler`; None for the default of the call server."""
    base_dir: Path = Path()
    """The folder from which relative paths start."""
    mask_errors: bool = True
    """Whether to replace the messages of undeclared exceptions by a reference to the log."""
    servers: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    """The options of servers that the command line sets, by the name of the server."""
    calls: CallSettings = attrs.field(factory=CallSettings)
    """The limits of calls over the transport."""
    sockets: Mapping[str, socket.socket] = attrs.field(factory=dict)
    """Sockets that several processes share, instead of the addresses ``http`` and ``health``."""
    is_quiet: bool = False
    """Whether to print no messages, because another process of the same command prints them."""
    on_ready: Callable[[], None] | None = None
    """A function that is called when all servers are ready; None if there is no such function."""


def plan_of(
    registry: OperationRegistry,
    *,
    http: Address | None,
    mcp: str | None,
    transport: str | None,
    health: Address | None,
    identity: Any,
    base_dir: Path,
    mask_errors: bool,
    servers: Mapping[str, Mapping[str, Any]],
    tokens: Sequence[TokenRecord] = (),
    changes: Mapping[str, Any] | None = None,
    default_http: Address | None = None,
    drain: float | None = None,
    max_concurrent: int | None = None,
    lease: float | None = None,
) -> Plan:
    """Return the plan for the options of a command line. If they name no server, the configuration decides.

    If the configuration names no server either, HTTP is served on ``default_http``. ``mcp`` is ``"stdio"`` or
    None. ``tokens`` are valid in addition to the configured ones. ``changes`` are values of `ServeOptions`;
    ``drain`` is ``drain_timeout`` of `ServeOptions` and `CallSettings`. The other parameters are fields of `Plan`
    and `CallSettings`. Options that are None stay as configured.

    Raises:
        ConfigError: no server is named, an option is wrong, or there are tokens but no HTTP.
        PluginError: no plugin provides a configured server or the transport.
    """
    tables = server_tables(registry)
    for name in tables:
        offered_server(registry, name)  # raises an error that names the distribution to install
    options = registry.configured("serve", ServeOptions, exclude=tables.keys())
    given = {"drain_timeout": drain, **(changes or {}), "tokens": [*options.tokens, *tokens]}
    options = attrs.evolve(options, **{name: value for name, value in given.items() if value is not None})
    calls = registry.configured("calls", CallSettings)
    is_stdio, has_transport = mcp == "stdio", transport is not None
    if http is None and not is_stdio and not has_transport:
        http = configured_address(registry, "http", options.http, base_dir)
        is_stdio = options.mcp == "stdio" or tables.get("mcp", {}).get("stdio") is True
        has_transport = "url" in registry.transport_options
        http = http or (None if is_stdio or has_transport else default_http)
    if http is None and not is_stdio and not has_transport:
        raise ConfigError(
            "expected an address to serve on: --http 127.0.0.1:8000, --mcp stdio, "
            "--transport ws://127.0.0.1:8765, or [serve] or [transport] in the configuration; got none of them"
        )
    if http is None and (tokens or given.get("tokens_file") is not None):
        raise ConfigError("--token and --tokens authenticate callers over HTTP; add --http HOST:PORT")
    if health is None:
        health = configured_address(registry, "health", options.health, base_dir)
    if is_stdio:
        server_plugins(registry).server("mcp")
    if has_transport:
        transport_of(registry, transport)  # a wrong one is reported before anything is loaded
    return Plan(
        options=options,
        http=http,
        tls=None if http is None else configured_tls(registry, options, base_dir),
        is_stdio=is_stdio,
        transport=transport,
        has_transport=has_transport,
        health=health,
        identity=identity,
        base_dir=base_dir,
        mask_errors=mask_errors,
        servers=servers,
        calls=calls.updated(drain_timeout=drain, max_concurrent=max_concurrent, lease=lease),
    )
