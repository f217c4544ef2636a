"""What servers offered the last time, in the user's cache folder, for those that start with their first call."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import msgspec

from operad_auth.http.cache_files import recall, remember
from operad_mcp.config import MCPClientConfig

Json = dict[str, Any]
logger = logging.getLogger("operad.mcp")
_KIND = "mcp"


def remembered(config: MCPClientConfig) -> tuple[Json, Json] | None:
    """Return the capabilities and the listings of a server; None if they are not known."""
    found = recall(_KIND, _identity(config), None)
    is_whole = isinstance(found, list) and len(found) == 2 and all(isinstance(part, dict) for part in found)
    return (found[0], found[1]) if is_whole else None


def keep(config: MCPClientConfig, capabilities: Json, listed: Json) -> None:
    """Remember what a server offers. That this does not succeed costs a start the next time."""
    try:
        remember(_KIND, _identity(config), None, [capabilities, listed])
    except (ValueError, TypeError, RecursionError) as error:
        logger.debug("what a server offers is not remembered: %s", error)


def _identity(config: MCPClientConfig) -> str:
    """Return where a server is and all that it is given, as a hash: secrets are among it."""
    auth = config.auth
    given = [
        config.command, config.args, sorted(config.env.items()), config.cwd, config.url, config.transport,
        sorted(config.headers.items()),
        None if auth is None else [auth.type, auth.token, auth.client_id, auth.account],
    ]  # fmt: skip
    return hashlib.sha256(msgspec.json.encode(given)).hexdigest()[:32]
