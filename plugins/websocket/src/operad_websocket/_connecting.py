"""One attempt to connect to a hub, and in words why there is no connection."""

from __future__ import annotations

import asyncio
import errno
from http import HTTPStatus

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientWebSocketResponse,
    WSServerHandshakeError,
)

from operad.plugin import LinkDownError, TransportError
from operad_websocket._direct import make_direct
from operad_websocket.config import HEADROOM, MAX_PAYLOAD_HEADER, SUBPROTOCOL, WebSocketConfig, shown

_DIGITS = 15


async def connect(config: WebSocketConfig, session: ClientSession) -> ClientWebSocketResponse:
    """One attempt, at each hub in turn. Raises `TransportError`."""
    errors: list[TransportError] = []
    for url in config.urls:
        try:
            return await _connect(config, session, url)
        except TransportError as error:
            errors.append(error)
    # What a hub said of itself tells more than that another one is not there.
    raise next((error for error in errors if not isinstance(error, LinkDownError)), errors[0])


async def _connect(config: WebSocketConfig, session: ClientSession, url: str) -> ClientWebSocketResponse:
    headers = dict(config.headers or {})
    if config.token is not None:
        headers["Authorization"] = f"Bearer {config.token}"
    try:
        async with asyncio.timeout(config.connect_timeout):
            socket = await session.ws_connect(
                url,
                protocols=(SUBPROTOCOL,),
                headers=headers,
                autoping=False,  # see `SpokeLink._beat`
                max_msg_size=config.max_payload + HEADROOM,
                ssl=config.ssl_context() or True,
                compress=0,
            )
            make_direct(socket, config.max_payload + HEADROOM)
            return socket
    except WSServerHandshakeError as error:
        raise TransportError(f"{shown(url)} refuses the connection: {_refusal(error)}") from None
    except (ClientError, OSError, TimeoutError, ValueError) as error:
        reason = _reason(error).replace(url, shown(url)) or f"no answer within {config.connect_timeout:g} s"
        raise LinkDownError(f"{shown(url)} cannot be reached: {reason}") from None


def carried(socket: ClientWebSocketResponse, config: WebSocketConfig) -> int:
    """The largest event, in bytes: as configured, or what the hub takes if it says that this is less.

    A larger one would end the connection, with all that is under way on it.
    """
    headers = getattr(getattr(socket, "_response", None), "headers", {})  # a name that aiohttp does not promise
    told = headers.get(MAX_PAYLOAD_HEADER, "")
    if told.isascii() and told.isdigit() and len(told) <= _DIGITS:
        return min(config.max_payload, int(told))
    return config.max_payload


def _refusal(error: WSServerHandshakeError) -> str:
    if error.status == HTTPStatus.UNAUTHORIZED:
        return "401: the hub wants to know who connects, and the token is missing or wrong"
    if error.status in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
        return f"{error.status}: what answers there is an HTTP server and no hub"
    return f"{error.status} {error.message}"


def _reason(error: BaseException) -> str:
    """Why there is no connection; empty if the error does not say."""
    if not isinstance(error, ClientConnectorError) or isinstance(error, ClientConnectorCertificateError):
        return str(error)
    # aiohttp's own text repeats the address and says "ssl:default" without TLS.
    cause = error.os_error
    if cause.errno == errno.ECONNREFUSED:
        return "nobody listens there; `operad hub` starts a hub"
    return cause.strerror or str(cause)
