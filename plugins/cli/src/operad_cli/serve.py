"""The commands that serve: ``operad serve`` and ``operad mcp-config``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from operad import OperationRegistry
from operad_cli import plain
from operad_cli.adhoc import AdHocSources, adhoc_options
from operad_cli.listening import Address, address_option
from operad_cli.mcp_config import HOSTS, stdio_entry, url_entry
from operad_cli.options import (
    Count,
    Seconds,
    chosen_profile,
    config_option,
    debug_option,
    load_plugins_quietly,
    quiet_plugins,
    require_configuration,
)


@click.command()
@click.option(
    "--http",
    metavar="HOST:PORT",
    callback=address_option,
    help="Serve HTTP here, or at unix:PATH: OpenAPI, MCP and the explorer.",
)
@click.option("--mcp", type=click.Choice(["stdio"]), help="Serve MCP on standard streams.")
@click.option("--transport", "url", help="Serve other processes here, such as ws://127.0.0.1:8765.")
@click.option(
    "--health", metavar="HOST:PORT", callback=address_option, help="Answer /health here, and nothing else."
)
@click.option(
    "--identity",
    type=click.Choice(["peer", "delegate"]),
    help="With --transport: whose word counts for who calls, the transport's or the caller's own.",
)
@click.option(
    "--max-concurrent",
    metavar="COUNT",
    type=Count(min=1),
    help="With --transport: requests under way at once. Default: [calls], else 10,000.",
)
@click.option(
    "--lease",
    metavar="SECONDS",
    type=Seconds(min=0, min_open=True),
    help="With --transport: how long a silent consumer keeps its stream. Default: [calls], else 30.",
)
@click.option(
    "--drain",
    metavar="SECONDS",
    type=Seconds(min=0),
    help="For what is under way in the end. Default: [serve] and [calls], else 10.",
)
@adhoc_options
@config_option
@debug_option
def serve(
    http: Address | None,
    mcp: str | None,
    url: str | None,
    health: Address | None,
    identity: str | None,
    max_concurrent: int | None,
    lease: float | None,
    drain: float | None,
    openapi: tuple[str, ...],
    base_url: str | None,
    headers: tuple[tuple[str, str], ...],
    mcp_servers: tuple[str, ...],
    config: Path | None,
) -> int:
    """Serve the operations over HTTP, MCP and transports.

    Those of all sources of the configuration, or of an API or MCP server that is named here. Several at once are
    fine; with none of them, [serve] and [transport] say where. Until Ctrl-C; what is under way then is finished.
    """
    from operad_cli import frontdoor  # half of what the command line imports, for one command

    sources = AdHocSources(openapi, mcp_servers, base_url, headers)
    sources.check()
    registry, base_dir = _registry_to_serve(sources, config)
    # The tools of a single source need no namespace in front.
    alone = len(openapi) + len(mcp_servers) == 1
    plan = frontdoor.plan_of(
        registry,
        http=http,
        mcp=mcp,
        transport=url,
        health=health,
        identity=identity,
        base_dir=base_dir,
        mask_errors="--debug" not in sys.argv,
        servers={"mcp": {"names": "name"}} if alone else {},
        drain=drain,
        max_concurrent=max_concurrent,
        lease=lease,
    )
    return frontdoor.run(frontdoor.serve(registry, plan, sources.load if sources else None))


def _registry_to_serve(sources: AdHocSources, config: Path | None) -> tuple[OperationRegistry, Path]:
    """A registry whose sources are not loaded yet, and the folder of its configuration."""
    if sources and config is None:
        return OperationRegistry(load_plugins_quietly()), Path.cwd()
    path = require_configuration(config)
    with quiet_plugins():
        registry = OperationRegistry.from_config(path, profile=chosen_profile())
    return registry, path if path.is_dir() else path.parent


@click.command(name="mcp-config")
@click.option("--host", type=click.Choice(HOSTS), default="claude", show_default=True, help="Whose configuration.")
@click.option("--name", default="operad", show_default=True, help="What the host calls the server.")
@click.option("--url", help="Of a server that runs already, such as http://127.0.0.1:8000/mcp.")
@adhoc_options
@config_option
@debug_option
def mcp_config(
    host: Any,
    name: str,
    url: str | None,
    openapi: tuple[str, ...],
    base_url: str | None,
    headers: tuple[tuple[str, str], ...],
    mcp_servers: tuple[str, ...],
    config: Path | None,
) -> int:
    """Print the entry of an MCP host's configuration.

    With it the host finds this server: it starts `operad serve --mcp stdio` itself, or connects to
    --url.
    """
    if url is not None:
        plain.print_json(url_entry(host, name, url))
        return 0
    sources = AdHocSources(openapi, mcp_servers, base_url, headers)
    if headers:
        raise click.UsageError("a header would stand in the host's configuration: write it into an operad.toml")
    arguments = sources.arguments()
    if not sources or config is not None:
        arguments += ["--config", str(require_configuration(config).absolute())]
        if (profile := chosen_profile()) is not None:
            arguments += ["--profile", profile]
    plain.print_json(stdio_entry(host, name, arguments))
    return 0
