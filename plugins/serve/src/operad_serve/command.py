"""The command ``operad serve``. operad-cli imports this module when it collects the commands of plugins."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
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
    """Return the address in an option, or None if the option is not given."""
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
            got = "no NAME" if separator else "no ="
            raise click.BadParameter(f"expected NAME=SECRET, such as 'me=${{TOKEN}}', got {got}")
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
@click.argument("target", required=False)
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
@click.option(
    "--workers",
    metavar="COUNT",
    type=Count(min=1),
    default=1,
    help="Processes that serve HTTP and the transport. Each loads all sources. Default: 1.",
)
@click.option(
    "--reload", is_flag=True, help="Start again when a Python file or operad.toml changes. For development."
)
@click.option("--strict", is_flag=True, default=None, help="Do not serve if a source cannot be loaded.")
@adhoc_options
@config_option
@debug_option
def serve(
    target: str | None,
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
    workers: int,
    reload: bool,
    strict: bool | None,
    openapi: tuple[str, ...],
    base_url: str | None,
    headers: tuple[tuple[str, str], ...],
    mcp_servers: tuple[str, ...],
    config: Path | None,
) -> int:
    """Serve operations over HTTP, MCP and transports.

    Serves the registry or the functions of TARGET: app.py, app.py:name, module or module:name. Without TARGET, all
    sources of the configuration, or an API or MCP server given as an option. --http, --mcp and --transport can be
    combined; without them, [serve] and [transport] decide, and TARGET is served on 127.0.0.1:8000. With --token or
    --tokens, requests over HTTP need a token. Press Ctrl-C to stop; running calls can finish.
    """
    # Imported by this command alone: the command line collects it with every other one.
    from operad_cli.output.errors import report_failures
    from operad_cli.output.logs import writes_json
    from operad_serve.door import front_door, messages, processes
    from operad_serve.door.plan import plan_of

    if writes_json():
        messages.write_to_log()
    sources = AdHocSources(openapi, mcp_servers, base_url, headers)
    sources.check()
    given = processes.share()
    if mcp == "stdio" and (reload or workers > 1):
        raise click.UsageError("--reload and --workers serve over HTTP or a transport; remove --mcp stdio")
    if reload and workers > 1:
        raise click.UsageError("--reload serves with one process; remove --workers")
    if reload and given is None:
        return processes.Supervisor(run_again).run_reloading(_watched(target, config))
    registry, base_dir = _registry_to_serve(target, sources, config)
    # The tools of a single source need no namespace in front.
    alone = len(openapi) + len(mcp_servers) == 1
    plan = plan_of(
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
        default_http=("127.0.0.1", 8000) if target is not None else None,
        drain=drain,
        max_concurrent=max_concurrent,
        lease=lease,
    )

    if given is not None:
        plan = attrs.evolve(plan, sockets=given.sockets, is_quiet=not given.is_first, on_ready=given.ready.set)
    elif workers > 1:
        return front_door.run_workers(registry, plan, run_again, workers)

    async def load(registry: OperationRegistry) -> int:
        if sources:
            await sources.load(registry)
        # The log has a record of each failure; standard error shows it if it is plain JSON lines.
        is_silent = writes_json() or plan.is_quiet
        return int(bool(registry.failures)) if is_silent else report_failures(registry)

    return front_door.run(front_door.serve(registry, plan, load))


def _absolute(path: str | None) -> str | None:
    """Return a path from the current folder as an absolute path, or None if it is not given."""
    return None if path is None else str(Path(path).absolute())


def run_again() -> None:
    """Run the command line again, in a process that `operad_serve.door.processes` has started."""
    from operad_cli.main import main

    main()


def _watched(target: str | None, config: Path | None) -> list[Path]:
    """Return the folders whose files `--reload` watches."""
    found = {Path.cwd().resolve()}
    if target is None:
        path = require_configuration(config).resolve()
        found.add(path if path.is_dir() else path.parent)
    elif (file := Path(target.rpartition(":")[0] or target)).suffix == ".py":
        found.add(file.resolve().parent)
    # A folder below another one is watched with it.
    return [each for each in sorted(found) if not any(other in each.parents for other in found)]


def _registry_to_serve(
    target: str | None, sources: AdHocSources, config: Path | None
) -> tuple[OperationRegistry, Path]:
    """Return a registry whose sources are not loaded yet, and the folder of its configuration."""
    if target is not None:
        if config is not None:
            raise click.UsageError("--config and TARGET cannot be combined; remove one of them")
        from operad_serve.door.target import registry_of

        return registry_of(target), Path.cwd()
    if sources and config is None:
        return OperationRegistry(load_plugins_quietly()), Path.cwd()
    path = require_configuration(config)
    with quiet_plugins():
        registry = OperationRegistry.from_config(path, profile=chosen_profile())
    return registry, path if path.is_dir() else path.parent
