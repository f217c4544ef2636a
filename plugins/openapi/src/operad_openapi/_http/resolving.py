"""Resolve host names, and reject private addresses that a document or a server chose.

A name can resolve to a public address when it is checked and to a private one when a connection is made (DNS
rebinding), so connections go only to addresses that were checked.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from operad_openapi._document.origins import is_link_local_host, is_private_host


class GuardedResolver(AbstractResolver):
    """The system's resolver, except that a host to which a public host refers must not have a private address.

    Args:
        namer_of: returns the host that refers to a host, by its document or a redirect; ``None`` if the host may
            have any address.
    """

    def __init__(self, namer_of: Callable[[str], str | None]) -> None:
        self._resolver = ThreadedResolver()  # it has nothing to close
        self._namer_of = namer_of

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of ``host``. Raises `OSError` if it has no address, or one that is not allowed."""
        found = await self._resolver.resolve(host, port, family)
        namer = self._namer_of(host)
        if namer is None or not any(is_private_host(address["host"]) for address in found):
            return found
        if await is_private(namer):
            if not any(is_link_local_host(address["host"]) for address in found) or await is_link_local(namer):
                return found
            raise OSError(
                f"{namer} refers to {host}, which has a link-local address; set trusted = true if the document "
                "names it as a server (a redirect there is never followed)"
            )
        raise OSError(f"{namer} refers to {host}, which has a private address; set trusted = true to allow it")

    async def close(self) -> None:
        """Do nothing, because the resolver has no resources to release."""


async def is_private(host: str | None) -> bool:
    """Return True if ``host`` is, or resolves to, an address of a private network."""
    return is_private_host(host) or any(map(is_private_host, await _addresses(host)))


async def is_link_local(host: str | None) -> bool:
    """Return True if ``host`` is, or resolves to, a link-local address, such as a cloud's metadata service has."""
    return is_link_local_host(host) or any(map(is_link_local_host, await _addresses(host)))


async def _addresses(host: str | None) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []  # it will not connect either
    return [str(address[4][0]) for address in found]
