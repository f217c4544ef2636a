"""HTTP+SSE, the transport of 2024-11-05: one event stream from the server, and a POST per message to it.

This module needs httpx2. It is imported with the first connection over HTTP+SSE.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urljoin, urlsplit

import httpx2

from operad.words import in_words
from operad_auth.http import SSEEvent, SSEEventTooLargeError, SSEParser
from operad_mcp.config import MCPClientConfig
from operad_mcp.errors import ConnectionLost, Fault, Unusable
from operad_mcp.wire.exchange import HTTPLink, read_if_any, refusal, sent_within, unsent
from operad_mcp.wire.link import Sink, is_request
from operad_mcp.wire.messages import Json, encode, parse, too_large
from operad_mcp.wire.protocol import ServerLogger


@asynccontextmanager
async def open_link(
    client: httpx2.AsyncClient, config: MCPClientConfig, logger: ServerLogger, sink: Sink
) -> AsyncIterator[SSELink]:
    """Connect to the server at ``config.url``, and yield the transport.

    Raises:
        Fault: the server cannot be reached, rejects the stream, or does not state where to send messages.
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


class SSELink(HTTPLink):
    """The transport to a server over HTTP+SSE."""

    def __init__(
        self, client: httpx2.AsyncClient, config: MCPClientConfig, logger: ServerLogger, sink: Sink
    ) -> None:
        super().__init__(client, config, logger, sink)
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def begin(self, response: httpx2.Response) -> None:
        """Start to read the stream. Return when the server has stated where to send messages.

        Raises `Fault` if the stream ends before that.
        """
        self._tasks.start(self._read(response))
        await self._endpoint

    async def _read(self, response: httpx2.Response) -> None:
        parser = SSEParser(max_event_size=self._limit)
        reason: Fault = ConnectionLost("the event stream ended")
        try:
            async for piece in response.aiter_bytes():
                for event in parser.feed(piece):
                    self._taken(event)
                if self.sink.crowded:
                    await self.sink.room()
        except Fault as fault:
            reason = fault
        except SSEEventTooLargeError:  # the parser cannot go on: the calls in flight fail, the next one reconnects
            reason = too_large(self._limit)
        except httpx2.RequestError as error:
            reason = ConnectionLost(f"the event stream ended: {in_words(error)}")
        finally:
            if not self._endpoint.done():
                self._endpoint.set_exception(reason)
            self.end(reason)

    def _taken(self, event: SSEEvent) -> None:
        if event.event == "endpoint":
            self._go_to(event.data)
        elif event.event == "message" and event.data:
            messages = parse(event.data.encode())
            if not messages:
                self._logger.warning("the server sent an invalid message: %.200r", event.data)
            for message in messages:
                self.sink.receive(message)

    def _go_to(self, reference: str) -> None:
        """Set the address for messages. It must have the same origin, because messages contain credentials."""
        there = urljoin(self._url, reference)
        here, target = urlsplit(self._url), urlsplit(there)
        if (here.scheme, here.netloc) != (target.scheme, target.netloc):
            shown = f"{target.scheme}://{target.hostname}"
            raise Unusable(f"expected an address for messages in the server's origin, got another origin, {shown}")
        if not self._endpoint.done():
            self._endpoint.set_result(there)

    async def send(self, message: Json, headers: dict[str, str]) -> None:
        """Send a message.

        A request and a cancellation are sent in the background. For any other message, wait until the server has
        accepted it, at most 2 seconds.
        """
        post = partial(self._post, encode(message))
        if is_request(message):
            self._tasks.start(self._ask(message["id"], post))
        else:
            await self._tell(message.get("method"), post)

    async def _post(self, body: bytes) -> None:
        """Send a message. The response to a request arrives in the stream; only failures are raised here."""
        headers = {"content-type": "application/json"}
        async with sent_within(self._client, "POST", self._endpoint.result(), headers, body) as response:
            if response.status_code >= 300:
                raise refusal(response, (await read_if_any(response, 64 * 1024)).decode("utf-8", "replace"))
