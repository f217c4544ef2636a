"""The download of client documents, whose URLs the clients choose: bounded, from public addresses by default.

A name can be public when it is checked and private when the connection is made (DNS rebinding), so the connection
goes to the address that was checked. No proxy is used, and no redirect is followed.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

from operad_auth.fetching import unavailable

MAX_DOCUMENT = 16 * 1024
"""The largest document, in bytes."""
_TIMEOUT = 5.0
"""Seconds for the connection, and for the whole response."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class _Connection(http.client.HTTPSConnection):
    """A connection to an address that was checked. Its certificate must be for the host's name."""

    def __init__(self, host: str, address: Any, context: ssl.SSLContext) -> None:
        super().__init__(host, timeout=_TIMEOUT)
        self._address, self._tls = address, context

    def connect(self) -> None:
        plain = socket.create_connection(self._address[:2], _TIMEOUT)
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


async def fetch_document(url: str, *, is_private: bool) -> bytes:
    """Return the document at an HTTPS URL.

    Args:
        url: the URL.
        is_private: whether the host may have a private address.

    Raises:
        CallError: ``UNAVAILABLE`` if the host has a private address although ``is_private`` is False, or the
            document cannot be fetched in 10 s or has more than `MAX_DOCUMENT` bytes.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    try:
        async with asyncio.timeout(_TIMEOUT):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        raise unavailable(url, "its name cannot be resolved") from None
    addresses = [address[4] for address in found]
    if not addresses or not (is_private or all(_is_public(str(address[0])) for address in addresses)):
        raise unavailable(url, "its address is not public; add the host to client_hosts in [serve.oauth]")
    connection = _Connection(host, addresses[0], ssl.create_default_context())
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    reading = asyncio.ensure_future(asyncio.to_thread(_read, connection, target, url))
    done, _ = await asyncio.wait([reading], timeout=2 * _TIMEOUT)
    if not done:
        # A thread cannot be cancelled. Without its socket it ends with an error.
        with contextlib.suppress(OSError, AttributeError):  # it may not be connected yet
            connection.sock.shutdown(socket.SHUT_RDWR)
        reading.add_done_callback(lambda task: task.exception())
        raise unavailable(url, f"it took more than {2 * _TIMEOUT:g} s")
    return reading.result()


def _read(connection: _Connection, target: str, url: str) -> bytes:
    try:
        connection.request("GET", target, headers={"Accept": "application/json", "Connection": "close"})
        with connection.getresponse() as response:
            if response.status != 200:
                hint = "; redirects are not followed" if 300 <= response.status < 400 else ""
                raise unavailable(url, f"expected HTTP 200, got HTTP {response.status}{hint}")
            content = response.read(MAX_DOCUMENT + 1)
        if len(content) > MAX_DOCUMENT:
            raise unavailable(url, f"it has more than {MAX_DOCUMENT} bytes")
        return content
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise unavailable(url, type(error).__name__) from None
    finally:
        connection.close()


def _is_public(address: str) -> bool:
    """Return True for a public address. Of the IPv6 addresses for IPv4, only the mapped ones can be public."""
    try:
        ip: Any = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # what cannot be checked is refused
        return False
    if ip.version == 6:
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip.sixtofour is not None or ip in _NAT64:
            return False  # it leads to an IPv4 address, which may be private
    return bool(ip.is_global and not ip.is_multicast)
