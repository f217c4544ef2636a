"""The spoke: a link that reconnects to its hub after each loss of the connection."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import secrets
from collections.abc import Collection
from typing import Any

from aiohttp import ClientError, WSMsgType

from operad.plugin import Delivery, Event, LinkDownError, OnEvent, OnLink, PayloadTooLargeError, TransportError
from operad.words import printable
from operad_auth.http.urls import shown_url
from operad_calls.transport import encode, protocol, unreadable
from operad_websocket._connecting import Connected, Connecting
from operad_websocket._desk import ERROR, REGISTERED, TOPICS
from operad_websocket._local import Registration, delivery_of
from operad_websocket._registering import Registering
from operad_websocket._wire import ENDS
from operad_websocket.config import WebSocketConfig

logger = logging.getLogger("operad.websocket")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_DELIVERY = Delivery()
_LOST = (ClientError, ConnectionError, RuntimeError)
"""The errors that aiohttp raises if a lost connection is written to."""
_ACKNOWLEDGED = 10.0
"""Seconds within which a hub must respond to a frame for the hub itself."""
_SILENT = 3
"""The number of silent checks, each of ``ping / 2`` seconds, after which a hub is lost."""
_MAX_ANSWERING = 100
"""The maximum number of unsent replies to unreadable events. Further replies are dropped."""
_AT_ONCE = 5_000
"""The maximum number of addresses in one frame."""


class SpokeLink:
    """A link of a spoke to its hub. `WebSocketTransport.open` makes it."""

    def __init__(self, config: WebSocketConfig, on_event: OnEvent, on_link: OnLink) -> None:
        self.inbox = f"inbox:{secrets.token_hex(16)}"
        self._config = config
        self._where = ", ".join(map(shown_url, config.urls))
        self._on_event = on_event
        self._on_link = on_link
        self._epoch = 0
        self._connecting: Connecting | None = None
        self._connected: Connected | None = None
        self._running: asyncio.Task[None] | None = None
        self._registering = Registering(self._ask, self._tell)
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._counter = itertools.count(1)
        self._answering: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Connect for the first time. Raises the same errors as `WebSocketTransport.open`."""
        self._connecting = Connecting(self._config)
        try:
            self._connected = await self._connecting.connect()
        except BaseException:
            await self._connecting.close()
            raise
        self._running = asyncio.create_task(self._run())
        self._epoch = 1
        self._on_link("up", 1)

    # --- serving ---------------------------------------------------------------------------------

    async def register(self, topic: str, group: str | None = None) -> Registration:
        """See `operad.transports.Link.register`. Return when the hub has confirmed the registration."""
        await self._registering.register(topic, group)
        return Registration(self, topic)

    async def unregister(self, topic: str) -> None:
        """Stop serving an address, even if the connection is lost; idempotent."""
        await self._registering.unregister(topic)

    async def served_by(self, instance: str, topics: Collection[str]) -> frozenset[str]:
        """Return the addresses of ``topics`` that an instance serves. Raises `TransportError` on failure."""
        wanted, served = list(topics), set[str]()
        for start in range(0, len(wanted), _AT_ONCE):
            answer = await self._ask(TOPICS, {"instance": instance, "topics": wanted[start : start + _AT_ONCE]})
            served.update(answer.get("topics") or ())
        return frozenset(served)

    async def _ask(self, type_: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Send a frame to the hub itself. Return the payload of its response, or raise `TransportError`."""
        frame_id = f"f{next(self._counter)}"
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[frame_id] = answer
        try:
            await self._write(encode({"type": type_, "id": frame_id, "payload": payload}))
            async with asyncio.timeout(_ACKNOWLEDGED):
                return await answer
        except TimeoutError:
            raise TransportError(f"the hub did not confirm a {type_} within {_ACKNOWLEDGED:g} s") from None
        finally:
            del self._asked[frame_id]

    # --- sending ---------------------------------------------------------------------------------

    async def send(self, to: str, event: Event) -> str | None:
        """See `operad.transports.Link.send`. The hub uses ``to`` only if it begins with ``all:``."""
        if to.startswith("all:"):
            event["to"] = to
        payload = event["payload"]
        if "replyTo" in payload and payload["replyTo"] == self.inbox:
            del payload["replyTo"]
        await self._write(encode(event))
        return to

    async def _write(self, data: bytes) -> None:
        """Write a frame, and wait while writing is paused. Raises `TransportError` if down or too large."""
        connected = self._connected
        limit = self._config.max_payload if connected is None else connected.max_payload
        if len(data) > limit:
            raise PayloadTooLargeError(
                f"the event has {len(data)} bytes; the limit is {limit} (max_payload of the link or of the hub)"
            )
        if connected is None or connected.socket.closed:
            raise LinkDownError(f"not connected to {self._where}; the link reconnects")
        try:
            await connected.socket.send_bytes(data)
        except _LOST as error:
            raise LinkDownError(f"the connection to {self._where} is lost: {error}") from None
        if connected.wire.is_full:
            # If the connection is lost meanwhile, the frame may have arrived. An error would mean that it was not
            # sent, so none is raised: ``on_link`` reports the loss.
            await connected.wire.drained()

    async def drain(self, timeout: float) -> None:
        """Stop serving, and wait at most ``timeout`` seconds until the hub has read all earlier frames."""
        try:
            async with asyncio.timeout(timeout):
                await self._registering.drain()
        except (TimeoutError, TransportError) as error:
            logger.debug("drain: %s", error)

    async def close(self) -> None:
        """Disconnect; idempotent."""
        running, self._running = self._running, None
        if running is None:
            return
        running.cancel()
        try:
            await asyncio.wait({running})
            await self._disconnect()
        finally:
            if self._connecting is not None:
                await self._connecting.close()

    # --- receiving -------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Receive messages, and reconnect after each loss of the connection."""
        while True:
            for step in (self._receive, self._disconnect, self._reconnect):
                try:
                    await step()
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if task is None or task.cancelling():  # by `close`
                        raise
                except Exception:  # no error may end the link
                    logger.exception("an error on the connection to %s; the link reconnects", self._where)

    async def _receive(self) -> None:
        """Handle messages until the connection ends."""
        connected = self._connected
        if connected is None:
            return
        socket = connected.socket
        beating = asyncio.create_task(self._beat(connected))
        try:
            while True:
                message = await socket.receive()
                type_ = message.type
                if type_ is WSMsgType.TEXT or type_ is WSMsgType.BINARY:
                    self._take(message.data)
                elif type_ is WSMsgType.PING:
                    with contextlib.suppress(*_LOST):  # `receive` reports it
                        await socket.pong(message.data)
                elif type_ in ENDS:
                    break
        finally:
            beating.cancel()
            await asyncio.wait({beating})

    def _take(self, data: bytes) -> None:
        connected = self._connected
        if connected is not None:
            connected.wire.unfinished = 0
        try:
            event = protocol.decode(data)
            type_ = event["type"]
            if type_[:5] != "link.":
                self._on_event(event, delivery_of(event))
            elif type_ in (REGISTERED, TOPICS, ERROR):
                self._on_answer(event)
        except protocol.ProtocolError as error:
            self._on_unreadable(data, error)
        except Exception:  # one message must not end all calls of its connection
            logger.exception("a message of %s could not be handled", self._where)

    def _tell(self, event: Event, delivery: Delivery = _DELIVERY) -> None:
        """Pass an event to the owner of the link."""
        self._on_event(event, delivery)

    def _on_unreadable(self, data: bytes, error: Exception) -> None:
        """Report an unreadable event to its sender and its receiver, because the hub does not read values."""
        logger.warning("%s sent an unreadable event: %s", self._where, error)
        found = unreadable(data, error)
        if found is None:
            return
        if not found.is_request:
            self._tell(found.event)
        back = found.event
        if not found.is_request:
            payload = {"requestId": found.event["payload"]["requestId"]}
            back = {"type": protocol.ABORTED, "id": "", "payload": payload}
        if self._connected is not None and len(self._answering) < _MAX_ANSWERING:
            answering = asyncio.create_task(self._write_quietly(protocol.encode_checked(back)))
            self._answering.add(answering)
            answering.add_done_callback(self._answering.discard)

    async def _write_quietly(self, data: bytes) -> None:
        with contextlib.suppress(TransportError):
            await self._write(data)

    async def _beat(self, connected: Connected) -> None:
        """Ping a silent hub, and disconnect if the hub stays silent."""
        wire = connected.wire
        while wire.silent <= _SILENT:
            if wire.silent > 1:
                with contextlib.suppress(*_LOST):
                    await connected.socket.ping()
            await asyncio.sleep(self._config.ping / 2)
            wire.silent += 1
        wire.transport.abort()

    def _on_answer(self, event: Event) -> None:
        """Handle a response to a frame for the hub itself, or the refusal of another frame."""
        frame_id, payload = event.get("id"), event["payload"]
        asked = self._asked.get(frame_id) if isinstance(frame_id, str) else None
        is_error = event["type"] == ERROR
        if asked is None or asked.done():
            if is_error:
                logger.warning("the hub refuses a frame: %s", printable(str(payload.get("message"))))
        elif is_error:
            asked.set_exception(TransportError(f"the hub refuses the frame: {payload.get('message')}"))
        else:
            asked.set_result(payload)

    async def _disconnect(self) -> None:
        connected, self._connected = self._connected, None
        if connected is None:
            return
        lost = LinkDownError(f"the connection to {self._where} is lost")
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(lost)
        try:
            await self._registering.stop()
            self._on_link("down", self._epoch)
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    await connected.socket.close()

    async def _reconnect(self) -> None:
        assert self._connecting is not None
        pause = _FIRST_PAUSE
        while True:
            # At random, because all spokes of a restarted hub reconnect at the same time.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # no secret depends on it
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                self._connected = await self._connecting.connect()
                break
            except LinkDownError as error:
                logger.debug("%s", error)
            except TransportError as error:
                logger.warning("%s", error)
        self._epoch += 1
        self._registering.again()
        self._on_link("up", self._epoch)
