"""The schemas and requests of one operation of a document, planned when the operation is first used."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from operad import CallError, ConfigError, ErrorCode, ErrorDefinition, OperationContext, Schema
from operad.plugin import trace_context
from operad_auth import CredentialProvider
from operad_auth.http.urls import shown_url
from operad_openapi._collecting import building
from operad_openapi._document.contents import responses_of
from operad_openapi._document.document import Json, PointerError
from operad_openapi._document.listing import NotUsableError, RawOperation
from operad_openapi._document.mediatypes import EVENT_STREAM, JSON
from operad_openapi._document.origins import origin_of
from operad_openapi._document.outputs import is_text_item, item_schema, output_schema
from operad_openapi._document.security import Key
from operad_openapi._request.adapting import Adapter
from operad_openapi._request.plan import Plan, build_plan
from operad_openapi._request.request import Credentials, HTTPRequest, Request
from operad_openapi._request.text import SerializationError
from operad_openapi._source import DocumentSource
from operad_openapi.config import HTTPAuth
from operad_schema import SchemaError

logger = logging.getLogger("operad.openapi")

_MANY = 1_000
"""Parameters of an operation whose plan is made with the garbage collector paused."""


class PlannedOperation:
    """The requests of one operation of a document.

    Args:
        source: the parts that all operations of the source share.
        raw: the operation as it is in the document.
        stream_type: the media type of its stream, or ``None`` if it is not a subscription.
        is_twin: whether this is the streaming twin of an operation that can also return JSON.
        may_stream: whether the document does not describe the response, so that its content type decides.
        twin: the id of the operation's streaming twin, for a hint; ``""`` if it has none.
    """

    __slots__ = (
        "_adapter",
        "_authorize",
        "_is_home",
        "_is_personal",
        "_is_settled",
        "_plan",
        "is_twin",
        "links",
        "may_stream",
        "raw",
        "source",
        "stream_type",
        "twin",
    )

    def __init__(
        self,
        source: DocumentSource,
        raw: RawOperation,
        stream_type: str | None,
        *,
        is_twin: bool = False,
        may_stream: bool = False,
        twin: str = "",
    ) -> None:
        self.source = source
        self.raw = raw
        self.stream_type = stream_type
        self.is_twin = is_twin
        self.may_stream = may_stream
        self.twin = twin
        self.links: Json | None = None
        """Name -> link object of its 2xx responses; ``None`` if the document declares no links."""
        self._plan: Plan | None = None
        self._adapter: Adapter | None = None
        self._is_home = False
        self._is_personal = False
        self._is_settled = False
        self._authorize: Callable[[], Awaitable[Credentials]] | None = None

    @property
    def plan(self) -> Plan:
        """The plan of the operation's requests. Raises `CallError` if none can be made from the document."""
        if self._plan is None:
            try:
                source = self.source
                is_callers = source.config.credentials_for is not None or source.config.caller is not None
                sent = _all_keys if is_callers else source.authenticator.keys
                with building() if _has_many(self.raw) else nullcontext():
                    self._plan = build_plan(source.document, self.raw, source.config, source.input_view, sent)
            except (NotUsableError, PointerError, SerializationError) as error:
                message = f"{self.raw.pointer}: {error}"
                raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message}) from error
            self._guard(self._plan)
        return self._plan

    def _guard(self, plan: Plan) -> None:
        """Keep a document from a public host from leading to a private address."""
        document = urlsplit(self.source.document.base or "")
        if document.scheme not in ("http", "https") or isinstance(plan.server_or_error, NotUsableError):
            return
        config = self.source.config
        host = urlsplit(plan.server).hostname
        chosen = {urlsplit(url).hostname for url in (config.base_url or "", *config.servers.values())}
        if host and host not in chosen:
            self.source.client.guard(host, document.hostname or "")

    def input_schema(self) -> Schema:
        """Return the schema of the input, an object of the parameters and the body."""
        return self.source.schema(self.plan.inputs.schema, self.source.input_view)

    def report_input(self, errors: list[SchemaError]) -> None:
        """Log the errors of an input that is sent anyway (``validate_inputs = "warn"``)."""
        reasons = "; ".join(error.message for error in errors[:3])
        logger.warning("%s %s: the input does not match its schema: %s", self.raw.method, self.raw.path, reasons)

    def hint(self, input: Any) -> str:
        """Return a hint for an input with fields of the body outside of the body's key; else return ``""``."""
        inputs, body = self.plan.inputs, self.plan.body
        if body is None or inputs.body_key is None or not isinstance(input, Mapping):
            return ""
        try:
            schema = self.source.input_view.resolve(body.schema)
        except PointerError:
            return ""
        fields = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(fields, dict) or not (input.keys() - inputs.keys) & fields.keys():
            return ""
        return f'put the fields of the body into the key "{inputs.body_key}"'

    def adapt(self, input: Any) -> Any:
        """Convert Python values in an input, such as dates and files, to JSON; see `operad.Operation`."""
        if self._adapter is None:
            try:
                view = self.source.input_view
                self._adapter = Adapter(
                    self.plan.inputs, view, lambda schema: self.source.schema(schema, view).is_valid(None)
                )
            except CallError:
                return input  # the call itself reports the fault
        return self._adapter(input)

    def output_schema(self) -> Schema:
        """Return the schema of the result; for a stream, the schema of one item."""
        source, view = self.source, self.source.output_view
        if self.stream_type is None:
            return source.schema(output_schema(source.document, self.raw, view), view)
        if self.is_twin and self.stream_type == JSON:  # what is watched are events, not the list
            return source.schema(True, view)
        return source.schema(item_schema(source.document, self.raw, self.stream_type, view), view)

    @property
    def error_schemas(self) -> tuple[ErrorDefinition, ...]:
        """The errors for the declared responses with 3xx, 4xx, 5xx and ``default``."""
        return tuple(
            self.source.error_definition(self.raw, str(status), node)
            for status, node in responses_of(self.raw).items()
            if str(status)[:1] in ("3", "4", "5") or status == "default"
        )

    async def _requested(self, input: Any, context: OperationContext | None) -> Request:
        """Return the request for an input and its caller. Raises `CallError` if it cannot be made."""
        request = self._request(input)
        if self._is_personal:
            await self._personalize(request, context)
        if context is not None:
            self._bind(request, context)
        return request

    def _bind(self, request: Request, context: OperationContext) -> None:
        """Add the deadline of the call to a request, the idempotency key if the method may change something, and
        the trace if the request goes to the API's own origins."""
        request.expires = context.deadline
        if context.is_observed:
            request.report = context.report
        if context.idempotency_key is not None and request.method not in ("GET", "HEAD", "OPTIONS"):
            request.headers.setdefault("Idempotency-Key", context.idempotency_key)
        if context.metadata and self._is_home:
            for name, value in trace_context(context.metadata).items():
                request.headers.setdefault(name, value)

    def _request(self, input: Any) -> Request:
        """Return the request for an input, not yet for its caller. Raises `CallError` if it cannot be made."""
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
        accept = self.stream_type
        if accept == JSON:  # what the document declares; and events, if only the configuration says "subscription"
            accept = f"{EVENT_STREAM}, {plan.headers['Accept']}" if self.may_stream else None
        return plan.request(input, accept)

    def _is_text(self) -> bool:
        """Return True if the data of events are text, which is not parsed as JSON."""
        return is_text_item(self.output_schema().raw, self.source.output_view)

    def _settle(self, plan: Plan) -> None:
        """Determine once which credentials and hooks the requests use; other origins than the API's get none."""
        config = self.source.config
        self._is_home = plan.is_home
        if plan.is_home:
            is_callers = config.credentials_for is not None or config.caller is not None
            self._is_personal = is_callers or config.request_headers is not None or config.on_request is not None
            if not is_callers:
                self._authorize = self._authorizer(config.auth)
        self._is_settled = True

    async def _personalize(self, request: Request, context: OperationContext | None) -> None:
        """Add the caller's headers and credentials, and ``on_request``. Raises `CallError` if that fails."""
        config = self.source.config
        if config.on_request is not None:
            request.prepare = partial(_prepare, config.on_request, context)
        try:
            if config.request_headers is not None:
                request.headers.update(await maybe_await(config.request_headers(context)))
            if config.caller is not None:
                origin = origin_of(self.plan.server)
                request.authorize = await self._of_caller(config.caller, context or OperationContext(), origin)
            elif config.credentials_for is not None:
                own = await maybe_await(config.credentials_for(context))
                request.authorize = self._authorizer(own or config.auth)
        except (SerializationError, NotUsableError) as error:
            raise self._refused(error) from error

    async def _of_caller(
        self, caller: CredentialProvider, context: OperationContext, origin: str
    ) -> Callable[[], Awaitable[Credentials]]:
        """Return a function that makes the caller's credentials; after a 401, it uses a newer one if possible."""
        table = await caller.get(context, origin)
        authorize, was_refused = self._authorizer(_caller_auth(table)), False

        def refused() -> bool:
            nonlocal was_refused
            was_refused = caller.refused(context, table)
            return was_refused

        async def authorized() -> Credentials:
            nonlocal table, authorize, was_refused
            if was_refused:
                table, was_refused = await caller.get(context, origin), False
                authorize = self._authorizer(_caller_auth(table))
            credentials = Credentials() if authorize is None else await authorize()
            credentials.refresh = credentials.refresh or refused
            return credentials

        return authorized

    def _refused(self, error: SerializationError | NotUsableError) -> CallError:
        if isinstance(error, SerializationError):
            return _invalid(self.raw, error)
        message = f"{self.raw.pointer}: {error}"
        return CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})

    def _authorizer(self, auth: HTTPAuth | None) -> Callable[[], Awaitable[Credentials]] | None:
        """Return a function that makes the credentials of a request; ``None`` if it has none."""
        plan = self.plan
        appliers = self.source.authenticator.plan(self.raw, plan.server, auth, plan.required_keys)
        if not appliers:
            return None

        async def authorize() -> Credentials:
            credentials = Credentials()
            for apply in appliers:
                await apply(credentials)
            return credentials

        return authorize


