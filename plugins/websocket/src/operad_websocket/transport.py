"""`WebSocketTransport`: how to reach a hub."""

from __future__ import annotations

import asyncio
import errno
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import attrs

from operad.plugin import Capabilities, Link, LinkDownError, OnEvent, OnLink, TransportError, check_options
from operad_websocket.config import WebSocketConfig, shown

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientWebSocketResponse, WSServerHandshakeError

SUBPROTOCOL = "operad.v1"
HEADROOM = 64 * 2**10
"""What a hub may add to an event, in bytes: the identity that it stamps, and an address."""


def capabilities(max_payload: int) -> Capabilities:
    """What a hub can do."""
    return Capabilities(
        max_payload=max_payload,
        balances=True,
        detects_no_responders=True,
        detects_peer_loss=True,
        authenticates_peer=True,
    )


@attrs.frozen(eq=False, repr=False)
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

    async def connect(self, session: ClientSession) -> ClientWebSocketResponse:
        """One attempt, at each hub in turn. Raises `TransportError`."""
        errors: list[TransportError] = []
        for url in self.urls:
            try:
                return await self._connect(session, url)
            except TransportError as error:
                errors.append(error)
        # What a hub said of itself tells more than that another one is not there.
        raise next((error for error in errors if not isinstance(error, LinkDownError)), errors[0])

    async def _connect(self, session: ClientSession, url: str) -> ClientWebSocketResponse:
        from aiohttp import ClientError, WSServerHandshakeError

        from operad_websocket._direct import make_direct

        headers = dict(self.headers or {})
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            async with asyncio.timeout(self.connect_timeout):
                socket = await session.ws_connect(
                    url,
                    protocols=(SUBPROTOCOL,),
                    headers=headers,
                    autoping=False,  # see `SpokeLink._beat`
                    max_msg_size=self.max_payload + HEADROOM,
                    ssl=self.ssl_context() or True,
                    compress=0,
                )
                make_direct(socket, self.max_payload + HEADROOM)
                return socket
        except WSServerHandshakeError as error:
            raise TransportError(f"{shown(url)} refuses the connection: {_refusal(error)}") from None
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            reason = _reason(error).replace(url, shown(url)) or f"no answer within {self.connect_timeout:g} s"
            raise LinkDownError(f"{shown(url)} cannot be reached: {reason}") from None


def create(url: str, **options: Any) -> WebSocketTransport:
    """The transport of a URL; ``options`` are the arguments of `WebSocketTransport`. Raises `ConfigError`."""
    return check_options(options, WebSocketTransport, where="ws transport", given={"url": url})


def _refusal(error: WSServerHandshakeError) -> str:
    if error.status == HTTPStatus.UNAUTHORIZED:
        return "401: the hub wants to know who connects, and the token is missing or wrong"
    if error.status in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
        return f"{error.status}: what answers there is an HTTP server and no hub"
    return f"{error.status} {error.message}"


def _reason(error: BaseException) -> str:
    """Why there is no connection; empty if the error does not say."""
    from aiohttp import ClientConnectorCertificateError, ClientConnectorError

    if not isinstance(error, ClientConnectorError) or isinstance(error, ClientConnectorCertificateError):
        return str(error)
    # aiohttp's own text repeats the address and says "ssl:default" without TLS.
    cause = error.os_error
    if cause.errno == errno.ECONNREFUSED:
        return "nobody listens there; `operad hub` starts a hub"
    return cause.strerror or str(cause)
