"""The command ``operad mcp-config``, which makes the entry for operad in the configuration of an MCP host."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from operad_cli.adhoc import AdHocSources, adhoc_options
from operad_cli.mcp_hosts import HOSTS, host_file, install, stdio_entry, url_entry
from operad_cli.options import chosen_profile, config_option, debug_option, require_configuration
from operad_cli.output.text import print_json, print_text


@click.command(name="mcp-config")
@click.option("--host", type=click.Choice(HOSTS), default="claude", show_default=True, help="The MCP host.")
@click.option("--install", "target", type=click.Choice(HOSTS), help="Write the entry into the file of this host.")
@click.option("--print", "only_print", is_flag=True, help="Print the entry only. This is the default.")
@click.option("--name", default="operad", show_default=True, help="The server's name in the host.")
@click.option("--url", help="URL of a running server, such as http://127.0.0.1:8000/mcp.")
@adhoc_options
@config_option
@debug_option
def mcp_config(
    host: Any,
    target: Any,
    only_print: bool,
    name: str,
    url: str | None,
    openapi: tuple[str, ...],
    base_url: str | None,
    headers: tuple[tuple[str, str], ...],
    mcp_servers: tuple[str, ...],
    config: Path | None,
) -> int:
    """Print the entry for an MCP host's configuration, or install it.

    With this entry the host starts `operad serve --mcp stdio`, or connects to --url. --install writes the entry to
    the host's file and keeps a copy of the old file. The entry has the environment variables ${NAME} of the
    configuration, and the headers that the host sends to --url. --install writes their values, because a host does
    not know the environment of your shell. A printed entry has placeholders such as <value of NAME>.

    \b
    operad mcp-config --install cursor
    operad mcp-config --url http://127.0.0.1:8000/mcp --header 'X-Key=${KEY}'
    """
    if target is not None and only_print:
        raise click.UsageError("--install and --print cannot be combined; remove one of them")
    host = target or host
    if url is not None:
        shown = {header: value if target is not None else f"<value of {header}>" for header, value in headers}
        _deliver(target, url_entry(host, name, url, shown))
        return 0
    sources = AdHocSources(openapi, mcp_servers, base_url, headers)
    if headers:
        raise click.UsageError(
            "--header requires --url; put the headers of a source into [sources.NAME] of an operad.toml"
        )
    arguments, env = sources.arguments(), dict[str, str]()
    if not sources or config is not None:
        path = os.path.abspath(require_configuration(config))
        arguments += ["--config", path]
        env = _environment(Path(path), with_values=target is not None)
        if (profile := chosen_profile()) is not None:
            arguments += ["--profile", profile]
    _deliver(target, stdio_entry(host, name, arguments, env))
    return 0


def _deliver(target: Any, entry: dict[str, Any]) -> None:
    """Install an entry, or print it if there is no host to install it for."""
    if target is None:
        print_json(entry)
        return
    path = host_file(target)
    backup = install(path, entry)
    kept = "" if backup is None else f"; the old file is {backup}"
    print_text(f"Wrote the entry into {path}{kept}", sys.stderr)
    print_text(f"Restart {target} to use it", sys.stderr)


_VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)\})")


def _environment(path: Path, *, with_values: bool) -> dict[str, str]:
    """Return the environment variables of a configuration, with their values or with placeholders."""
    from operad import ConfigError
    from operad.config import load_configuration

    configuration = load_configuration(path, chosen_profile())
    found = sorted({name for text in _texts(configuration.tables) for name in _VARIABLE.findall(text) if name})
    if with_values and (unset := [name for name in found if name not in os.environ]):
        raise ConfigError(
            f"{path}: environment variables that are required but not set: {', '.join(unset)}; set them before "
            "you use --install"
        )
    return {name: os.environ[name] if with_values else f"<value of {name}>" for name in found}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
