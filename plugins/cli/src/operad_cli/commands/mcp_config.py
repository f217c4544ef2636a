"""``operad mcp-config``: the entry for operad in the configuration of an MCP host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from operad_cli.adhoc import AdHocSources, adhoc_options
from operad_cli.mcp_hosts import HOSTS, stdio_entry, url_entry
from operad_cli.options import chosen_profile, config_option, debug_option, require_configuration
from operad_cli.output.text import print_json


@click.command(name="mcp-config")
@click.option("--host", type=click.Choice(HOSTS), default="claude", show_default=True, help="The MCP host.")
@click.option("--name", default="operad", show_default=True, help="The server's name in the host.")
@click.option("--url", help="URL of a running server, such as http://127.0.0.1:8000/mcp.")
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
    """Print the entry for an MCP host's configuration.

    With this entry the host starts `operad serve --mcp stdio`, or connects to --url.
    """
    if url is not None:
        print_json(url_entry(host, name, url))
        return 0
    sources = AdHocSources(openapi, mcp_servers, base_url, headers)
    if headers:
        raise click.UsageError(
            "--header would put the header into the host's configuration; put it into an operad.toml"
        )
    arguments = sources.arguments()
    if not sources or config is not None:
        arguments += ["--config", str(require_configuration(config).absolute())]
        if (profile := chosen_profile()) is not None:
            arguments += ["--profile", profile]
    print_json(stdio_entry(host, name, arguments))
    return 0
