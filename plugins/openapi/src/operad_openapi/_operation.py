"""One operation of a document, called over HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import attrs

from operad import CallError, ErrorCode, OperationContext, ResponseEnvelope
from operad_auth.http import SSEParser, without_user
from operad_openapi._document.mediatypes import EVENT_STREAM, JSON, LINES, essence, is_json
from operad_openapi._http.items import envelopes_of, is_stream, items_of
from operad_openapi._http.reading import chunks_of, read_body, read_head
from operad_openapi._http.records import all_records
from operad_openapi._http.responses import decode_body, failure_of, said_by
from operad_openapi._planned import PlannedOperation, maybe_await
from operad_openapi._request.request import Request
from operad_openapi.envelopes import http_envelope, join_pairs

if TYPE_CHECKING:
    from aiohttp import ClientResponse

logger = logging.getLogger("operad.openapi")

_DEFAULT_RECONNECT_MS = 3_000


class DocumentOperation(PlannedOperation):
    """An operation of a document; see `PlannedOperation` for its arguments."""

    __slots__ = ()

    @property
    def handler(self) -> Callable[..., Any]:
        """The handler for the registry: `stream` for a stream, else `call`."""
        return self.call if self.stream_type is None else self.stream

    async def call(self, input: Any, context: OperationContext | None = None) -> ResponseEnvelope[Any]:
        """Send the request and return the envelope of a 2xx response. Raises `CallError` for any other outcome."""
        started = time.perf_counter_ns()
        source = self.source
        config = source.config
        # Not `_requested`: a coroutine less on the way of every call.
        request = self._request(input)
        if self._is_personal:
            await self._personalize(request, context)
        if context is not None:
            self._bind(request, context)
        response = await source.client.send(request)
        try:
            if not 200 <= response.status < 300:
                raise await self._failure(response, request, context)
            if self.may_stream and is_stream(response, EVENT_STREAM):
                return await self._first(request, response)
            body = await read_body(
                response, config.limits.response_bytes, timeout=config.timeout, report=request.report
            )
        finally:
            if not response.closed:
                response.release()
        envelope = self._answered(request, response, body, started)
        if self.links is not None and isinstance(input, Mapping):
            from operad_openapi._links import links_of_response

            links = links_of_response(self, input, envelope.data, envelope.meta)
            envelope = attrs.evolve(envelope, meta=attrs.evolve(envelope.meta, links=links or None))
        return envelope if config.on_response is None else await self._hooked(envelope, context)

    async def _failure(
        self,
        response: ClientResponse,
        request: Request,
        context: OperationContext | None,
        ends: float | None = None,
    ) -> CallError:
        """Return the error for a response that is not 2xx, after ``on_response`` was called."""
        config = self.source.config
        error = await failure_of(response, config.limits.error_bytes, request, ends)
        if (
            response.status == 401
            and config.auth is None
            and config.credentials_for is None
            and not config.headers
        ):
            error.hint = "; the source sends no credentials: set auth in its table"
        if config.on_response is not None:
            await self._hooked(envelopes_of(request, response)(error.details["body"]), context)
        return error

    async def _hooked(
        self, envelope: ResponseEnvelope[Any], context: OperationContext | None
    ) -> ResponseEnvelope[Any]:
        """Return the envelope that the hook ``on_response`` returns, or ``envelope`` if it returns ``None``."""
        hook = self.source.config.on_response
        if hook is None or not self._is_home:
            return envelope
        changed = await maybe_await(hook(envelope, context))
        if changed is not None and not isinstance(changed, ResponseEnvelope):
            raise TypeError(f"on_response: expected a ResponseEnvelope or None, got {type(changed).__name__}")
        return envelope if changed is None else changed

    def _answered(
        self, request: Request, response: ClientResponse, body: bytes, started: int
    ) -> ResponseEnvelope[Any]:
        headers = join_pairs(response.headers.items())
        content_type = headers.joined.get("content-type", "")
        status = response.status
        assert self._plan is not None
        data = None
        if status not in (204, 205) and request.method != "HEAD":
            data = decode_body(body, content_type, request, expects_json=self._plan.expects_json)
            if data.__class__ is bytes and (kind := essence(content_type)) in LINES:
                data = all_records(body, kind, str(request))
                if self.twin:
                    message = "%s sent %s, which is returned as a list; for its items, subscribe to %s"
                    logger.warning(message, request, kind, self.twin)
        return http_envelope(
            data,
            status_code=status,
            headers=headers,
            content_type=content_type,
            url=without_user(request.redirected_to or request.url),
            method=request.method,
            elapsed_ms=(time.perf_counter_ns() - started) // 1000 / 1000,
            attempts=request.attempts if request.attempts > 1 else None,
        )

    async def _first(self, request: Request, response: ClientResponse) -> ResponseEnvelope[Any]:
        """Return the first item of a streamed response, and close it. Raises `CallError` if it has no item."""
        async with aclosing(self._items(response, request, self._parser(), is_text=False)) as items:
            async for envelope in items:
                response.close()
                return envelope
        message = f"{request}: the stream ended without an item"
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})

    async def pieces(
        self, input: Any, context: OperationContext | None = None
    ) -> AsyncGenerator[ResponseEnvelope[bytes], None]:
        """Yield the body in pieces, each in an envelope, as they arrive. Raises `CallError` if the call fails."""
        request = await self._requested(input, context)
        request.is_stream, request.idle_timeout = True, self.source.config.idle_timeout
        response = await self._open(request, context)
        made = envelopes_of(request, response)
        try:
            async with aclosing(chunks_of(response, request.report)) as pieces:
                async for chunk in pieces:
                    yield made(chunk)
        finally:
            response.close()

    async def chunks(self, input: Any, context: OperationContext | None = None) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of the body as they arrive. Raises `CallError` if the request or reading fails."""
        async with aclosing(self.pieces(input, context)) as pieces:
            async for piece in pieces:
                yield piece.data

    async def stream(
        self, input: Any, context: OperationContext | None = None
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Send the request and yield an envelope per item of the stream; resume it if ``reconnect`` is set.

        Raises:
            CallError: the request failed, or the stream broke off and is not resumed.
        """
        config = self.source.config
        last_event_id, wait_ms = _resumed_at(context), _DEFAULT_RECONNECT_MS
        is_text = self._is_text()
        failures = 0
        while True:
            request = await self._requested(input, context)
            request.is_stream, request.idle_timeout = True, config.idle_timeout
            if last_event_id:
                request.headers["Last-Event-ID"] = last_event_id
            has_events = self.stream_type == EVENT_STREAM or self.may_stream
            may_resume = config.reconnect and request.method == "GET" and has_events
            was_open = False
            parser = self._parser()
            try:
                response = await self._open(request, context, needs_stream=True)
                was_open = True
                try:
                    if response.status == 204:  # the server asks not to come back
                        return
                    items = self._items(response, request, parser, is_text=is_text)
                    try:
                        async for envelope in items:
                            last_event_id = parser.last_event_id
                            yield envelope
                    finally:
                        await items.aclose()
                    if not may_resume or parser.retry == -1:
                        return
                finally:
                    response.close()
                last_event_id = parser.last_event_id
            except CallError as error:
                # What was open is resumed; what cannot be opened is tried as often as any request.
                failures = 0 if was_open else failures + 1
                lost = error.code in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT)
                if not (may_resume and lost) or parser.retry == -1 or failures > config.retries.attempts:
                    raise
            wait_ms = wait_ms if parser.retry is None else parser.retry
            await asyncio.sleep(wait_ms / 1000)

    async def _open(
        self, request: Request, context: OperationContext | None, *, needs_stream: bool = False
    ) -> ClientResponse:
        """Return the response when its head has arrived. Raises `CallError` on failure, or after ``timeout``."""
        where, config = str(request), self.source.config
        clock = asyncio.get_running_loop().time
        ends = None if config.timeout is None else clock() + config.timeout
        try:
            async with asyncio.timeout_at(ends):
                response = await self.source.client.send(request)
        except TimeoutError as error:
            raise _timed_out(where, config.timeout) from error
        try:
            if not 200 <= response.status < 300:
                raise await self._failure(response, request, context, ends)
            if needs_stream and response.status != 204 and not (self._streams(response) or self.may_stream):
                raise await self._no_stream(response, where, ends)
            if config.on_response is not None:
                await self._hooked(envelopes_of(request, response)(None), context)
        except BaseException:
            response.close()
            raise
        return response

    async def _no_stream(self, response: ClientResponse, where: str, ends: float | None) -> CallError:
        kind = response.headers.get("Content-Type", "")
        said = said_by(await read_head(response, self.source.config.limits.error_bytes, ends), kind)
        message = f"{where}: expected a stream ({self.stream_type}), got content type {essence(kind) or 'none'}"
        message += f": {said}" if said else ""
        return CallError(ErrorCode.EXECUTION_ERROR, message, {"contentType": kind, "message": message})

    def _streams(self, response: ClientResponse) -> bool:
        """Return True if a response is read item by item: a stream, or JSON that the document declares as one."""
        if is_stream(response):
            return True
        # Servers older than their document send JSON lines as JSON. The JSON of a twin is the whole response.
        is_said = self.stream_type == JSON or (self.stream_type in LINES and not self.is_twin)
        return is_said and is_json(essence(response.headers.get("Content-Type", "")))

    def _parser(self) -> SSEParser:
        return SSEParser(max_event_size=self.source.config.limits.event_bytes)

    async def _items(
        self, response: ClientResponse, request: Request, parser: SSEParser, *, is_text: bool
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Yield the items of a stream, or the whole response if it is not a stream."""
        if not is_stream(response, EVENT_STREAM):
            parser.retry = -1  # nothing to resume
        if not self._streams(response):
            yield await self._whole(request, response)
            return
        limit = self.source.config.limits.event_bytes
        async with aclosing(items_of(response, request, parser, limit, is_text=is_text)) as items:
            async for envelope in items:
                yield envelope

    async def _whole(self, request: Request, response: ClientResponse) -> ResponseEnvelope[Any]:
        config, started = self.source.config, time.perf_counter_ns()
        try:
            async with asyncio.timeout(config.timeout):
                body = await read_body(response, config.limits.response_bytes)
        except TimeoutError as error:
            raise _timed_out(str(request), config.timeout) from error
        return self._answered(request, response, body, started)


def _resumed_at(context: OperationContext | None) -> str:
    """Return the id of the last event that the caller has received; ``""`` if unknown, or if it is nested."""
    if context is None or context.parent_request_id is not None:
        return ""
    event_id = context.metadata.get("lastEventId")
    return event_id if isinstance(event_id, str) and event_id.isascii() and event_id.isprintable() else ""


def _timed_out(where: str, timeout: float | None) -> CallError:
    deadline = int(time.time() * 1000)
    message = f"{where} did not respond within {timeout} s"
    return CallError(ErrorCode.TIMEOUT, message, {"deadline": deadline, "timeout": timeout})
