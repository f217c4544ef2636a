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
    """What `operad serve` serves, and where."""

    options: ServeOptions
    http: Address | None = None
    tls: TLSFiles | None = None
    is_stdio: bool = False
    transport: str | None = None
    """The URL of the transport; None for the one in ``[transport]``, or if ``has_transport`` is False."""
    has_transport: bool = False
    health: Address | None = None
    identity: Any = None
    base_dir: Path = Path()
    mask_errors: bool = True
    servers: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    """The options of servers that the command line sets, by the name of the server."""
    calls: CallSettings = attrs.field(factory=CallSettings)
    """The limits of calls over the transport."""
    sockets: Mapping[str, socket.socket] = attrs.field(factory=dict)
    """Sockets that several processes share, instead of the addresses ``http`` and ``health``."""
    is_quiet: bool = False
    """Whether to print no messages, because another process of the same command prints them."""
    on_ready: Callable[[], None] | None = None
    """Called when all servers are ready."""


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
    """Return the plan for the options of a command line. The configuration decides if they name no server.

    ``changes`` are values of `ServeOptions` that the command line sets; if None, the value stays as configured.
    If the configuration names no server either, HTTP is served on ``default_http``. The other parameters are
    those of `Plan` and `CallSettings`.

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
            "--transport ws://127.0.0.1:8765, or [serve] and [transport] in the configuration"
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
