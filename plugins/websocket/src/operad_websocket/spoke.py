"""The spoke: a connection to a hub that comes back by itself."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import random
import secrets
import ssl as ssl_module
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    WSMsgType,
    WSServerHandshakeError,
)

from operad import protocol
from operad.transports import (
    Event,
    LinkDownError,
    OnEvent,
    OnLink,
    PayloadTooLargeError,
    TransportError,
)
from operad_websocket._corked import Corked
from operad_websocket._direct import make_direct, taking
from operad_websocket._local import Registration, capabilities, delivery_of
from operad_websocket._routing import REGISTER, REGISTERED, UNREGISTER
from operad_websocket.hub import ENDS, HEADROOM, MAX_PAYLOAD, SUBPROTOCOL

logger = logging.getLogger("operad.spoke")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_ENDS = frozenset({protocol.RESPONDED, protocol.ERROR, protocol.COMPLETED, protocol.ABORTED})
_ACKNOWLEDGED = 10.0
"""Seconds within which a hub confirms what is served."""


class WebSocketTransport:
    """Reaches a hub by WebSocket.

    Args:
        url: ``ws://host:port`` or ``wss://host:port``.
        token: sent as ``Authorization: Bearer <token>``.
        headers: sent with the connection request.
        ssl: for ``wss``, instead of the system's trust.
        max_payload: the largest event, in bytes; not more than the hub's.
        ping: seconds within which a silent hub is pinged; one that stays silent soon counts as lost.
        connect_timeout: seconds that one attempt to connect may take.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        ssl: ssl_module.SSLContext | None = None,
        max_payload: int = MAX_PAYLOAD,
        ping: float = 20.0,
        connect_timeout: float = 10.0,
    ) -> None:
        self.url = url
        self.capabilities = capabilities(max_payload)
        self._headers = dict(headers or {})
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._ssl = ssl
        self.ping = ping
        self._connect_timeout = connect_timeout

    def __repr__(self) -> str:
        return f"WebSocketTransport({self.url!r})"

    async def open(self, on_event: OnEvent, on_link: OnLink) -> SpokeLink:
        """Connect. Raises `LinkDownError` if no hub answers, `TransportError` if it refuses."""
        link = SpokeLink(self, on_event, on_link)
        await link.start()
        return link

    async def connect(self, session: ClientSession) -> ClientWebSocketResponse:
        """One attempt. Raises `TransportError`."""
        assert self.capabilities.max_payload is not None
        try:
            async with asyncio.timeout(self._connect_timeout):
                socket = await session.ws_connect(
                    self.url,
                    protocols=(SUBPROTOCOL,),
                    headers=self._headers,
                    autoping=False,  # see `SpokeLink._beat`
                    max_msg_size=self.capabilities.max_payload + HEADROOM,
                    ssl=True if self._ssl is None else self._ssl,
                    compress=0,
                )
                make_direct(socket, self.capabilities.max_payload + HEADROOM)
                return socket
        except WSServerHandshakeError as error:
            raise TransportError(f"{self.url} refuses the connection: {_refusal(error)}") from None
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            reason = _reason(error) or f"no answer within {self._connect_timeout:g} s"
            raise LinkDownError(f"{self.url} cannot be reached: {reason}") from None


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


