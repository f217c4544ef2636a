"""One operation of a document: planned when it is first used, called over HTTP."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from operad import CallError, ConfigError, ErrorCode, ErrorDefinition, OperationContext, ResponseEnvelope, Schema
from operad.plugin import trace_context
from operad_auth.http import SSEParser, without_user
from operad_openapi._document.contents import responses_of
from operad_openapi._document.document import PointerError
from operad_openapi._document.listing import NotUsableError, RawOperation
from operad_openapi._document.mediatypes import EVENT_STREAM, essence
from operad_openapi._document.origins import origin_of
from operad_openapi._document.outputs import is_text_item, item_schema, output_schema
from operad_openapi._http.items import envelopes_of, is_stream, items_of
from operad_openapi._http.reading import chunks_of, read_body, read_head
from operad_openapi._http.responses import decode_body, failure_of, said_by
from operad_openapi._request.adapting import Adapter
from operad_openapi._request.plan import Plan, build_plan
from operad_openapi._request.request import Credentials, Request
from operad_openapi._request.text import SerializationError
from operad_openapi._source import DocumentSource
from operad_openapi.config import HTTPAuth
from operad_openapi.envelopes import http_envelope, join_pairs

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_DEFAULT_RECONNECT_MS = 3_000


class DocumentOperation:
    """One operation of a document; its plan is made when it is first used.

    Args:
        source: what it shares with the others.
        raw: the operation as the document has it.
        stream_type: the media type that a subscription asks for, or ``None``.
        is_twin: whether this is the streaming twin of an operation that answers JSON as well.
        may_stream: whether its document does not tell how it answers: the content type of the answer does.
    """

    __slots__ = (
        "_adapter",
        "_authorize",
        "_is_home",
        "_is_personal",
        "_is_settled",
        "_plan",
        "is_twin",
        "may_stream",
        "raw",
        "source",
        "stream_type",
    )

    def __init__(
        self,
        source: DocumentSource,
        raw: RawOperation,
        stream_type: str | None,
        *,
        is_twin: bool = False,
        may_stream: bool = False,
    ) -> None:
        self.source = source
        self.raw = raw
        self.stream_type = stream_type
        self.is_twin = is_twin
        self.may_stream = may_stream
        self._plan: Plan | None = None
        self._adapter: Adapter | None = None
        self._is_home = False
        self._is_personal = False
        self._is_settled = False
        self._authorize: Callable[[], Awaitable[Credentials]] | None = None

    @property
    def handler(self) -> Callable[..., Any]:
        """What a registry calls."""
        return self.call if self.stream_type is None else self.stream

    @property
    def plan(self) -> Plan:
        """How its requests are made. Raises `CallError` if the document does not tell."""
        if self._plan is None:
            try:
                self._plan = build_plan(self.source.document, self.raw, self.source.config, self.source.input_view)
            except (NotUsableError, PointerError, SerializationError) as error:
                message = f"{self.raw.pointer}: {error}"
                raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message}) from error
            self._guard(self._plan)
        return self._plan

    def _guard(self, plan: Plan) -> None:
        """Keep a document of the public network from pointing into a private one."""
        document = urlsplit(self.source.document.base or "")
        if document.scheme not in ("http", "https") or isinstance(plan.server_or_error, NotUsableError):
            return
        config = self.source.config
        host = urlsplit(plan.server).hostname
        chosen = {urlsplit(url).hostname for url in (config.base_url or "", *config.servers.values())}
        if host and host not in chosen:
            self.source.client.guard(host, document.hostname or "")

    def input_schema(self) -> Schema:
        """The schema of the merged input."""
        return self.source.schema(self.plan.inputs.schema, self.source.input_view)

    def adapt(self, input: Any) -> Any:
        """The JSON of an input that Python callers gave; see `operad.Operation`."""
        if self._adapter is None:
            try:
                view = self.source.input_view
                self._adapter = Adapter(
                    self.plan.inputs, view, lambda schema: self.source.schema(schema, view).is_valid(None)
                )
            except CallError:
                return input  # the call itself says what is wrong
        return self._adapter(input)

    def output_schema(self) -> Schema:
        """The schema of the data; of one item, for a stream."""
        source, view = self.source, self.source.output_view
        if self.stream_type is None:
            return source.schema(output_schema(source.document, self.raw, view), view)
        return source.schema(item_schema(source.document, self.raw, self.stream_type, view), view)

    @property
    def error_schemas(self) -> tuple[ErrorDefinition, ...]:
        """The declared responses that are no success."""
        return tuple(
            self.source.error_definition(self.raw, str(status), node)
            for status, node in responses_of(self.raw).items()
            if str(status)[:1] in ("3", "4", "5") or status == "default"
        )

    async def call(self, input: Any, context: OperationContext | None = None) -> ResponseEnvelope[Any]:
        """Send the request; the answer is an envelope of kind ``http``. Raises `CallError`."""
        started = time.perf_counter_ns()
        source = self.source
        config = source.config
        request = self._request(input)
        if self._is_personal:
            await self._personalize(request, context)
        if context is not None:
            self._bind(request, context)
        response = await source.client.send(request)
        try:
            if not 200 <= response.status < 300:
                raise await failure_of(response, config.limits.error_bytes, request)
            if self.may_stream and is_stream(response, EVENT_STREAM):
                return await self._first(request, response)
            body = await read_body(
                response, config.limits.response_bytes, timeout=config.timeout, report=request.report
            )
        finally:
            if not response.closed:
                response.release()
        return self._answered(request, response, body, started)

    def _answered(
        self, request: Request, response: ClientResponse, body: bytes, started: int
    ) -> ResponseEnvelope[Any]:
        headers = join_pairs(response.headers.items())
        content_type = headers.joined.get("content-type", "")
        status = response.status
        assert self._plan is not None
        data = None
        if status not in (204, 205):
            data = decode_body(body, content_type, request, expects_json=self._plan.expects_json)
        return http_envelope(
            data,
            status_code=status,
            headers=headers,
            content_type=content_type,
            url=without_user(request.redirected_to or request.url),
            method=request.method,
            elapsed_ms=(time.perf_counter_ns() - started) // 1000 / 1000,
        )

    async def _first(self, request: Request, response: ClientResponse) -> ResponseEnvelope[Any]:
        """The first item of an answer that is a stream, which may have no end. Raises `CallError`."""
        async with aclosing(self._items(response, request, self._parser(), is_text=False)) as items:
            async for envelope in items:
                response.close()
                return envelope
        message = f"{request}: the stream ended without an item"
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})

    async def pieces(
        self, input: Any, context: OperationContext | None = None
    ) -> AsyncGenerator[ResponseEnvelope[bytes], None]:
        """The body's bytes as they come, an envelope each. Raises `CallError`."""
        request = await self._requested(input, context)
        request.is_stream, request.idle_timeout = True, self.source.config.idle_timeout
        response = await self._open(request)
        made = envelopes_of(request, response)
        try:
            async with aclosing(chunks_of(response, request.report)) as pieces:
                async for chunk in pieces:
                    yield made(chunk)
        finally:
            response.close()

    async def chunks(self, input: Any, context: OperationContext | None = None) -> AsyncGenerator[bytes, None]:
        """The body's bytes as they come. Raises `CallError`."""
        async with aclosing(self.pieces(input, context)) as pieces:
            async for piece in pieces:
                yield piece.data

    async def stream(
        self, input: Any, context: OperationContext | None = None
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Send the request and yield an envelope per item of the stream. Raises `CallError`."""
        config = self.source.config
        last_event_id, wait_ms = _resumed_at(context), _DEFAULT_RECONNECT_MS
        is_text = self._is_text()
        failures = 0
        while True:
            request = await self._requested(input, context)
            request.is_stream, request.idle_timeout = True, config.idle_timeout
            if last_event_id:
                request.headers["Last-Event-ID"] = last_event_id
            may_resume = config.reconnect and request.method == "GET" and self.stream_type == EVENT_STREAM
            was_open = False
            parser = self._parser()
            try:
                response = await self._open_stream(request)
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
                if not may_resume or not lost or failures > config.retries.attempts:
                    raise
            wait_ms = wait_ms if parser.retry is None else parser.retry
            await asyncio.sleep(wait_ms / 1000)

    async def _open(self, request: Request) -> ClientResponse:
        """The head of a response that is a success."""
        where = str(request)
        config = self.source.config
        try:
            async with asyncio.timeout(config.timeout):
                response = await self.source.client.send(request)
                if not 200 <= response.status < 300:
                    try:
                        raise await failure_of(response, config.limits.error_bytes, where)
                    finally:
                        response.release()
        except TimeoutError as error:
            raise _timed_out(where, config.timeout) from error
        return response

    async def _open_stream(self, request: Request) -> ClientResponse:
        response = await self._open(request)
        if response.status != 204 and not (is_stream(response) or self.may_stream):
            where, kind = str(request), response.headers.get("Content-Type", "")
            said = said_by(await read_head(response, self.source.config.limits.error_bytes), kind)
            response.close()
            message = (
                f"{where}: expected a stream ({self.stream_type}), got content type {essence(kind) or 'none'}"
            )
            message += f": {said}" if said else ""
            raise CallError(ErrorCode.EXECUTION_ERROR, message, {"contentType": kind, "message": message})
        return response

    def _parser(self) -> SSEParser:
        return SSEParser(max_event_size=self.source.config.limits.event_bytes)

    async def _items(
        self, response: ClientResponse, request: Request, parser: SSEParser, *, is_text: bool
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """The items of a stream; the answer itself where it turned out to be none."""
        if not is_stream(response):
            parser.retry = -1  # that is all
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

    async def _requested(self, input: Any, context: OperationContext | None) -> Request:
        """The request for an input and its caller. Raises `CallError`."""
        request = self._request(input)
        if self._is_personal:
            await self._personalize(request, context)
        if context is not None:
            self._bind(request, context)
        return request

    def _bind(self, request: Request, context: OperationContext) -> None:
        """Give a request the deadline of its call, its idempotency key where it changes something, and its trace
        where it goes to the API's own origins."""
        request.expires = context.deadline
        if context.is_observed:
            request.report = context.report
        if context.idempotency_key is not None and request.method not in ("GET", "HEAD", "OPTIONS"):
            request.headers.setdefault("Idempotency-Key", context.idempotency_key)
        if context.metadata and self._is_home:
            for name, value in trace_context(context.metadata).items():
                request.headers.setdefault(name, value)

    def _request(self, input: Any) -> Request:
        """The request for an input, but for what only its caller decides. Raises `CallError`."""
        try:
            plan = self._plan or self.plan
            if self.is_twin and isinstance(input, Mapping) and plan.stream_field is not None:
                input = plan.with_stream(input)
            request = self._made(plan, input)
            if not self._is_settled:
                self._settle(plan)
            request.authorize = self._authorize
        except (SerializationError, NotUsableError) as error:
            raise self._refused(error) from error
        return request

    def _made(self, plan: Plan, input: Any) -> Request:
        return plan.request(input, self.stream_type)

    def _is_text(self) -> bool:
        """Whether the data of events are text that is not to be parsed."""
        return is_text_item(self.output_schema().raw, self.source.output_view)

    def _settle(self, plan: Plan) -> None:
        """Find out, once, what every request carries: to another origin go neither headers nor credentials."""
        config = self.source.config
        self._is_home = plan.is_home
        if plan.is_home:
            is_callers = config.credentials_for is not None or config.caller is not None
            self._is_personal = config.request_headers is not None or is_callers
            if not is_callers:
                self._authorize = self._authorizer(config.auth)
        self._is_settled = True

    async def _personalize(self, request: Request, context: OperationContext | None) -> None:
        """Add the headers and credentials of the caller. Raises `CallError`."""
        config = self.source.config
        try:
            if config.request_headers is not None:
                request.headers.update(await _maybe_await(config.request_headers(context)))
            if config.caller is not None:
                origin = origin_of(self.plan.server)
                table = await config.caller.get(context or OperationContext(), origin)
                request.authorize = self._authorizer(_caller_auth(table))
            elif config.credentials_for is not None:
                own = await _maybe_await(config.credentials_for(context))
                request.authorize = self._authorizer(own or config.auth)
        except (SerializationError, NotUsableError) as error:
            raise self._refused(error) from error

    def _refused(self, error: SerializationError | NotUsableError) -> CallError:
        if isinstance(error, SerializationError):
            return _invalid(self.raw, error)
        message = f"{self.raw.pointer}: {error}"
        return CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})

    def _authorizer(self, auth: HTTPAuth | None) -> Callable[[], Awaitable[Credentials]] | None:
        """Makes the credentials of a request; ``None`` if it has none."""
        appliers = self.source.authenticator.plan(self.raw, self.plan.server, auth)
        if not appliers:
            return None

        async def authorize() -> Credentials:
            credentials = Credentials()
            for apply in appliers:
                await apply(credentials)
            return credentials

        return authorize


