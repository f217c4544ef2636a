"""HTTP+SSE, the transport of 2024-11-05: one event stream from the server, and a POST per message to it.

Imported with the first connection over it: it needs httpx2.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urljoin, urlsplit

import httpx2

from operad_mcp.config import MCPClientConfig
from operad_mcp.errors import ConnectionLost, Fault, Unusable, in_words, unusable
from operad_mcp.wire.events import Event, EventDecoder
from operad_mcp.wire.exchange import (
    LAST_WORDS,
    Tasks,
    heard,
    lost_request,
    read_if_any,
    refusal,
    sent_within,
    unsent,
)
from operad_mcp.wire.link import Link, Sink, is_request
from operad_mcp.wire.messages import Json, RequestId, answered_id, encode, failure, parse, too_large
from operad_mcp.wire.protocol import ServerLogger


@asynccontextmanager
async def open_link(
    client: httpx2.AsyncClient, config: MCPClientConfig, logger: ServerLogger, sink: Sink
) -> AsyncIterator[SSELink]:
    """Talk to the server of ``config.url``.

    Raises:
        Fault: the server refuses the stream, or does not say where to send messages.
    """
    assert config.url is not None
    headers = {"accept": "text/event-stream", "cache-control": "no-store"}
    try:
        async with sent_within(client, "GET", config.url, headers) as response:
            if response.status_code != 200:
                text = (await read_if_any(response, 64 * 1024)).decode("utf-8", "replace")
                raise refusal(response, text)
            link = SSELink(client, config, logger, sink)
            try:
                await link.begin(response)
                yield link
            finally:
                await link.leave()
    except httpx2.TransportError as error:
        raise ConnectionLost(in_words(error), sent=not unsent(error)) from error


class SSELink(Link):
    """A server over HTTP+SSE."""

    def __init__(
        self, client: httpx2.AsyncClient, config: MCPClientConfig, logger: ServerLogger, sink: Sink
    ) -> None:
        super().__init__(sink)
        assert config.url is not None
        self._client = client
        self._url = config.url
        self._limit = config.max_message_bytes
        self._logger = logger
        self._tasks = Tasks()
        self._notes = Tasks()
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def begin(self, response: httpx2.Response) -> None:
        """Read the stream from now on; returns when the server said where to send messages."""
        self._tasks.start(self._read(response))
        await self._endpoint

    async def _read(self, response: httpx2.Response) -> None:
        decoder = EventDecoder(self._limit)
        reason: Fault = ConnectionLost("the event stream ended")
        try:
            async for piece in response.aiter_bytes():
                for event in decoder.feed(piece):
                    self._taken(event)
                if self.sink.crowded:
                    await self.sink.room()
        except Fault as fault:
            reason = fault
        except httpx2.RequestError as error:
            reason = ConnectionLost(f"the event stream ended: {in_words(error)}")
        finally:
            if not self._endpoint.done():
                self._endpoint.set_exception(reason)
            self.end()

    def _taken(self, event: Event) -> None:
        if event.kind == "endpoint":
            self._go_to(event.data.decode("utf-8", "replace"))
        elif event.kind == "message" and event.size > self._limit:
            self._logger.warning(
                "a message of the server has %d bytes; max_message_bytes is %d", event.size, self._limit
            )
            half = len(event.data) // 2
            found = answered_id(event.data[:half], event.data[half:])
            if found is not None:
                self.sink.receive(failure(found, too_large(event.size, self._limit)))
        elif event.kind == "message" and event.data:
            messages = parse(event.data)
            if not messages:
                shown = event.data[:200].decode("utf-8", "replace")
                self._logger.warning("the server sent what is no message: %r", shown)
            for message in messages:
                self.sink.receive(message)

    def _go_to(self, reference: str) -> None:
        """Take the address for messages, if it is at the same origin: what is sent there holds credentials."""
        there = urljoin(self._url, reference)
        here, target = urlsplit(self._url), urlsplit(there)
        if (here.scheme, here.netloc) != (target.scheme, target.netloc):
            shown = f"{target.scheme}://{target.hostname}"
            raise Unusable(f"the server wants its messages at another origin, {shown}, which is refused")
        if not self._endpoint.done():
            self._endpoint.set_result(there)

    async def send(self, message: Json, headers: dict[str, str]) -> None:
        """Send a message. A request goes its own way; the server has heard another one when this returns."""
        if is_request(message):
            self._tasks.start(self._ask(message["id"], encode(message)))
        else:
            await heard(self._notes.start(self._tell(encode(message))), message.get("method"))

    async def _tell(self, body: bytes) -> None:
        """Send what has no answer. That it does not arrive is for the server to notice."""
        try:
            await self._post(body)
        except Exception as error:  # noqa: BLE001  # an authentication may raise anything
            self._logger.debug("a notification was not sent: %s", in_words(error))

    async def _ask(self, request_id: RequestId, body: bytes) -> None:
        """Send a request, whose answer comes by the stream; only a failure comes from here."""
        try:
            await self._post(body)
        except Fault as fault:
            self.sink.receive(failure(request_id, fault))
        except httpx2.TransportError as error:
            self.sink.receive(failure(request_id, lost_request(error)))
        except Exception as error:  # noqa: BLE001  # an authentication may raise anything; the request ends with it
            self.sink.receive(failure(request_id, unusable(error)))

    async def _post(self, body: bytes) -> None:
        headers = {"content-type": "application/json"}
        async with sent_within(self._client, "POST", self._endpoint.result(), headers, body) as response:
            if response.status_code >= 300:
                raise refusal(response, (await read_if_any(response, 64 * 1024)).decode("utf-8", "replace"))

    async def leave(self) -> None:
        """Stop reading and sending."""
        await self._notes.settle(LAST_WORDS)
        await self._notes.end()
        await self._tasks.end()
        self.end()
