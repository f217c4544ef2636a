"""Origins of URLs (RFC 6454), and checks for hosts of private networks."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
_DEFAULT_PORT = re.compile(r"^(http://[^/?#]*(?=:80(?:[/?#]|$))|https://[^/?#]*(?=:443(?:[/?#]|$))):\d+")


def origin_of(url: str) -> str:
    """Return ``scheme://host:port`` of an http or https URL in lower case (RFC 6454), also with a default port.

    Returns ``""`` if the URL is invalid or has no host.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return ""
    host = (parts.hostname or "").lower()
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}" if host else ""


def without_default_port(url: str) -> str:
    """Return ``url`` without the default port of its scheme: ``:80`` of http, ``:443`` of https."""
    return _DEFAULT_PORT.sub(r"\1", url)


def is_private_host(host: str | None) -> bool:
    """Return True if a host is ``localhost``, an address that is not public, or a number such as ``127.1``.

    Other names are not resolved.
    """
    if not host:
        return False
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        # 127.1, 0x7f.1 and 2130706433 are addresses to most resolvers, and no document needs them.
        return re.fullmatch(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}", host) is not None
    return not address.is_global or address.is_multicast


def is_link_local_host(host: str | None) -> bool:
    """Return True if ``host`` is a link-local address (169.254.0.0/16, fe80::/10). Names are not resolved."""
    try:
        address = ipaddress.ip_address((host or "").strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_link_local
