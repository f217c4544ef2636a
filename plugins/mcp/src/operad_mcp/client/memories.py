"""What servers offered the last time, in the user's cache folder, for those that start with their first call."""

from __future__ import annotations

import hashlib
import logging
import os
from typing import Any

import msgspec

from operad_auth.http.cache_files import cache_folder, read_private, write_private
from operad_mcp.config import MCPClientConfig

Json = dict[str, Any]
logger = logging.getLogger("operad.mcp")


class Memory:
    """The remembered listings of one server.

    Args:
        config: of the server. Where it is, and all that it is given, is its identity; of that only a hash is kept.
    """

    def __init__(self, config: MCPClientConfig) -> None:
        digest = hashlib.sha256(msgspec.json.encode(_identity(config))).hexdigest()[:32]
        self.path = os.path.join(cache_folder(), "mcp", f"{digest}.json")

    def read(self) -> tuple[Json, Json] | None:
        """The capabilities and the listings, or ``None``."""
        try:
            found = msgspec.json.decode(read_private(self.path) or b"null")
            if isinstance(found["capabilities"], dict) and isinstance(found["listed"], dict):
                return found["capabilities"], found["listed"]
        except (ValueError, TypeError, KeyError, RecursionError):
            pass  # never seen, or not as we wrote it: then the server is asked
        return None

    def write(self, capabilities: Json, listed: Json) -> None:
        """Remember what a server offers. That this does not succeed costs a start the next time."""
        try:
            content = msgspec.json.encode({"capabilities": capabilities, "listed": listed})
        except (ValueError, OverflowError, RecursionError) as error:
            logger.debug("what a server offers is not remembered: %s", error)
        else:
            write_private(self.path, content)


def _identity(config: MCPClientConfig) -> list[Any]:
    """Where a server is, and all that it is given; it holds secrets, and is for hashing alone."""
    auth = config.auth
    return [
        config.command, config.args, sorted(config.env.items()), config.cwd, config.url, config.transport,
        sorted(config.headers.items()),
        None if auth is None else [auth.type, auth.token, auth.client_id, auth.account],
    ]  # fmt: skip
