"""`WebSocketTransport`: how to reach a hub."""

from __future__ import annotations

from typing import Any

from operad.plugin import Capabilities, Link, OnEvent, OnLink, check_options, record
from operad_websocket.config import WebSocketConfig, capabilities


@record
class WebSocketTransport(WebSocketConfig):
    """A hub, or one of several, as `WebSocketConfig` says; its arguments are the same."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do: it knows who is there, and who is who."""
        return capabilities(self.max_payload)

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        """Connect.

        Raises:
            LinkDownError: no hub answers.
            TransportError: the hub refuses the connection.
            ConfigError: a file of ``tls_ca``, ``tls_cert`` or ``tls_key`` cannot be used.
        """
        from operad_websocket.spoke import SpokeLink  # aiohttp takes 0.1 s to import

        link = SpokeLink(self, on_event, on_link)
        await link.start()
        return link


def create(url: str, **options: Any) -> WebSocketTransport:
    """The transport of a URL; ``options`` are the arguments of `WebSocketTransport`. Raises `ConfigError`."""
    return check_options(options, WebSocketTransport, where="ws transport", given={"url": url})
