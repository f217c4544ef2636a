"""The transport over a Redis server."""

from __future__ import annotations

from typing import Any

import attrs

from operad.plugin import Capabilities, Link, OnEvent, OnLink, check_options, client_tls
from operad_redis.config import RedisConfig


@attrs.frozen(kw_only=True)
class RedisTransport(RedisConfig):
    """A transport over Redis, with the arguments of `RedisConfig`."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities: balanced requests, redelivery if a worker is lost, reports of missing handlers."""
        return Capabilities(
            max_payload=self.max_payload, balances=True, redelivers=True, detects_no_responders=True
        )

    async def open(self, on_event: OnEvent, on_link: OnLink) -> Link:
        """Return a new link, connected to the server.

        Raises:
            LinkDownError: the server cannot be reached, or refuses the credentials.
            ConfigError: a file of ``tls_ca``, ``tls_cert`` or ``tls_key`` cannot be used.
        """
        from operad_redis.link import RedisLink  # redis-py costs 150 ms to import

        client_tls(
            self.tls_ca, self.tls_cert, self.tls_key
        )  # redis-py reads them again, but its errors name no file
        link = RedisLink(self, on_event, on_link)
        await link.connect()
        return link


def create(url: str, **options: Any) -> RedisTransport:
    """Return the transport for a URL with options of `RedisConfig`. Raises `ConfigError` if one is invalid."""
    return check_options(options, RedisTransport, where="redis transport", given={"url": url})
