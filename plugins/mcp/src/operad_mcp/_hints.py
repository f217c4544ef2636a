"""What to do about a server that cannot be had."""

from __future__ import annotations

import os
from pathlib import Path

from operad import CallError
from operad_mcp.config import MCPClientConfig


def not_started(config: MCPClientConfig, error: OSError) -> str:
    """Why a program was not started, and what to do about it.

    Args:
        config: names the program.
        error: what the system said.
    """
    command = config.command or ""
    reason = error.strerror or str(error)
    if config.cwd is not None and not Path(config.cwd).is_dir():
        return f"{command} cannot be started: its folder {config.cwd} does not exist"
    hint = ""
    if command.startswith("~"):
        hint = f"; ~ is not expanded, write {os.path.expanduser(command)}"
    elif " " in command.strip():
        hint = "; arguments belong in args, not in command"
    return f"{command} cannot be started: {reason}{hint}"


def not_loaded(config: MCPClientConfig, error: CallError) -> str:
    """What to do about a server that refused, or nothing."""
    details = error.details if isinstance(error.details, dict) else {}
    status = details.get("statusCode")
    if status in (401, 403):
        return "; give it auth or headers" if config.auth is None else "; its auth is not accepted"
    if status in (404, 405) and config.url is not None:
        other = "sse" if config.transport == "http" else "http"
        return f'; is the path right, and is it not transport = "{other}"?'
    return ""
