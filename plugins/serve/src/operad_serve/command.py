"""The command ``operad serve``. operad-cli imports it when it collects the commands of plugins."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from operad import ConfigError, OperationRegistry
from operad_cli.adhoc import AdHocSources, adhoc_options, from_environment
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

if TYPE_CHECKING:
    from operad_auth import TokenRecord
    from operad_serve.listening import Address


def _address(_: click.Context, __: click.Parameter, value: str | None) -> Address | None:
    """Parse the address of an option."""
    from operad_serve.listening import parse_address

    try:
        return None if value is None else parse_address(value)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


def _tokens(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[TokenRecord]:
    """Parse ``--token NAME=SECRET``. ``${NAME}`` in a secret is replaced from the environment."""
    from operad_auth import StaticTokens, TokenRecord

    records = []
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not name:  # the value is not quoted: it may be a secret
            raise click.BadParameter("expected NAME=SECRET, such as 'me=${TOKEN}'")
        records.append(TokenRecord(token=from_environment(name, text), id=name))
    try:
        if records:
            StaticTokens(records)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None
    return records


def _tokens_file(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Check the file of ``--tokens``. Its path starts from the current folder."""
    from operad_auth import StaticTokens

    if value is None:
        return None
    try:
        StaticTokens.from_file(value)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None
    return _absolute(value)


@click.command()
@click.option(
    "--http",
    metavar="HOST:PORT",
    callback=_address,
    help="Address for HTTP, or unix:PATH: OpenAPI, MCP and the explorer.",
)
@click.option(
    "--token",
    "tokens",
    metavar="NAME=SECRET",
    multiple=True,
    callback=_tokens,
    help="Bearer token of a caller over HTTP. ${NAME} is replaced from the environment. May be repeated.",
)
@click.option(
    "--tokens",
    "tokens_file",
    type=click.Path(),
    callback=_tokens_file,
    help='TOML or JSON file of bearer tokens: token = "id".',
)
@click.option("--mcp", type=click.Choice(["stdio"]), help="Serve MCP on standard streams.")
@click.option("--transport", "url", help="URL to serve other processes on, such as ws://127.0.0.1:8765.")
@click.option("--health", metavar="HOST:PORT", callback=_address, help="Address for /health alone.")
@click.option(
    "--identity",
    type=click.Choice(["peer", "delegate"]),
    help="With --transport: trust the identity of the transport, or the one that the caller sends.",
)
@click.option(
    "--max-concurrent",
    metavar="COUNT",
    type=Count(min=1),
    help="With --transport: maximum number of requests in progress. Default: [calls], else 10,000.",
)
@click.option(
    "--lease",
    metavar="SECONDS",
    type=Seconds(min=0, min_open=True),
    help="With --transport: time after which the stream of a silent consumer ends. Default: [calls], else 30.",
)
@click.option(
    "--drain",
    metavar="SECONDS",
    type=Seconds(min=0),
    help="Time to let running calls finish on shutdown. Default: [serve] and [calls], else 10.",
)
@click.option("--cert", type=click.Path(), help="Certificate for HTTPS, in PEM format.")
@click.option("--key", type=click.Path(), help="Private key of --cert. Default: --cert contains it.")
@click.option(
    "--keep-alive",
    metavar="SECONDS",
    type=Seconds(min=0, min_open=True),
    help="Time that an HTTP connection may stay open without a request. Default: [serve], else 5.",
)
@click.option(
    "--access-log",
    is_flag=True,
    default=None,
    help="Write a line of JSON for each HTTP request to standard error.",
)
@click.option("--strict", is_flag=True, default=None, help="Do not serve if a source cannot be loaded.")
@adhoc_options
@config_option
@debug_option
def serve(
    http: Address | None,
    tokens: list[TokenRecord],
    tokens_file: str | None,
    mcp: str | None,
    url: str | None,
    health: Address | None,
    identity: str | None,
    max_concurrent: int | None,
    lease: float | None,
    drain: float | None,
    cert: str | None,
    key: str | None,
    keep_alive: float | None,
    access_log: bool | None,
    strict: bool | None,
    openapi: tuple[str, ...],
    base_url: str | None,
    headers: tuple[tuple[str, str], ...],
    mcp_servers: tuple[str, ...],
    config: Path | None,
) -> int:
    """Serve operations over HTTP, MCP and transports.

    Serves all sources of the configuration, or an API or MCP server given as an option. --http, --mcp and
    --transport can be combined; without them, [serve] and [transport] decide. With --token or --tokens, requests
    over HTTP need a token. Press Ctrl-C to stop; running calls can finish.
    """
    # Imported by this command alone: the command line collects it with every other one.
    from operad_cli.output.errors import report_failures
    from operad_cli.output.logs import writes_json
    from operad_serve.door import front_door, messages

    if writes_json():
        messages.write_to_log()
    sources = AdHocSources(openapi, mcp_servers, base_url, headers)
    sources.check()
    registry, base_dir = _registry_to_serve(sources, config)
    # The tools of a single source need no namespace in front.
    alone = len(openapi) + len(mcp_servers) == 1
    plan = front_door.plan_of(
        registry,
        http=http,
        tokens=tokens,
        mcp=mcp,
        transport=url,
        health=health,
        identity=identity,
        base_dir=base_dir,
        mask_errors="--debug" not in sys.argv,
        servers={"mcp": {"names": "name"}} if alone else {},
        changes={
            "tokens_file": tokens_file,
            "cert": _absolute(cert),
            "key": _absolute(key),
            "keep_alive": keep_alive,
            "access_log": access_log,
            "strict": strict,
        },
        drain=drain,
        max_concurrent=max_concurrent,
        lease=lease,
    )

    async def load(registry: OperationRegistry) -> int:
        if sources:
            await sources.load(registry)
        # The log has a record of each failure; standard error shows it if it is plain JSON lines.
        return int(bool(registry.failures)) if writes_json() else report_failures(registry)

    return front_door.run(front_door.serve(registry, plan, load))


def _absolute(path: str | None) -> str | None:
    """Return a path of the command line, which starts from the current folder."""
    return None if path is None else str(Path(path).absolute())


def _registry_to_serve(sources: AdHocSources, config: Path | None) -> tuple[OperationRegistry, Path]:
    """Return a registry whose sources are not loaded yet, and the folder of its configuration."""
    if sources and config is None:
        return OperationRegistry(load_plugins_quietly()), Path.cwd()
    path = require_configuration(config)
    with quiet_plugins():
        registry = OperationRegistry.from_config(path, profile=chosen_profile())
    return registry, path if path.is_dir() else path.parent
