"""The transport over a WebSocket hub."""

from __future__ import annotations

from typing import Any

from operad.plugin import Capabilities, Link, OnEvent, OnLink, check_options, record
from operad_websocket.config import WebSocketConfig, capabilities


@record
class WebSocketTransport(WebSocketConfig):
    """A transport over a WebSocket hub, with the arguments of `WebSocketConfig`."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities: a hub knows which peers are connected, and the identity of each."""
        return capabilities(self.max_payload)

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        """Return a new link, connected to a hub.

        Raises:
            LinkDownError: no hub responds.
            TransportError: a hub refuses the connection.
            ConfigError: a file of ``tls_ca``, ``tls_cert`` or ``tls_key`` cannot be used.
        """
        from operad_websocket.spoke import SpokeLink  # aiohttp takes 0.1 s to import

        link = SpokeLink(self, on_event, on_link)
        await link.start()
        return link


def create(url: str, **options: Any) -> WebSocketTransport:
    """Return the transport of a URL, with arguments of `WebSocketTransport`. Raises `ConfigError` for bad ones."""
    return check_options(options, WebSocketTransport, where="ws transport", given={"url": url})
