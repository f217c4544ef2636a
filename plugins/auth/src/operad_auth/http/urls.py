"""Helpers for URLs and host names: remove secrets, recognize this machine."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from urllib.parse import urlsplit

_USER = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/?#]*@", re.IGNORECASE)

# A password with "/", "?" or "#" that is not percent-encoded. A parser takes its start as the port of a host.
_PASSWORD = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/?#@:\[]*:(?!\d*([/?#]|$)).*@", re.IGNORECASE | re.DOTALL)


def shown_url(url: str) -> str:
    """Return a URL without its user, password, query and fragment, which may be secret."""
    if "@" in url:
        url = _PASSWORD.sub(r"\1", url)
    return without_user(url.partition("?")[0].partition("#")[0])


def without_user(url: str) -> str:
    """Return a URL without the user and password before its host."""
    return _USER.sub(r"\1", url) if "@" in url else url


def origin_of(url: str) -> str:
    """Return the origin of an http or https URL: scheme, host, and port unless it is the scheme's default.

    Raises `ValueError` for any other text.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError(f'expected an http or https URL, got "{shown_url(url)}"')
    standard = {"https": 443, "http": 80}[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if parts.port in (None, standard) else f":{parts.port}")


@lru_cache(maxsize=256)
def is_loopback_host(host: str) -> bool:
    """Return True if a host name (RFC 6761, 6.3) or address always refers to this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