def _caller_auth(table: Mapping[str, Any]) -> HTTPAuth:
    """Return the credential in a provider's table. Raises `CallError`, without its values, if it is invalid."""
    try:
        auth = HTTPAuth(**table)
    except (ConfigError, TypeError, ValueError):
        auth = None
    if auth is None or auth.type == "caller":
        expected = 'expected a table that is valid as `auth`, such as {"type": "bearer", "token": …}'
        message = f"the provider of the caller's credential: {expected}, got another one"
        raise CallError(ErrorCode.EXECUTION_ERROR, message)
    return auth


async def _prepare(hook: Callable[..., Any], context: OperationContext | None, request: HTTPRequest) -> None:
    """Run ``on_request``. An exception of the hook becomes the error of the call, not a network failure."""
    try:
        await maybe_await(hook(request, context))
    except CallError:
        raise
    except Exception as error:
        message = f"{request.method} {shown_url(request.url)}: on_request raised {type(error).__name__}: {error}"
        raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message}) from error


def _all_keys(_: RawOperation, required: Collection[Key]) -> Collection[Key]:
    """Return all keys, because each caller's own credential sends them."""
    return required


def _has_many(raw: RawOperation) -> bool:
    parameters = raw.node.get("parameters")
    return isinstance(parameters, list) and len(parameters) > _MANY


async def maybe_await(value: Any) -> Any:
    """Return the result of an application's function, awaited if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


def _invalid(raw: RawOperation, error: SerializationError) -> CallError:
    message = f"{raw.method} {raw.path}: {error}"
    errors = [{"path": "$", "message": str(error), "keyword": "serialization"}]
    return CallError(ErrorCode.VALIDATION_ERROR, message, {"errors": errors})
