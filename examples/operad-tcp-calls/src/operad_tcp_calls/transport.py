"""The transport object: an address and its options."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import attrs

from operad import ConfigError
from operad.plugin import check_options


@attrs.frozen(kw_only=True)
class TCP:
    """The address of a call server. It only holds options; the call map and the call server connect and listen."""

    url: str
    connect_timeout: float = 5.0
    """The maximum time to connect, in seconds."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port. Raises `ValueError` if one is missing."""
        parts = urlsplit(self.url)
        if not parts.hostname or not parts.port:
            raise ValueError("host or port is missing")
        return parts.hostname, parts.port


def create(url: str, **options: Any) -> TCP:
    """Return the transport for a URL, without connecting. Raises `ConfigError` for an invalid URL or option."""
    transport = check_options(options, TCP, where="tcp transport", given={"url": url})
    try:
        _ = transport.address
    except ValueError as error:
        raise ConfigError(f"expected tcp://HOST:PORT, got {url!r}: {error}") from None
    return transport
