"""Checks of ``Host`` and ``Origin``: a page whose host name resolves to 127.0.0.1 must get no response."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from operad_auth.http.urls import is_loopback_host

_SINGLE = frozenset({b"authorization", b"content-length", b"content-type", b"host", b"origin"})
"""Headers that a request may have only once: they decide its caller, target, origin and content."""
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class HostRules:
    """The values of ``Host`` and ``Origin`` that one server accepts.

    Args:
        hosts: allowed values of ``Host``, with or without a port; ``*`` allows every value. Loopback
            addresses and Unix sockets also allow the names of this machine. Any other address allows every value
            if there are no hosts.
        origins: origins whose pages may send requests; ``*`` allows every origin.
    """

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def refusal(
        self, server: Sequence[Any] | None, host: str | None, origin: str | None
    ) -> tuple[int, str] | None:
        """Return the HTTP status and the reason to refuse a request, or ``None`` if it is allowed.

        ``Origin`` is checked only on loopback addresses and Unix sockets. Pages of ``host`` itself are allowed.

        Args:
            server: the address and port of the server, as in ASGI's ``scope["server"]``; the path and ``None`` of
                a Unix socket, for which the names of this machine are allowed too.
            host: the header ``Host``; ``None`` if it is missing.
            origin: the header ``Origin``; ``None`` if it is missing.
        """
        local = is_loopback(server) or _is_unix(server)
        if not self._is_host(host, local):
            if not host:
                return 421, "expected the header Host, got none"
            return 421, f'Host "{_shown(host)}" is not served here; add it to allowed_hosts'
        if origin is None or not local or self.allows_origin(origin) or _is_same(origin, host):
            return None
        return 403, f'a page of origin "{_shown(origin)}" may not send requests; add it to allowed_origins'

    @staticmethod
    def ambiguity(headers: Sequence[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        """Return the HTTP status and the reason to refuse an ambiguous request; ``None`` if it is unambiguous.

        A proxy and this server may see different values of ``Host`` or ``Authorization`` in such a request, or
        different lengths of its body (RFC 9112, 6.1 and 11.2).

        Args:
            headers: names in lower case and values, as in ASGI's ``scope["headers"]``.
        """
        seen = dict(headers)
        if len(seen) == len(headers) and b"transfer-encoding" not in seen:  # of all requests but a few
            return None
        names = [name for name, _ in headers]
        if b"transfer-encoding" in seen and b"content-length" in seen:
            return 400, "expected Content-Length or Transfer-Encoding, got both"
        if len(seen) < len(names):
            for name in sorted(_SINGLE & seen.keys()):
                if names.count(name) > 1:
                    return 400, f"the header {name.decode().title()} is present more than once; expected one"
        return None

    def allows_origin(self, origin: str) -> bool:
        """Return True if pages of an origin may read the responses (CORS)."""
        return "*" in self._origins or origin.lower() in self._origins

    def _is_host(self, host: str | None, local: bool) -> bool:
        if "*" in self._hosts or not (local or self._hosts):
            return True
        if host is None:
            return False
        name = host.lower()
        bare = _without_port(name)
        return name in self._hosts or bare in self._hosts or (local and bare in _LOOPBACK_NAMES)


def is_loopback(server: Sequence[Any] | None) -> bool:
    """Return True if only this machine can reach an address ``(host, …)``; False for ``None``."""
    return bool(server) and is_loopback_host(str(server[0]))  # type: ignore[index]  # not None here


def _is_unix(server: Sequence[Any] | None) -> bool:
    """Return True for a Unix socket. A proxy before the socket may pass on any ``Host`` of a browser."""
    return server is not None and len(server) > 1 and server[1] is None


def _without_port(host: str) -> str:
    head, colon, port = host.rpartition(":")
    return head if colon and port.isdigit() else host


def _is_same(origin: str, host: str | None) -> bool:
    """Return True if the page came from this server. Schemes are not compared: behind a proxy they may differ."""
    try:
        return host is not None and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _shown(text: str | None) -> str:
    return "".join(c if c.isprintable() else "?" for c in (text or ""))[:100]
