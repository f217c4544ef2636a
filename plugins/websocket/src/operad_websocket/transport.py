"""`WebSocketTransport`: reaches a hub."""

from __future__ import annotations

from typing import Any

from operad.plugin import Capabilities, Link, OnEvent, OnLink, check_options, record
from operad_websocket.config import WebSocketConfig, capabilities


@record
class WebSocketTransport(WebSocketConfig):
    """Reaches a hub, or one of several. The arguments are those of `WebSocketConfig`."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities: a hub knows which peers are connected, and who they are."""
        return capabilities(self.max_payload)

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        """Connect.

        Raises:
            LinkDownError: no hub responds.
            TransportError: the hub refuses the connection.
            ConfigError: a file of ``tls_ca``, ``tls_cert`` or ``tls_key`` cannot be used.
        """
        from operad_websocket.spoke import SpokeLink  # aiohttp takes 0.1 s to import

        link = SpokeLink(self, on_event, on_link)
        await link.start()
        return link


def create(url: str, **options: Any) -> WebSocketTransport:
    """Return the transport for a URL; ``options`` are those of `WebSocketTransport`. Raises `ConfigError`."""
    return check_options(options, WebSocketTransport, where="ws transport", given={"url": url})
