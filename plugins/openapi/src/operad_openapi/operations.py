"""Operations from an OpenAPI document: listed when it is loaded, built when they are first used."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, cast

from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.operations import ErrorDefinition, Operation, OperationSpec, OperationType
from operad.schemas import Schema, from_schema, lazy_schema
from operad_openapi._client import HTTPClient, Request, chunks_of, read_body
from operad_openapi._document import Document, Json, PointerError
from operad_openapi._naming import Filters, Names, wanted_name
from operad_openapi._normalize import (
    EVENT_STREAM,
    STREAM_TYPES,
    Diagnostic,
    NotUsableError,
    RawOperation,
    list_operations,
    response_content,
    responses_of,
    success_media,
    success_responses,
)
from operad_openapi._plan import Plan, build_plan
from operad_openapi._responses import decode_body, failure_of, json_records
from operad_openapi._schemas import SchemaView
from operad_openapi._security import Authenticator, Credentials
from operad_openapi._serialize import SerializationError, essence, is_json, percent_encode
from operad_openapi._urls import origin_of
from operad_openapi.config import HTTPAuth, HTTPServiceConfig
from operad_openapi.envelopes import HTTPResponseMeta, join_headers
from operad_openapi.sse import SSEEvent, SSEEventTooLargeError, SSEParser

if TYPE_CHECKING:
    from aiohttp import ClientResponse

AnyOperation = Operation[..., Any]
logger = logging.getLogger("operad.openapi")

_DONE = "[DONE]"
_DEFAULT_RECONNECT_MS = 3_000
_NULL: Json = {"enum": [None]}


class OpenAPIOperations(list[AnyOperation]):
    """The operations of a document, and the HTTP session that they share.

    A list; close it (``async with``, or `aclose`) when no operation is called any more. The registry does that
    for what it loads itself.
    """

    def __init__(self, source: DocumentSource, diagnostics: list[Diagnostic]) -> None:
        super().__init__()
        self._source = source
        self.diagnostics = diagnostics
        """What of the document could not be used."""

    @property
    def client(self) -> HTTPClient:
        """The client that sends their requests."""
        return self._source.client

    async def aclose(self) -> None:
        """Close the HTTP session; idempotent."""
        await self._source.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError("operations hold connections and cannot be pickled")


class DocumentSource:
    """What the operations of one document share."""

    def __init__(self, document: Document, config: HTTPServiceConfig) -> None:
        self.document = document
        self.config = config
        self.client = HTTPClient(config, trusted=config.trusted)
        self.input_view = SchemaView(document, "readOnly")
        self.output_view = SchemaView(document, "writeOnly")
        self.authenticator = Authenticator(document, config, self._fetch_token)
        self.origins = frozenset(filter(None, map(origin_of, config.origins)))
        self._responses: dict[str, ErrorDefinition] = {}

    def schema(self, node: Any, view: SchemaView) -> Schema:
        """The compiled-when-used schema of ``node``, which is one of ``view``'s."""
        return from_schema(
            node,
            dialect=cast("Any", self.document.dialect),
            document=view.root,
            trusted=self.config.trusted,
        )

    async def _fetch_token(self, url: str, auth: HTTPAuth) -> Json:
        """The answer of a token endpoint (RFC 6749, 4.4.2)."""
        from multidict import CIMultiDict

        from operad_openapi._bodies import EncodedBody
        from operad_openapi._security import _authorization

        form = "grant_type=client_credentials"
        if auth.scopes:
            form += "&scope=" + percent_encode(" ".join(auth.scopes))
        pair = f"{percent_encode(auth.client_id or '')}:{percent_encode(auth.client_secret or '')}"
        basic = _authorization(HTTPAuth(type="basic", token=pair))

        async def authorize() -> Credentials:
            credentials = Credentials()
            if basic is not None:
                await basic(credentials)
            return credentials

        request = Request(
            "POST",
            url,
            CIMultiDict({"Accept": "application/json"}),
            [],
            EncodedBody("application/x-www-form-urlencoded", form.encode()),
            authorize,
        )
        where = f"token endpoint {origin_of(url)}"
        response = await self.client.send(request)
        try:
            if response.status != 200:
                raise await failure_of(response, self.config.limits.error_bytes, where)
            body = await read_body(response, self.config.limits.error_bytes, "error_bytes")
        finally:
            response.release()
        answer = decode_body(body, "application/json", where)
        return answer if isinstance(answer, dict) else {}

    def error_definition(self, operation: RawOperation, status: str, node: Any) -> ErrorDefinition:
        """What the error of one declared response looks like; shared where responses are."""
        reference = node.get("$ref") if isinstance(node, dict) else None
        key = f"{status} {reference}" if isinstance(reference, str) else None
        if key is not None and key in self._responses:
            return self._responses[key]
        try:
            response = self.document.resolve(node)
        except PointerError:
            response = None
        description = response.get("description") if isinstance(response, dict) else None
        definition = ErrorDefinition(
            str(ErrorCode.EXECUTION_ERROR),
            f"HTTP {status}" + (f": {description}" if isinstance(description, str) and description else ""),
            lazy_schema(lambda: self._error_schema(operation, status, node)),
            int(status) if status.isdecimal() else None,
        )
        if key is not None:
            self._responses[key] = definition
        return definition

    def _error_schema(self, operation: RawOperation, status: str, node: Any) -> Schema:
        """The schema of the error's details."""
        try:
            content = response_content(self.document, operation, node)
        except PointerError:
            content = {}
        bodies = [
            self.output_view.schema(media["schema"])
            for media_type, media in content.items()
            if is_json(essence(media_type)) and "schema" in media
        ]
        code: Json = {"const": int(status)} if status.isdecimal() else {"type": "integer"}
        properties: Json = {"statusCode": code}
        if bodies:
            properties["body"] = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
        return self.schema({"type": "object", "properties": properties}, self.output_view)


