"""``operad mcp-config``: what an MCP host's configuration has to say to find this server."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click

from operad import ConfigError
from operad_cli import plain
from operad_cli.adhoc import AdHocSources, adhoc_options
from operad_cli.options import chosen_profile, config_option, debug_option, require_configuration

Host = Literal["claude", "vscode", "cursor"]
HOSTS: tuple[Host, ...] = ("claude", "vscode", "cursor")


def stdio_entry(host: Host, name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The configuration with which a host starts ``operad serve --mcp stdio`` itself.

    Args:
        host: whose configuration it is.
        name: what the host calls the server.
        arguments: further arguments; paths in them have to be absolute, a host starts it anywhere.
    """
    # Absolute: a host has another PATH, and this environment is the one that has the plugins.
    beside = shutil.which("operad", path=str(Path(sys.executable).parent))
    command = [beside] if beside else [sys.executable, "-m", "operad_cli.main"]
    entry: dict[str, Any] = {"command": command[0], "args": [*command[1:], "serve", "--mcp", "stdio", *arguments]}
    if host == "vscode":
        return {"servers": {name: {"type": "stdio", **entry}}}
    return {"mcpServers": {name: entry}}


def url_entry(host: Host, name: str, url: str) -> dict[str, Any]:
    """The configuration with which a host connects to a server that runs already. Raises `ConfigError`."""
    if host == "vscode":
        return {"servers": {name: {"type": "http", "url": url}}}
    if host == "cursor":
        return {"mcpServers": {name: {"url": url}}}
    # Claude Desktop starts processes only; this one is the usual bridge.
    if "://" not in url:
        raise ConfigError(f'expected a URL such as http://127.0.0.1:8000/mcp, got "{url}"')
    return {"mcpServers": {name: {"command": "npx", "args": ["-y", "mcp-remote", url]}}}


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