def _resumed_at(context: OperationContext | None) -> str:
    """The last event that the client has for whom a server subscribes; a nested subscription is another one."""
    if context is None or context.parent_request_id is not None:
        return ""
    event_id = context.metadata.get("lastEventId")
    return event_id if isinstance(event_id, str) and event_id.isascii() and event_id.isprintable() else ""


def _caller_auth(table: Mapping[str, Any]) -> HTTPAuth:
    """Return the credential that a provider gave. Raises `CallError`; the message quotes no value."""
    try:
        auth = HTTPAuth(**table)
    except (ConfigError, TypeError, ValueError):
        auth = None
    if auth is None or auth.type == "caller":
        message = "the credential of the caller cannot be used: it is not a table as `auth` of this source"
        raise CallError(ErrorCode.EXECUTION_ERROR, message)
    return auth


async def _maybe_await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _timed_out(where: str, timeout: float | None) -> CallError:
    deadline = int(time.time() * 1000)
    return CallError(
        ErrorCode.TIMEOUT, f"{where} did not answer within {timeout} s", {"deadline": deadline, "timeout": timeout}
    )


def _invalid(raw: RawOperation, error: SerializationError) -> CallError:
    message = f"{raw.method} {raw.path}: {error}"
    errors = [{"path": "$", "message": str(error), "keyword": "serialization"}]
    return CallError(ErrorCode.VALIDATION_ERROR, message, {"errors": errors})
