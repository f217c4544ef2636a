"""The connections of a spoke to its hub, and the reasons why a connection fails."""

from __future__ import annotations

import asyncio
import errno
from http import HTTPStatus
from typing import Any, Literal

import attrs
from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    TraceConfig,
    TraceRequestEndParams,
    WSServerHandshakeError,
)

from operad.plugin import LinkDownError, TransportError
from operad_auth.http.urls import shown_url
from operad_websocket._wire import Wire
from operad_websocket.config import HEADROOM, MAX_PAYLOAD_HEADER, SUBPROTOCOL, WebSocketConfig

_DIGITS = 15


@attrs.frozen
class Connected:
    """An open connection to a hub."""

    socket: ClientWebSocketResponse[Literal[False]]
    wire: Wire
    max_payload: int
    """The maximum size of an event, in bytes."""


class Connecting:
    """A factory of the connections of a spoke, which needs a new one after each loss.

    Args:
        config: the options of the connections.
    """

    def __init__(self, config: WebSocketConfig) -> None:
        self._config = config
        self._response: ClientResponse | None = None
        # The response has the connection and the headers; the WebSocket that aiohttp makes of it has neither.
        trace = TraceConfig()
        trace.on_request_end.append(self._on_response)
        self._session = ClientSession(timeout=ClientTimeout(total=None), trace_configs=[trace])

    async def _on_response(self, session: Any, context: Any, end: TraceRequestEndParams) -> None:
        self._response = end.response

    async def connect(self) -> Connected:
        """Return a connection to the first hub that accepts it.

        Raises:
            LinkDownError: no hub can be reached.
            TransportError: no hub accepts the connection, and at least one hub refuses it.
            ConfigError: a file of certificates cannot be used.
        """
        errors: list[TransportError] = []
        for url in self._config.urls:
            try:
                return await self._connect(url)
            except TransportError as error:
                errors.append(error)
        # A hub's own refusal explains more than a hub that does not respond.
        raise next((error for error in errors if not isinstance(error, LinkDownError)), errors[0])

    async def close(self) -> None:
        """Close the HTTP session, and with it every connection; idempotent."""
        await self._session.close()

    async def _connect(self, url: str) -> Connected:
        config = self._config
        headers = dict(config.headers or {})
        if config.token is not None:
            headers["Authorization"] = f"Bearer {config.token}"
        try:
            async with asyncio.timeout(config.connect_timeout):
                socket = await self._session.ws_connect(
                    url,
                    protocols=(SUBPROTOCOL,),
                    headers=headers,
                    autoping=False,  # see `SpokeLink._beat`
                    max_msg_size=config.max_payload + HEADROOM,
                    ssl=config.ssl_context() or True,
                    compress=0,
                    decode_text=False,
                )
        except WSServerHandshakeError as error:
            raise TransportError(f"{shown_url(url)} refuses the connection: {_refusal(error)}") from None
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            reason = (
                _reason(error).replace(url, shown_url(url)) or f"no response within {config.connect_timeout:g} s"
            )
            raise LinkDownError(f"{shown_url(url)} cannot be reached: {reason}") from None
        response, self._response = self._response, None
        connection = None if response is None else response.connection
        if response is None or connection is None or connection.transport is None:
            raise LinkDownError(f"{shown_url(url)} cannot be reached: it closed the connection too early")
        return Connected(socket, Wire(connection.transport), self._carried(response))

    def _carried(self, response: ClientResponse) -> int:
        """Return the maximum size of an event in bytes: the smaller limit of the configuration and the hub.

        A larger event would end the connection, and all calls on it.
        """
        stated = response.headers.get(MAX_PAYLOAD_HEADER, "")
        if stated.isascii() and stated.isdigit() and len(stated) <= _DIGITS:
            return min(self._config.max_payload, int(stated))
        return self._config.max_payload


def _refusal(error: WSServerHandshakeError) -> str:
    if error.status == HTTPStatus.UNAUTHORIZED:
        return "401: the hub requires authentication, and the token is missing or invalid; set a valid token"
    if error.status in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
        return f"{error.status}: expected a hub, got another HTTP server; check the URL"
    return f"{error.status} {error.message}"


def _reason(error: BaseException) -> str:
    """Return the reason why a connection failed; empty if the error states none."""
    if not isinstance(error, ClientConnectorError) or isinstance(error, ClientConnectorCertificateError):
        return str(error)
    # aiohttp's own text repeats the address and contains "ssl:default" without TLS.
    cause = error.os_error
    if cause.errno == errno.ECONNREFUSED:
        return "no process listens there; start a hub with `operad hub`"
    return cause.strerror or str(cause)
