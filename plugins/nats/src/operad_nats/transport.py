"""The transport over a NATS server or cluster."""

from __future__ import annotations

from typing import Any

import attrs

from operad.plugin import Capabilities, Link, OnEvent, OnLink, check_options
from operad_nats.config import NATSConfig


@attrs.frozen(kw_only=True)
class NATSTransport(NATSConfig):
    """A transport over NATS, with the arguments of `NATSConfig`."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities. With ``durable``, requests are stored, and may be delivered again."""
        return Capabilities(
            max_payload=self.max_payload,
            balances=True,
            redelivers=self.durable,
            detects_no_responders=True,
            stores=self.durable,
        )

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        """Return a new link, connected to a server.

        Raises:
            LinkDownError: no server can be reached, or the server refuses the credentials.
            TransportError: ``durable`` is set, and JetStream is missing, refuses or does not respond.
            ConfigError: a file of ``tls``, ``tls_ca``, ``tls_cert`` or ``tls_key`` cannot be used.
        """
        from operad_nats.link import NATSLink  # nats-py costs 60 ms to import

        link = NATSLink(self, on_event, on_link)
        await link.connect()
        return link


def create(url: str, **options: Any) -> NATSTransport:
    """Return the transport for a URL with options of `NATSConfig`. Raises `ConfigError` if one is invalid."""
    return check_options(options, NATSTransport, where="nats transport", given={"servers": url.split(",")})
