"""Streamable HTTP (revisions 2025-03-26 and newer): a POST per message, with a JSON or event stream response.

This replaces the SDK's transport, in which a refused connection or a truncated response ends the session with all
calls in flight, and HTTP errors look like errors that the server sent. Here a request fails alone, with a `Fault`.

This module needs httpx2. It is imported with the first connection over streamable HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import httpx2

from operad.words import in_words
from operad_auth.http import SSEEvent, SSEEventTooLargeError, SSEParser
from operad_mcp.config import MCPClientConfig
from operad_mcp.errors import ConnectionLost, HTTPRefusal, SessionExpired, Unreadable
from operad_mcp.wire.exchange import HTTPLink, answer_of, read_body, read_if_any, refusal, sent_within
from operad_mcp.wire.link import Sink, is_request
from operad_mcp.wire.messages import Answer, Json, RequestId, encode, parse, too_large
from operad_mcp.wire.protocol import MODERN, VERSION_HEADER, ServerLogger

_SESSION = "mcp-session-id"
_RESUMED = 2
"""The maximum number of attempts in a row to resume a stream that receive nothing."""
_RETRY = 1.0
"""The seconds before a stream is resumed, unless the server sets another time."""


@asynccontextmanager
async def open_link(
    client: httpx2.AsyncClient, config: MCPClientConfig, logger: ServerLogger, sink: Sink
) -> AsyncIterator[StreamableLink]:
    """Yield a transport to the server at ``config.url``, and end its session afterwards."""
    link = StreamableLink(client, config, logger, sink)
    try:
        yield link
    finally:
        await link.leave()


@attrs.define
class _Place:
    """The position up to which a stream was read."""

    last_id: str = ""
    """The id to resume after; empty if the server gave none."""
    pause: float = _RETRY
    """Seconds before the stream is resumed."""


class StreamableLink(HTTPLink):
    """The transport to a server over streamable HTTP."""

    def __init__(
        self, client: httpx2.AsyncClient, config: MCPClientConfig, logger: ServerLogger, sink: Sink
    ) -> None:
        super().__init__(client, config, logger, sink)
        self._patience = config.shutdown_timeout
        self._session: str | None = None
        self._version: str | None = None
        self._posts: dict[RequestId, tuple[asyncio.Task[None], bool]] = {}

    # --- sending ---------------------------------------------------------------------------------

    async def send(self, message: Json, headers: dict[str, str]) -> None:
        """Send a message.

        A request and a cancellation are sent in the background. For any other message, wait until the server has
        accepted it, at most 2 seconds. In the stateless protocol, a cancellation closes the request that it names
        instead, and is not sent.
        """
        method = message.get("method")
        if method == "notifications/cancelled" and self._cut_short(message["params"]["requestId"]):
            return
        if method is not None:
            self._version = headers.get(VERSION_HEADER)
        headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            **self._session_headers(),
            **headers,
        }
        if not is_request(message):
            await self._tell(method, partial(self._note, encode(message), headers))
            if method == "notifications/initialized":
                self._tasks.start(self._listen())
            return
        request_id = message["id"]
        modern = (self._version or "") >= MODERN
        asking = partial(self._post, request_id, message["method"], encode(message), headers)
        task = self._tasks.start(self._ask(request_id, asking))
        self._posts[request_id] = task, modern
        task.add_done_callback(lambda _: self._posts.pop(request_id, None))

    def _session_headers(self) -> dict[str, str]:
        known = {_SESSION: self._session, VERSION_HEADER: self._version}
        return {name: value for name, value in known.items() if value is not None}

    def _cut_short(self, request_id: RequestId) -> bool:
        """Cancel a call of the stateless protocol by closing its request; return whether that protocol is used."""
        found = self._posts.get(request_id)
        if found is None:
            return (self._version or "") >= MODERN
        task, modern = found
        if modern:
            task.cancel()
        return modern

    async def _note(self, body: bytes, headers: dict[str, str]) -> None:
        async with sent_within(self._client, "POST", self._url, headers, body) as response:
            if response.status_code >= 300:
                raise refusal(response, "")

    # --- requests --------------------------------------------------------------------------------

    async def _post(self, request_id: RequestId, method: str, body: bytes, headers: dict[str, str]) -> Answer:
        async with sent_within(self._client, "POST", self._url, headers, body) as response:
            return await self._answer(request_id, method, headers, response)

    async def _answer(
        self, request_id: RequestId, method: str, headers: dict[str, str], response: httpx2.Response
    ) -> Answer:
        """Return the response; messages before it in a stream are passed on."""
        status = response.status_code
        if status >= 300:
            return await self._refused(request_id, headers, response)
        if method == "initialize":
            self._session = response.headers.get(_SESSION) or self._session
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if status != 202 and kind == "text/event-stream":
            return await self._streamed(request_id, response)
        body = await read_body(response, self._limit + 1)
        if len(body) > self._limit:
            raise too_large(self._limit)
        is_json = kind == "application/json" or b'"jsonrpc"' in body  # some servers forget the type
        answer = answer_of(request_id, parse(body)) if is_json else None
        if answer is None:
            shown = body[:200].decode("utf-8", "replace")
            got = f"HTTP {status} with content type {kind[:100] or 'none'}"
            raise Unreadable(f"expected a JSON-RPC response, got {got}: {shown!r}")
        return answer

    async def _refused(self, request_id: RequestId, headers: dict[str, str], response: httpx2.Response) -> Answer:
        body = await read_if_any(response, min(self._limit, 1024 * 1024))
        messages = parse(body) if b'"jsonrpc"' in body else []
        status, text = response.status_code, body.decode("utf-8", "replace")
        if _SESSION in headers:
            # The response of an operation has the request's id. A server that rejects a request unread sends a
            # JSON-RPC error with another id. Other text about a session may come from an operation.
            answers = [each for each in messages if isinstance(each, Answer)]
            own = any(each.id == request_id for each in answers)
            told = any(word in text.lower() for word in ("session", "not initialized"))
            if status == 404 or (status == 400 and told and not own):
                ran = status == 400 and not answers
                reason = f"the server no longer knows the session (HTTP {status})"
                raise SessionExpired(f"{reason}: {text[:200]}" if text.strip() else reason, ran=ran)
        answer = answer_of(request_id, messages)
        if answer is None or status in (401, 403):
            raise refusal(response, text)
        return answer

    # --- streams -----------------------------------------------------------------------------------

    async def _streamed(self, request_id: RequestId, response: httpx2.Response) -> Answer:
        """Return the response in a stream; a stream that is cut off is resumed, if the server supports it."""
        place = _Place()
        attempts = 0
        answer, reason = await self._read(request_id, response, place)
        while answer is None:
            if not place.last_id or attempts >= _RESUMED:
                raise ConnectionLost(reason or "the stream ended without a response", whole=False)
            attempts += 1
            await asyncio.sleep(place.pause)
            before = place.last_id
            answer, reason = await self._resume(request_id, place)
            if place.last_id != before:
                attempts = 0
        return answer

    async def _resume(self, request_id: RequestId | None, place: _Place) -> tuple[Answer | None, str]:
        headers = {"accept": "text/event-stream", "cache-control": "no-store", **self._session_headers()}
        if place.last_id:
            headers["last-event-id"] = place.last_id
        try:
            async with sent_within(self._client, "GET", self._url, headers) as response:
                kind = response.headers.get("content-type", "").lower()
                if response.status_code != 200 or not kind.startswith("text/event-stream"):
                    raise refusal(response, "")
                return await self._read(request_id, response, place)
        except httpx2.TransportError as error:
            return None, in_words(error)
        except HTTPRefusal as error:
            if request_id is None:
                raise
            return None, str(error)

    async def _read(
        self, request_id: RequestId | None, response: httpx2.Response, place: _Place
    ) -> tuple[Answer | None, str]:
        """Pass on a stream's messages, up to the response; without one, return why the stream ended."""
        parser = SSEParser(max_event_size=self._limit)
        try:
            async for piece in response.aiter_bytes():
                for event in parser.feed(piece):
                    answer = self._taken(request_id, event)
                    if answer is not None:
                        return answer, ""
                place.last_id = parser.last_event_id or place.last_id
                if parser.retry is not None:
                    place.pause = min(parser.retry / 1000, 3600.0)
                if self.sink.crowded:
                    await self.sink.room()
        except SSEEventTooLargeError:
            if request_id is not None:
                raise too_large(self._limit) from None
            return None, f"expected an event of at most {self._limit} bytes (max_message_bytes), got more"
        except httpx2.TransportError as error:
            return None, in_words(error)
        return None, ""

    def _taken(self, request_id: RequestId | None, event: SSEEvent) -> Answer | None:
        """Pass on an event's messages, including responses to other calls; return the response to the request."""
        if event.event != "message" or not event.data:
            return None
        messages = parse(event.data.encode())
        if not messages:
            self._logger.warning("the server sent an invalid message: %.200r", event.data)
        answers = [each for each in messages if request_id is not None and isinstance(each, Answer)]
        own = [each for each in answers if each.id == request_id or each.id not in self._posts]
        for message in messages:
            if message not in own:
                self.sink.receive(message)
        return answer_of(request_id, own)

    async def _listen(self) -> None:
        """Read the server's own messages (handshake protocols); open the stream again when it ends."""
        place = _Place()
        attempts = 0
        while self._session is not None and attempts < _RESUMED:
            try:
                _, reason = await self._resume(None, place)
            except Exception as error:  # noqa: BLE001  # an authentication may raise anything
                self._logger.debug("no stream of notifications: %s", in_words(error))
                return
            attempts = attempts + 1 if reason else 0
            await asyncio.sleep(max(_RETRY, place.pause))

    # --- the end -----------------------------------------------------------------------------------

    async def leave(self) -> None:
        """End the transport and the server's session, within about ``shutdown_timeout`` seconds."""
        await super().leave()
        if self._session is None:
            return
        with contextlib.suppress(httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError):
            async with (
                asyncio.timeout(self._patience),
                sent_within(self._client, "DELETE", self._url, self._session_headers()) as response,
            ):
                self._logger.debug("ending the session returned HTTP %d", response.status_code)