class DocumentOperation:
    """One operation of a document; its plan is made when it is first used.

    Args:
        source: what it shares with the others.
        raw: the operation as the document has it.
        stream_type: the media type that a subscription asks for, or ``None``.
        is_twin: whether this is the streaming twin of an operation that answers JSON as well.
    """

    __slots__ = ("_plan", "is_twin", "raw", "source", "stream_type")

    def __init__(
        self, source: DocumentSource, raw: RawOperation, stream_type: str | None, *, is_twin: bool = False
    ) -> None:
        self.source = source
        self.raw = raw
        self.stream_type = stream_type
        self.is_twin = is_twin
        self._plan: Plan | None = None

    # --- what it looks like ----------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """How its requests are made. Raises `CallError` if the document does not tell."""
        if self._plan is None:
            try:
                self._plan = build_plan(self.source.document, self.raw, self.source.config, self.source.input_view)
            except (NotUsableError, PointerError, SerializationError) as error:
                message = f"{self.raw.pointer}: {error}"
                raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message}) from error
        return self._plan

    def input_schema(self) -> Schema:
        """The schema of the merged input."""
        return self.source.schema(self.plan.inputs.schema, self.source.input_view)

    def output_schema(self) -> Schema:
        """The union of the JSON schemas of 2xx responses; of one item, for a stream."""
        source = self.source
        if self.stream_type is not None:
            return source.schema(self._item_schema(), source.output_view)
        schemas: list[Any] = []
        for status, node in success_responses(self.raw):
            try:
                content = response_content(source.document, self.raw, node)
            except PointerError:
                return source.schema(True, source.output_view)
            schemas += self._body_schemas(status, content)
        if self.raw.method == "HEAD":
            schemas = [_NULL]
        unique: list[Any] = []
        for schema in schemas:
            if schema is True or schema == {}:
                return source.schema(True, source.output_view)
            if schema not in unique:
                unique.append(schema)
        union = unique[0] if len(unique) == 1 else {"anyOf": unique} if unique else True
        return source.schema(union, source.output_view)

    def _body_schemas(self, status: str, content: Mapping[str, Any]) -> list[Any]:
        if status in ("204", "205"):
            return [_NULL]
        found: list[Any] = []
        for media_type, raw in content.items():
            if not is_json(essence(media_type)):
                continue
            media = self.source.document.resolve(raw)
            found.append(
                self.source.output_view.schema(media.get("schema", True) if isinstance(media, dict) else True)
            )
        if found:
            return found
        kinds = [essence(media_type) for media_type in content]
        return [{"type": "string"}] if kinds and all(kind.startswith("text/") for kind in kinds) else [True]

    def _item_schema(self) -> Any:
        for _, media_type, raw in success_media(self.source.document, self.raw):
            if essence(media_type) != essence(self.stream_type or ""):
                continue
            media = self.source.document.resolve(raw)
            if not isinstance(media, dict):
                break
            view = self.source.output_view
            if "itemSchema" not in media:
                return view.schema(media.get("schema", True))
            schema = view.schema(media["itemSchema"])
            return _event_data(schema, view) if essence(media_type) == EVENT_STREAM else schema
        return True

    @property
    def error_schemas(self) -> tuple[ErrorDefinition, ...]:
        """The declared responses that are no success."""
        return tuple(
            self.source.error_definition(self.raw, str(status), node)
            for status, node in responses_of(self.raw).items()
            if str(status)[:1] in ("3", "4", "5") or status == "default"
        )

    # --- calling ---------------------------------------------------------------------------------

    async def call(self, input: Any, context: OperationContext | None = None) -> ResponseEnvelope[Any]:
        """Send the request; the answer is an envelope of kind ``http``. Raises `CallError`."""
        started = time.perf_counter()
        timeout = self.source.config.timeout
        request, url = await self._request(input, context)
        where = f"{request.method} {url.partition('?')[0]}"
        limits = self.source.config.limits
        try:
            async with asyncio.timeout(timeout):
                response = await self.source.client.send(request)
                try:
                    if not 200 <= response.status < 300:
                        raise await failure_of(response, limits.error_bytes, where)
                    body = await read_body(response, limits.response_bytes)
                finally:
                    response.release()
        except TimeoutError as error:
            raise _timed_out(where, timeout) from error
        headers, cookies = join_headers(response.headers.items())
        content_type = headers.get("content-type", "")
        data = None if response.status in (204, 205) else decode_body(body, content_type, where)
        elapsed = round((time.perf_counter() - started) * 1000, 3)
        meta = HTTPResponseMeta(
            response.status,
            headers,
            content_type,
            _final_url(response, request, url),
            request.method,
            elapsed,
            cookies,
        )
        return ResponseEnvelope(data, meta)

    async def stream(
        self, input: Any, context: OperationContext | None = None
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Send the request and yield an envelope per item of the stream. Raises `CallError`."""
        config = self.source.config
        last_event_id, wait_ms = "", _DEFAULT_RECONNECT_MS
        schema = await self._plain_items()
        failures = 0
        while True:
            request, url = await self._request(input, context)
            request.idle_timeout = config.idle_timeout
            if last_event_id:
                request.headers["Last-Event-ID"] = last_event_id
            may_resume = config.reconnect and request.method == "GET" and self.stream_type == EVENT_STREAM
            try:
                response = await self._open_stream(request, url)
                try:
                    if response.status == 204:  # the server asks not to come back
                        return
                    parser = SSEParser(max_event_size=config.limits.event_bytes)
                    items = self._items(response, request, url, parser, is_text=schema)
                    try:
                        async for envelope in items:
                            failures = 0
                            last_event_id = parser.last_event_id
                            yield envelope
                    finally:
                        await items.aclose()
                    if not may_resume or parser.retry == -1:
                        return
                finally:
                    response.close()
                last_event_id, wait_ms = parser.last_event_id, parser.retry or wait_ms
            except CallError as error:
                failures += 1
                lost = error.code in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT)
                if not may_resume or not lost or failures > config.retries.attempts:
                    raise
            await asyncio.sleep(wait_ms / 1000)

    async def _plain_items(self) -> bool:
        """Whether items are text that is not to be parsed."""
        schema = self.source.output_view.resolve(self._item_schema())
        return isinstance(schema, dict) and schema.get("type") == "string"

    async def _open_stream(self, request: Request, url: str) -> ClientResponse:
        where = f"{request.method} {url.partition('?')[0]}"
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
        kind = essence(response.headers.get("Content-Type", ""))
        if response.status != 204 and kind not in STREAM_TYPES:
            response.close()
            message = f"{where}: expected a stream ({self.stream_type}), got content type {kind or 'none'}"
            raise CallError(ErrorCode.EXECUTION_ERROR, message, {"contentType": kind, "message": message})
        return response

    async def _items(
        self, response: ClientResponse, request: Request, url: str, parser: SSEParser, *, is_text: bool
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        headers, cookies = join_headers(response.headers.items())
        content_type = headers.get("content-type", "")
        kind = essence(content_type)
        where = f"{request.method} {url.partition('?')[0]}"
        shared = (
            response.status,
            headers,
            content_type,
            _final_url(response, request, url),
            request.method,
            None,
            cookies,
        )
        limits = self.source.config.limits
        if kind != EVENT_STREAM:
            records = json_records(response, kind, limits.event_bytes, where)
            async for record in records:
                yield ResponseEnvelope(record, HTTPResponseMeta(*shared))
            return
        async for chunk in chunks_of(response):
            try:
                events = parser.feed(chunk)
            except SSEEventTooLargeError as error:
                message = f"{where}: an event is larger than {limits.event_bytes} bytes (limit event_bytes)"
                details = {"limit": "event_bytes", "bytes": limits.event_bytes}
                raise CallError(ErrorCode.PAYLOAD_TOO_LARGE, message, details) from error
            for event in events:
                if event.data == _DONE and not is_text:
                    parser.retry = -1  # the end, said by the stream itself: there is nothing to resume
                    return
                yield ResponseEnvelope(
                    _event_value(event, is_text=is_text), HTTPResponseMeta(*shared, event.event, event.id)
                )

    async def _request(self, input: Any, context: OperationContext | None) -> tuple[Request, str]:
        """The request for an input, and its URL without credentials."""
        config = self.source.config
        plan = self.plan
        try:
            if self.is_twin and isinstance(input, Mapping) and plan.stream_field is not None:
                input = plan.with_stream(input)
            request = plan.request(input, self.stream_type)
        except SerializationError as error:
            raise _invalid(self.raw, error) from error
        except NotUsableError as error:
            message = f"{self.raw.pointer}: {error}"
            raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message}) from error
        auth = config.auth
        if config.credentials_for is not None:
            auth = await _maybe_await(config.credentials_for(context)) or auth
        if origin_of(plan.server) in {plan.home, *self.source.origins}:
            request.headers.update(config.headers)
            if config.request_headers is not None:
                request.headers.update(await _maybe_await(config.request_headers(context)))
            appliers = self.source.authenticator.plan(self.raw, plan.server, auth)
            if appliers:

                async def authorize() -> Credentials:
                    credentials = Credentials()
                    for apply in appliers:
                        await apply(credentials)
                    return credentials

                request.authorize = authorize
        if config.timeout is not None:
            request.deadline = asyncio.get_running_loop().time() + config.timeout
        return request, request.url


async def _maybe_await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _event_data(schema: Any, view: SchemaView) -> Any:
    """The schema of an event's data, from 3.2's schema of the whole event."""
    try:
        node = view.resolve(schema)
        data = node.get("properties", {}).get("data") if isinstance(node, dict) else None
        data = view.resolve(data)
    except PointerError:
        return True
    if not isinstance(data, dict):
        return True
    if is_json(essence(str(data.get("contentMediaType", "")))):
        return data.get("contentSchema", True)
    return data


def _event_value(event: SSEEvent, *, is_text: bool) -> Any:
    if is_text or not event.data:
        return event.data
    # A stream of words must not turn "5" into a number where nothing says so; the schema, if any, judges.
    try:
        return decode_body(event.data.encode(), "application/json", "")
    except (CallError, UnicodeEncodeError):
        return event.data


def _final_url(response: ClientResponse, request: Request, url: str) -> str:
    """The URL that answered; after a redirect, without its query, which may hold what the first one did not."""
    final = str(response.url)
    if final.partition("?")[0] == url.partition("?")[0]:
        return url
    return final.partition("?")[0]


def _timed_out(where: str, timeout: float | None) -> CallError:
    deadline = int(time.time() * 1000)
    return CallError(
        ErrorCode.TIMEOUT, f"{where} did not answer within {timeout} s", {"deadline": deadline, "timeout": timeout}
    )


def _invalid(raw: RawOperation, error: SerializationError) -> CallError:
    message = f"{raw.method} {raw.path}: {error}"
    errors = [{"path": "$", "message": str(error), "keyword": "serialization"}]
    return CallError(ErrorCode.VALIDATION_ERROR, message, {"errors": errors})


# --- listing -----------------------------------------------------------------------------------------


def build_operations(
    document: Document, config: HTTPServiceConfig, found: Iterable[Diagnostic] = ()
) -> OpenAPIOperations:
    """The operations of ``document``: each that can be used, and a diagnostic for each that cannot.

    Args:
        document: the document.
        config: where and how to call.
        found: what loading the document could not use.
    """
    source = DocumentSource(document, config)
    diagnostics = list(found)
    operations = OpenAPIOperations(source, diagnostics)
    filters, names = Filters(config.include, config.exclude), Names()
    checker = _Checker(document)
    for raw in list_operations(document):
        if isinstance(raw, Diagnostic):
            diagnostics.append(raw)
            continue
        name = wanted_name(raw)
        if not filters.admits(name, raw):
            continue
        try:
            checker.check(raw, diagnostics)
            operations += _operations_of(source, raw, names.claim(name), names)
        except (NotUsableError, PointerError, SerializationError) as error:
            diagnostics.append(Diagnostic(raw.pointer, str(error)))
    for diagnostic in diagnostics:
        logger.warning("%s: %s", config.namespace, diagnostic)
    return operations


def _operations_of(source: DocumentSource, raw: RawOperation, name: str, names: Names) -> list[AnyOperation]:
    """The operation, and its streaming twin if it answers both ways."""
    media = success_media(source.document, raw)
    streams = [media_type for _, media_type, _ in media if essence(media_type) in STREAM_TYPES]
    if not streams:
        return [_operation(source, raw, name, None)]
    stream = EVENT_STREAM if any(essence(s) == EVENT_STREAM for s in streams) else essence(streams[0])
    if len(streams) == len(media):
        return [_operation(source, raw, name, stream)]
    twin = names.claim(f"{name}_stream")
    return [_operation(source, raw, name, None), _operation(source, raw, twin, stream, is_twin=True)]


def _operation(
    source: DocumentSource, raw: RawOperation, name: str, stream_type: str | None, *, is_twin: bool = False
) -> AnyOperation:
    config, node = source.config, raw.node
    built = DocumentOperation(source, raw, stream_type, is_twin=is_twin)
    if stream_type is not None:
        kind = OperationType.SUBSCRIPTION
    elif name in config.operation_types:
        kind = OperationType(config.operation_types[name])
    else:
        kind = OperationType.QUERY if raw.method == "GET" else OperationType.MUTATION
    summary, description = node.get("summary"), node.get("description")
    tags = node.get("tags")
    spec = OperationSpec(
        namespace=config.namespace,
        name=name,
        type=kind,
        title=summary if isinstance(summary, str) and summary else None,
        description=description if isinstance(description, str) and description else str(summary or ""),
        input_schema=lazy_schema(built.input_schema),
        output_schema=lazy_schema(built.output_schema),
        error_schemas=built.error_schemas,
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        deprecated=node.get("deprecated") is True,
        metadata={"operationId": node.get("operationId"), "method": raw.method, "path": raw.path},
    )
    return Operation(spec, built.call if stream_type is None else built.stream)


class _Checker:
    """Looks, once per shared part, whether the parts without which no request is right are there."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._fine: dict[str, tuple[str | None, str | None]] = {}

    def check(self, raw: RawOperation, diagnostics: list[Diagnostic]) -> None:
        """Raises `NotUsableError`, `PointerError`."""
        declared: set[str | None] = set()
        for holder in (raw.item, raw.node):
            parameters = holder.get("parameters")
            for parameter in parameters if isinstance(parameters, list) else ():
                location, name = self._parameter(parameter)
                if location == "path":
                    declared.add(name)
        body = raw.node.get("requestBody")
        if isinstance(body, dict) and "$ref" in body:
            self._document.resolve(body)
        for name in raw.placeholders:
            if name not in declared:
                reason = f'the placeholder "{name}" of the path is not declared; taken as a string'
                diagnostics.append(Diagnostic(raw.pointer, reason, "warning"))

    def _parameter(self, parameter: Any) -> tuple[str | None, str | None]:
        reference = parameter.get("$ref") if isinstance(parameter, dict) else None
        if isinstance(reference, str) and reference in self._fine:
            return self._fine[reference]
        node = self._document.resolve(parameter)
        if (
            not isinstance(node, dict)
            or not isinstance(node.get("name"), str)
            or not isinstance(node.get("in"), str)
        ):
            raise NotUsableError("a parameter has no name, or no place (in)")
        found = (node["in"], node["name"])
        if isinstance(reference, str):
            self._fine[reference] = found
        return found
