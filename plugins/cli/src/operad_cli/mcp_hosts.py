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
    """Return the configuration of a host that starts ``operad serve --mcp stdio`` itself.

    Args:
        host: the host.
        name: the server's name in the host.
        arguments: further arguments. Paths must be absolute, because a host starts the server in any folder.
    """
    # An absolute path: the host has another PATH, and only this environment has the plugins.
    beside = shutil.which("operad", path=str(Path(sys.executable).parent))
    command = [beside] if beside else [sys.executable, "-m", "operad_cli.main"]
    entry: dict[str, Any] = {"command": command[0], "args": [*command[1:], "serve", "--mcp", "stdio", *arguments]}
    if host == "vscode":
        return {"servers": {name: {"type": "stdio", **entry}}}
    return {"mcpServers": {name: entry}}


def url_entry(host: Host, name: str, url: str) -> dict[str, Any]:
    """Return the configuration of a host that connects to a running server. Raise `ConfigError` if not a URL."""
    if host == "vscode":
        return {"servers": {name: {"type": "http", "url": url}}}
    if host == "cursor":
        return {"mcpServers": {name: {"url": url}}}
    # Claude Desktop only starts processes. mcp-remote connects to a URL for it.
    if "://" not in url:
        raise ConfigError(f'expected a URL such as http://127.0.0.1:8000/mcp, got "{url}"')
    return {"mcpServers": {name: {"command": "npx", "args": ["-y", "mcp-remote", url]}}}
