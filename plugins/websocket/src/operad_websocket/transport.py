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
        """The capabilities: hubs balance requests, authenticate peers, report lost peers and missing handlers."""
        return capabilities(self.max_payload)

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        """Return a new link, connected to a hub.

        Raises:
            LinkDownError: no hub can be reached.
            TransportError: no hub accepts the connection, and at least one hub refuses it.
            ConfigError: a file of ``tls_ca``, ``tls_cert`` or ``tls_key`` cannot be used.
        """
        from operad_websocket.spoke import SpokeLink  # aiohttp takes 0.1 s to import

        link = SpokeLink(self, on_event, on_link)
        await link.start()
        return link


def create(url: str, **options: Any) -> WebSocketTransport:
    """Return the transport for a URL with options of `WebSocketConfig`. Raises `ConfigError` if one is invalid."""
    return check_options(options, WebSocketTransport, where="ws transport", given={"url": url})