class SpokeLink:
    """A spoke's connection to its hub."""

    def __init__(self, transport: WebSocketTransport, on_event: OnEvent, on_link: OnLink) -> None:
        self.inbox = f"inbox:{secrets.token_hex(16)}"
        self._transport = transport
        self._max_payload = transport.capabilities.max_payload or MAX_PAYLOAD
        self._on_event = on_event
        self._on_link = on_link
        self._epoch = 0
        self._socket: ClientWebSocketResponse | None = None
        self._session: ClientSession | None = None
        self._running: asyncio.Task[None] | None = None
        self._topics: dict[str, str | None] = {}
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._counter = itertools.count(1)
        self._batch: _Batch | None = None
        self._heard = False
        """Whether something has come since the last look."""
        self._under_way: set[str] = set()
        """Ids of requests that were sent or taken here, and have not ended."""

    async def start(self) -> None:
        """Connect for the first time. Raises `TransportError`."""
        self._session = ClientSession(timeout=ClientTimeout(total=None))
        try:
            self._socket = await self._transport.connect(self._session)
            _cork(self._socket, self._count)
        except BaseException:
            await self._session.close()
            raise
        self._running = asyncio.create_task(self._run())
        self._epoch = 1
        self._on_link("up", 1)

    # --- serving ---------------------------------------------------------------------------------

    async def register(self, topic: str, group: str | None = None) -> Registration:
        """See `operad.transports.Link.register`. Returns when the hub has confirmed it."""
        batch = self._batch
        if batch is None or batch.group != group:
            batch = self._batch = _Batch(group)
            batch.sending = asyncio.create_task(self._register_batch(batch))
        batch.topics.append(topic)
        assert batch.sending is not None
        refused = await asyncio.shield(batch.sending)
        if topic in refused:
            raise TransportError(f"the hub refuses to have {topic} served here: {refused[topic]}")
        self._topics[topic] = group
        return Registration(self, topic)

    async def _register_batch(self, batch: _Batch) -> dict[str, str]:
        """Register all topics that were asked for in one turn of the loop with one frame."""
        await asyncio.sleep(0)
        if self._batch is batch:
            self._batch = None
        return await self._ask(REGISTER, {"topics": batch.topics, "group": batch.group})

    async def unregister(self, topic: str) -> None:
        """Serve an address no longer."""
        if topic in self._topics:
            del self._topics[topic]
            with contextlib.suppress(TransportError):  # a hub that is gone serves nothing
                await self._ask(UNREGISTER, {"topics": [topic]})

    async def _ask(self, type_: str, payload: dict[str, Any]) -> dict[str, str]:
        """Send a frame to the hub itself and wait for its answer: what it refused, and why."""
        frame_id = f"f{next(self._counter)}"
        answer = self._asked[frame_id] = asyncio.get_running_loop().create_future()
        try:
            await self._write(protocol.encode({"type": type_, "id": frame_id, "payload": payload}))
            async with asyncio.timeout(_ACKNOWLEDGED):
                payload = await answer
        except TimeoutError:
            raise TransportError(f"the hub did not confirm a {type_} within {_ACKNOWLEDGED:g} s") from None
        finally:
            del self._asked[frame_id]
        return {item["topic"]: item["reason"] for item in payload.get("refused", ())}

    # --- sending ---------------------------------------------------------------------------------

    async def send(self, to: str, event: Event) -> str | None:
        """See `operad.transports.Link.send`; the hub's own table knows where the event goes, and its answer."""
        if to.startswith("all:"):
            event["to"] = to
        if event["payload"].get("replyTo") == self.inbox:
            del event["payload"]["replyTo"]
        data = protocol.encode(event)
        self._note(event)
        try:
            await self._write(data)
        except TransportError:
            self._under_way.discard(event["payload"].get("requestId", ""))
            raise
        return to

    def _note(self, event: Event) -> None:
        """Keep count of the requests under way."""
        type_, payload = event["type"], event["payload"]
        request_id = payload.get("requestId")
        if type(request_id) is not str:
            return
        if type_ == protocol.REQUESTED:
            self._under_way.add(request_id)
        elif type_ in _ENDS and "seq" not in payload:
            self._under_way.discard(request_id)

    def _count(self) -> int:
        return len(self._under_way)

    async def _write(self, data: bytes) -> None:
        if len(data) > self._max_payload:
            raise PayloadTooLargeError(f"the event has {len(data)} bytes, the hub carries {self._max_payload}")
        socket = self._socket
        if socket is None or socket.closed:
            raise LinkDownError(f"there is no connection to {self._transport.url}")
        try:
            await socket.send_frame(data, WSMsgType.BINARY)  # JSON, but no text to decode first
        except (ClientError, ConnectionError, RuntimeError) as error:
            raise LinkDownError(f"the connection to {self._transport.url} is lost: {error}") from None

    async def drain(self, timeout: float) -> None:
        """Serve no address any more, and know that the hub has had all that was sent."""
        topics = list(self._topics)
        self._topics.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._ask(UNREGISTER, {"topics": topics})
        except (TimeoutError, TransportError) as error:
            logger.debug("drain: %s", error)

    async def close(self) -> None:
        """Disconnect; idempotent."""
        running, self._running = self._running, None
        if running is None:
            return
        running.cancel()
        await asyncio.wait({running})
        await self._disconnect()
        if self._session is not None:
            await self._session.close()

    # --- receiving -------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Receive; connect again whenever the connection is lost."""
        while True:
            try:
                await self._receive()
            finally:
                await self._disconnect()
            await self._reconnect()

    async def _receive(self) -> None:
        """Take events until the connection ends, or the hub is silent."""
        socket = self._socket
        assert socket is not None
        with contextlib.suppress(TimeoutError), taking(socket, self._take, self._hear):
            async with asyncio.timeout(None) as silence:
                beating = asyncio.create_task(self._beat(socket, silence))
                try:
                    while True:
                        message = await socket.receive()
                        self._heard = True
                        if message.type is WSMsgType.BINARY or message.type is WSMsgType.TEXT:
                            self._take(message.data)
                        elif message.type is WSMsgType.PING:
                            await socket.pong(message.data)
                        elif message.type in ENDS:
                            break
                finally:
                    beating.cancel()
                    await asyncio.wait({beating})

    def _hear(self) -> None:
        self._heard = True

    def _take(self, data: bytes | str) -> None:
        self._heard = True
        try:
            event = protocol.decode_compact(data)  # the hub has checked and rewritten it
        except protocol.ProtocolError as error:
            logger.warning("dropped what %s sent: %s", self._transport.url, error)
            return
        if event["type"] == REGISTERED:
            self._on_registered(event)
        else:
            self._note(event)
            self._on_event(event, delivery_of(event))

    async def _beat(self, socket: ClientWebSocketResponse, silence: asyncio.Timeout) -> None:
        """Ping a hub that is silent, and let go of one that stays so."""
        loop, ping = asyncio.get_running_loop(), self._transport.ping
        while True:
            self._heard = False
            await asyncio.sleep(ping / 2)
            if silence.expired():
                return
            if self._heard:
                silence.reschedule(None)
                continue
            if silence.when() is None:
                silence.reschedule(loop.time() + ping)
            with contextlib.suppress(ClientError, ConnectionError, RuntimeError):  # `receive` will say so
                await socket.ping()

    def _on_registered(self, event: Event) -> None:
        asked = self._asked.get(event.get("id", ""))
        if asked is not None and not asked.done():
            asked.set_result(event["payload"])

    async def _disconnect(self) -> None:
        socket, self._socket = self._socket, None
        if socket is None:
            return
        lost = LinkDownError(f"the connection to {self._transport.url} is lost")
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(lost)
        self._under_way.clear()
        self._on_link("down", self._epoch)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await socket.close()

    async def _reconnect(self) -> None:
        assert self._session is not None
        pause = _FIRST_PAUSE
        while True:
            # Spread out: all spokes of a hub that restarts come back at the same time.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # no secret depends on it
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                self._socket = await self._transport.connect(self._session)
                _cork(self._socket, self._count)
                break
            except LinkDownError as error:
                logger.debug("%s", error)
            except TransportError as error:
                logger.warning("%s", error)
        self._epoch += 1
        await self._register_again()
        self._on_link("up", self._epoch)

    async def _register_again(self) -> None:
        """Tell the new connection what is served here. The answer is read by `_receive`, later."""
        groups: dict[str | None, list[str]] = {}
        for topic, group in self._topics.items():
            groups.setdefault(group, []).append(topic)
        for group, topics in groups.items():
            for start in range(0, len(topics), 5_000):
                payload = {"topics": topics[start : start + 5_000], "group": group}
                with contextlib.suppress(TransportError):  # lost again: `_receive` ends at once
                    await self._write(protocol.encode({"type": REGISTER, "id": "", "payload": payload}))


def _cork(socket: ClientWebSocketResponse, under_way: Callable[[], int]) -> None:
    """Let the socket write many frames in few system calls, if this aiohttp has its writer where others had it."""
    writer = getattr(socket, "_writer", None)
    transport = getattr(writer, "transport", None)
    if writer is not None and transport is not None:
        writer.transport = Corked(transport, under_way)


class _Batch:
    """Addresses that are registered together."""

    __slots__ = ("group", "sending", "topics")

    def __init__(self, group: str | None) -> None:
        self.group = group
        self.topics: list[str] = []
        self.sending: asyncio.Task[dict[str, str]] | None = None
