"""The entries for operad in the configuration of MCP hosts."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from operad import ConfigError

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
