"""The entries for operad in the configuration files of MCP hosts."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from operad import ConfigError

Host = Literal["claude", "vscode", "cursor"]
HOSTS: tuple[Host, ...] = ("claude", "vscode", "cursor")


def stdio_entry(host: Host, name: str, arguments: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration of a host that starts ``operad serve --mcp stdio`` itself.

    Args:
        host: the MCP host, which decides the form of the configuration.
        name: the server's name in the host.
        arguments: further arguments. Paths must be absolute, because a host starts the server in any folder.
        env: the environment variables that the server needs. A host does not pass on the variables of a shell.
    """
    # An absolute path: the host has another PATH, and only this environment has the plugins.
    beside = shutil.which("operad", path=str(Path(sys.executable).parent))
    command = [beside] if beside else [sys.executable, "-m", "operad_cli.main"]
    entry: dict[str, Any] = {"command": command[0], "args": [*command[1:], "serve", "--mcp", "stdio", *arguments]}
    if env:
        entry["env"] = dict(env)
    if host == "vscode":
        return {"servers": {name: {"type": "stdio", **entry}}}
    return {"mcpServers": {name: entry}}


def url_entry(host: Host, name: str, url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration of a host that connects to a running server and sends ``headers``.

    Raises `ConfigError` if the host is ``claude`` and the URL has no scheme.
    """
    if host != "claude":
        entry: dict[str, Any] = {"type": "http"} if host == "vscode" else {}
        entry |= {"url": url, "headers": dict(headers)} if headers else {"url": url}
        return {"servers" if host == "vscode" else "mcpServers": {name: entry}}
    # Claude Desktop only starts processes. mcp-remote connects to a URL for it.
    if "://" not in url:
        raise ConfigError(f'--url: expected the URL of a server, such as http://127.0.0.1:8000/mcp, got "{url}"')
    arguments, env = ["-y", "mcp-remote", url], dict[str, str]()
    for header, value in headers.items():  # in env, because other users can read the command line of a process
        variable = f"{re.sub('[^A-Z0-9]', '_', header.upper())}_HEADER"
        arguments += ["--header", f"{header}:${{{variable}}}"]
        env[variable] = value
    return {"mcpServers": {name: {"command": "npx", "args": arguments} | ({"env": env} if env else {})}}


def host_file(host: Host) -> Path:
    """Return the path of the current user's configuration file of a host."""
    home = Path.home()
    if host == "cursor":
        return home / ".cursor" / "mcp.json"
    folder, name = ("Claude", "claude_desktop_config.json") if host == "claude" else ("Code/User", "mcp.json")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / folder / name
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", home)) / folder / name
    return Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / folder / name


def install(path: Path, entry: Mapping[str, Any]) -> Path | None:
    """Add an entry to the configuration file of a host. Other entries stay; an entry of the same name is replaced.

    Return the path of a copy of the old file; None if there was no file.

    Raises:
        ConfigError: the file is not a JSON object without comments. The file stays unchanged.
    """
    old = path.read_bytes() if path.exists() else None
    try:
        whole = json.loads(old.decode("utf-8-sig")) if old and old.strip() else {}
    except ValueError as error:  # VS Code allows comments, which would be lost
        raise ConfigError(f"{path}: expected JSON without comments: {error}; add the entry by hand") from None
    for key, servers in entry.items():
        if not isinstance(whole, dict) or not isinstance(whole.setdefault(key, {}), dict):
            place, value = (f"{key}: ", whole[key]) if isinstance(whole, dict) else ("", whole)
            got = type(value).__name__
            raise ConfigError(f"{path}: {place}expected a JSON object, got {got}; add the entry by hand")
        whole[key].update(servers)
    backup = None
    if old is not None:
        names = (path.with_name(f"{path.name}.bak{number or ''}") for number in itertools.count())
        backup = next(name for name in names if not name.exists())
        shutil.copy2(path, backup)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.touch(mode=0o600)  # the entry may have secrets in env
    if old is not None:
        shutil.copymode(path, fresh)
    fresh.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    fresh.replace(path)
    return backup
