"""Streamable HTTP (revisions 2025-03-26 and newer): a POST per message, answered by JSON or by an event stream.

Ours and not the SDK's: there a refused connection or an answer that is cut off ends the session with all calls in
flight, and what HTTP said becomes an error of the same form as the server's own. Here a request fails alone, with
a `Fault` that no server can make.

Imported with the first connection: it needs the SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from operad_mcp.config import MCPClientConfig
from operad_mcp.errors import ConnectionLost, Fault, HTTPRefusal, SessionExpired, Unreadable, in_words, unusable
from operad_mcp.wire.events import Event, EventDecoder
from operad_mcp.wire.exchange import (
    LAST_WORDS,
    Tasks,
    answers_of,
    body_of,
    heard,
    read_body,
    read_if_any,
    refusal,
    sent_within,
    unsent,
)
from operad_mcp.wire.incoming import Incoming
from operad_mcp.wire.live import MODERN, ServerLogger
from operad_mcp.wire.messages import failure, parse, too_large

_SESSION = "mcp-session-id"
_VERSION = "mcp-protocol-version"
_RESUMED = 2
"""Attempts to resume a stream; one that brings anything does not count."""
_RETRY = 1.0
"""Seconds before a stream is resumed, unless the server says another time."""


@asynccontextmanager
async def http_streams(
    client: httpx2.AsyncClient,
    config: MCPClientConfig,
    logger: ServerLogger,
    on_log: Callable[[Mapping[str, Any]], None],
) -> AsyncIterator[tuple[HTTPLink, HTTPLink]]:
    """Talk to the server of ``config.url``; both streams are the same object."""
    link = HTTPLink(client, config, logger, on_log)
    try:
        yield link, link
    finally:
        await link.leave()


class HTTPLink(Incoming):
    """A server over streamable HTTP: the SDK's read stream and its write stream."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        config: MCPClientConfig,
        logger: ServerLogger,
        on_log: Callable[[Mapping[str, Any]], None],
    ) -> None:
        super().__init__(on_log)
        assert config.url is not None
        self._client = client
        self._url = config.url
        self._limit = config.max_message_bytes
        self._patience = config.shutdown_timeout
        self._logger = logger
        self._session: str | None = None
        self._version: str | None = None
        self._tasks = Tasks()
        self._notes = Tasks()
        self._posts: dict[int | str, tuple[asyncio.Task[None], bool]] = {}

    # --- the SDK's write stream ------------------------------------------------------------------

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message. A request goes its own way; what is no request is heard before this returns."""
        message: Any = item.message
        method = getattr(message, "method", None)
        if method == "notifications/cancelled" and self._cut_short(message.params or {}):
            return
        headers = self._headers(item, method)
        if method is None or not hasattr(message, "id"):
            await heard(self._notes.start(self._tell(body_of(message), headers)), method)
            if method == "notifications/initialized":
                self._tasks.start(self._listen())
            return
        modern = (headers.get(_VERSION) or "") >= MODERN
        task = self._tasks.start(self._ask(message.id, method, body_of(message), headers))
        self._posts[message.id] = task, modern
        task.add_done_callback(lambda _: self._posts.pop(message.id, None))

    def _headers(self, item: SessionMessage, method: str | None) -> dict[str, str]:
        given = item.metadata.headers if isinstance(item.metadata, ClientMessageMetadata) else None
        if method == "initialize":
            self._version = None  # of the question that came before, which is none of the handshake
        elif given and _VERSION in (lowered := {name.lower(): value for name, value in given.items()}):
            self._version = lowered[_VERSION]
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        headers |= self._session_headers() | {name.lower(): value for name, value in (given or {}).items()}
        return headers

    def _session_headers(self) -> dict[str, str]:
        known = {_SESSION: self._session, _VERSION: self._version}
        return {name: value for name, value in known.items() if value is not None}

    def _cut_short(self, params: Mapping[str, Any]) -> bool:
        """In the stateless protocol a call is cancelled by closing its request; whether it is that protocol."""
        found = self._posts.get(params.get("requestId", ""))
        if found is None:
            return (self._version or "") >= MODERN
        task, modern = found
        if modern:
            task.cancel()
        return modern

    async def _tell(self, body: bytes, headers: dict[str, str]) -> None:
        """Send what has no answer. That it does not arrive is for the server to notice."""
        try:
            async with sent_within(self._client, "POST", self._url, headers, body) as response:
                if response.status_code >= 300:
                    self._logger.debug("a notification was answered HTTP %d", response.status_code)
        except Exception as error:  # noqa: BLE001  # an authentication may raise anything
            self._logger.debug("a notification was not sent: %s", in_words(error))

    # --- requests --------------------------------------------------------------------------------

    async def _ask(self, request_id: int | str, method: str, body: bytes, headers: dict[str, str]) -> None:
        try:
            async with sent_within(self._client, "POST", self._url, headers, body) as response:
                for answer in await self._answers(request_id, method, headers, response):
                    self.add(answer)
        except Fault as fault:
            self.add(failure(request_id, fault))
        except httpx2.TransportError as error:
            self.add(failure(request_id, ConnectionLost(in_words(error), sent=not unsent(error), whole=False)))
        except httpx2.DecodingError as error:
            self.add(failure(request_id, Unreadable(f"the answer cannot be decoded: {error}")))
        except Exception as error:  # noqa: BLE001  # an authentication may raise anything; the request ends with it
            self.add(failure(request_id, unusable(error)))

    async def _answers(
        self, request_id: int | str, method: str, headers: dict[str, str], response: httpx2.Response
    ) -> list[SessionMessage]:
        """The answer; of a stream what came before it is passed on by the way."""
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
            raise too_large(len(body), self._limit)
        is_json = kind == "application/json" or b'"jsonrpc"' in body  # some servers forget the type
        answers = answers_of(request_id, parse(body)) if is_json else []
        if not answers:
            shown = body[:200].decode("utf-8", "replace")
            raise Unreadable(f"expected a JSON-RPC answer, got HTTP {status}, {kind or 'no type'}: {shown!r}")
        return answers

    async def _refused(
        self, request_id: int | str, headers: dict[str, str], response: httpx2.Response
    ) -> list[SessionMessage]:
        body = await read_if_any(response, min(self._limit, 1024 * 1024))
        messages = parse(body) if b'"jsonrpc"' in body else []
        status, text = response.status_code, body.decode("utf-8", "replace")
        if _SESSION in headers:
            # An answer of the operation carries the request's id. Who refuses before that knows none.
            own = any(getattr(item.message, "id", None) == request_id for item in messages)
            told = any(word in text.lower() for word in ("session", "not initialized"))
            if status == 404 or (status == 400 and told and not own):
                raise SessionExpired(f"the server answered HTTP {status}: {text[:200]}")
        answers = answers_of(request_id, messages)
        if not answers or status in (401, 403):
            raise refusal(response, text)
        return answers

    # --- streams -----------------------------------------------------------------------------------

    async def _streamed(self, request_id: int | str, response: httpx2.Response) -> list[SessionMessage]:
        """The answer within a stream, which is resumed where it was cut, if the server can do that."""
        decoder = EventDecoder(self._limit)
        attempts = 0
        answers, reason = await self._read(request_id, response, decoder)
        while not answers:
            if decoder.last_id is None or attempts >= _RESUMED:
                raise ConnectionLost(reason or "the stream ended without an answer", whole=False)
            attempts += 1
            await asyncio.sleep(_RETRY if decoder.retry is None else decoder.retry)
            before = decoder.last_id
            answers, reason = await self._resume(request_id, decoder)
            if decoder.last_id != before:
                attempts = 0
        return answers

    async def _resume(
        self, request_id: int | str | None, decoder: EventDecoder
    ) -> tuple[list[SessionMessage], str]:
        headers = {"accept": "text/event-stream", "cache-control": "no-store", **self._session_headers()}
        if decoder.last_id is not None:
            headers["last-event-id"] = decoder.last_id
        try:
            async with sent_within(self._client, "GET", self._url, headers) as response:
                kind = response.headers.get("content-type", "").lower()
                if response.status_code != 200 or not kind.startswith("text/event-stream"):
                    raise refusal(response, "")
                return await self._read(request_id, response, decoder)
        except httpx2.TransportError as error:
            return [], in_words(error)
        except HTTPRefusal as error:
            if request_id is None:
                raise
            return [], str(error)

    async def _read(
        self, request_id: int | str | None, response: httpx2.Response, decoder: EventDecoder
    ) -> tuple[list[SessionMessage], str]:
        """Pass a stream's messages on, until the answer; without one, why the stream ended."""
        try:
            async for piece in response.aiter_bytes():
                for event in decoder.feed(piece):
                    answers = self._taken(request_id, event)
                    if answers:
                        return answers, ""
                if self.crowded:
                    await self.room()
        except httpx2.TransportError as error:
            return [], in_words(error)
        return [], ""

    def _taken(self, request_id: int | str | None, event: Event) -> list[SessionMessage]:
        """Pass an event's messages on; those that answer the request are left to the caller."""
        if event.kind != "message" or not event.data:
            return []
        if event.size > self._limit:
            fault = too_large(event.size, self._limit)
            return [] if request_id is None else [failure(request_id, fault)]
        messages = parse(event.data)
        if not messages:
            self._logger.warning("the server sent what is no message: %.200r", event.data[:200])
        answers = answers_of(request_id, messages)
        for message in messages:
            if not any(message is answer for answer in answers):
                self.add(message)
        return answers

    async def _listen(self) -> None:
        """The stream of what the server says by itself (handshake protocols), opened again when it ends."""
        decoder = EventDecoder(self._limit)
        attempts = 0
        while self._session is not None and attempts < _RESUMED:
            try:
                _, reason = await self._resume(None, decoder)
            except Fault as refused:
                self._logger.debug("no stream of notifications: %s", refused)
                return
            except Exception as error:  # noqa: BLE001  # an authentication may raise anything
                self._logger.debug("no stream of notifications: %s", in_words(error))
                return
            attempts = attempts + 1 if reason else 0
            await asyncio.sleep(max(_RETRY, decoder.retry or 0))

    # --- the end -----------------------------------------------------------------------------------

    async def leave(self) -> None:
        """End the session, within ``shutdown_timeout``."""
        await self._tasks.end()
        await self._notes.settle(LAST_WORDS)
        await self._notes.end()
        self.end()
        if self._session is None:
            return
        with contextlib.suppress(httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError):
            async with (
                asyncio.timeout(self._patience),
                sent_within(self._client, "DELETE", self._url, self._session_headers()) as response,
            ):
                self._logger.debug("the session's end was answered HTTP %d", response.status_code)
