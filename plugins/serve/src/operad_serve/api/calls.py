"""Calls of operations over HTTP: the path ``/operations/{id}``."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import time
from contextlib import nullcontext
from typing import Any

from operad import CallError, ErrorCode, OperationContext, OperationRegistry, OperationSpec, OperationType
from operad.plugin import mask_error, may_list, trace_context
from operad.wire import from_json
from operad_auth.http import without_upstream
from operad_serve.api.forms import Form, Forms
from operad_serve.api.leaving import Sweep, Watch
from operad_serve.api.multipart import MULTIPART, read_multipart
from operad_serve.api.options import OpenAPIServerConfig
from operad_serve.api.queries import Root
from operad_serve.api.responses import (
    check_size,
    data_response,
    envelope_response,
    error_response,
    wants_envelope,
)
from operad_serve.api.streams import EventStream, last_event_id
from operad_serve.api.traces import Traces
from operad_serve.asgi import Exchange, Gate
from operad_serve.problems import Problem, denied, problem_of

_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_TRACE = ("traceparent", "tracestate", "baggage")
_NOTHING: dict[str, Any] = {}
_UNTRACED = nullcontext()


class Calls:
    """The handler of an application's calls: reads requests, runs operations and sends responses.

    If ``traces`` is None, no call tree is recorded.
    """

    def __init__(
        self,
        registry: OperationRegistry,
        config: OpenAPIServerConfig,
        forms: Forms,
        gate: Gate,
        traces: Traces | None = None,
    ) -> None:
        self._registry = registry
        self._config = config
        self._forms = forms
        self._gate = gate
        self._traces = traces
        self._running: set[asyncio.Task[Any]] = set()
        self._late: set[asyncio.Task[Any]] = set()
        """Tasks that a drain has cancelled. A second drain does not wait for them again."""
        self._streams = 0
        self._sweep = Sweep()
        self._ending = asyncio.Event()
        # An unguessable prefix and a counter, as the registry's own ids.
        self._id_prefix = os.urandom(8).hex() + "-"
        self._next_id = itertools.count(1).__next__

    @property
    def is_draining(self) -> bool:
        """Whether new calls are rejected: from the beginning of a drain until `restart`."""
        return self._ending.is_set()

    async def restart(self) -> None:
        """Accept new calls again, after a drain."""
        self._ending = asyncio.Event()

    def request_id(self) -> str:
        """Return a new request id, which no client can guess."""
        return f"{self._id_prefix}{self._next_id()}"

    async def drain(self, timeout: float) -> None:
        """Reject new calls, end the streams with an event, and cancel other calls after ``timeout`` seconds."""
        self._ending.set()
        late = self._running - self._late - {asyncio.current_task()}
        try:
            if late:
                _, late = await asyncio.wait(late, timeout=timeout)
        finally:  # also if the drain is cancelled
            for task in late:
                self._late.add(task)
                task.cancel()

    async def serve(self, exchange: Exchange, operation_id: str) -> None:
        """Run the call of one request, and send its result.

        Raises:
            Problem: the request is not valid, or the call failed before the response began.
            ClientGoneError: the client disconnected, which cancels the call.
        """
        if self._ending.is_set():
            message = "the server is stopping; try again"
            raise Problem(503, message, code=ErrorCode.UNAVAILABLE, headers=[(b"retry-after", b"1")])
        spec = self._visible(operation_id, exchange)
        if exchange.method != "POST":
            await self._check_method(spec, operation_id, exchange)
        deadline = self._deadline(exchange, spec)
        input = await self._input(exchange, spec)
        key = exchange.header("idempotency-key")
        context = OperationContext(
            exchange.request_id,
            None,
            exchange.identity,
            deadline,
            metadata=self._metadata(exchange, spec),
            # The draft of this header quotes the key. Most clients do not.
            idempotency_key=None if key is None else key.strip().strip('"') or None,
            credentials=exchange.credentials,
        )
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        traces = self._traces if b"operad-trace" in exchange.headers else None
        tracing = _UNTRACED if traces is None else traces.tracing(exchange.request_id, exchange.identity)
        try:
            with tracing:
                if spec is not None and spec.type is OperationType.SUBSCRIPTION:
                    await self._stream(exchange, spec, input, context)
                else:
                    await self._answer(exchange, operation_id, spec, input, context)
        except asyncio.CancelledError:
            if task not in self._late or exchange.started:
                raise
            task.uncancel()
            # A code for a call that had begun, and no Retry-After: it may have had an effect.
            message = "the server is stopping; this call took too long and was cancelled"
            raise Problem(503, message, code=ErrorCode.ABORTED) from None
        finally:
            self._running.discard(task)
            self._late.discard(task)

    def _visible(self, operation_id: str, exchange: Exchange) -> OperationSpec | None:
        """Return the operation's spec; None if it is unknown. Raises `Problem` if the caller may not call it."""
        spec = self._registry.get_spec(operation_id)
        # A call that is never allowed is rejected before the request is read.
        if spec is not None and not may_list(spec.access_control, exchange.identity):
            if exchange.identity is None:
                raise denied("this operation requires credentials; send Authorization: Bearer <token>")
            needed = spec.access_control.required_scopes or spec.access_control.required_scopes_any
            error = CallError(
                ErrorCode.ACCESS_DENIED,
                f'the caller lacks scopes or grants that "{operation_id}" requires',
                {"requiredScopes": list(needed)} if needed else None,
            )
            raise problem_of(error, (), has_identity=True)
        return spec

    async def _check_method(self, spec: OperationSpec | None, operation_id: str, exchange: Exchange) -> None:
        allowed = "POST" if spec is None else ", ".join((await self._forms.form(spec)).methods)
        if exchange.method == "OPTIONS":
            raise Problem(204, "", headers=[(b"allow", allowed.encode())])
        if spec is None:  # an operation of a plugin's resolver is called by POST
            message = f'unknown operation "{operation_id}"; /openapi.json lists the operations'
            raise Problem(404, message, code=ErrorCode.OPERATION_NOT_FOUND, details={"operationId": operation_id})
        if exchange.method not in allowed.split(", "):
            why = "; it is a mutation" if spec.type is OperationType.MUTATION else ""
            raise Problem(
                405,
                f"expected {allowed}, got {exchange.method}{why}",
                headers=[(b"allow", allowed.encode())],
            )

    async def _input(self, exchange: Exchange, spec: OperationSpec | None) -> Any:
        form = None if spec is None else self._forms.known(spec) or await self._forms.form(spec)
        if exchange.method == "POST":
            value = await self._body(exchange, form)
        else:
            # `_check_method` has checked it
            assert form is not None
            assert form.query is not None
            value = form.query.read(exchange.scope.get("query_string", b""))
        if form is not None and (form.strict is not None or _has_null(value)):
            _check(form, value)
        return value

    async def _body(self, exchange: Exchange, form: Form | None) -> Any:
        body = await exchange.body(self._config.max_body, self._config.body_timeout)
        if not body:
            return {}
        kind = (exchange.header("content-type") or "").partition(";")[0].strip().lower()
        # Browsers send these forms, and JSON under another type, without a preflight: any page could do it.
        if kind == MULTIPART and form is not None and not self._gate.is_foreign_page(exchange):
            definitions = form.bundled.get("$defs", {}) if isinstance(form.bundled, dict) else {}
            return read_multipart(
                body, exchange.header("content-type") or "", form.bundled, Root(definitions, "#/$defs/")
            )
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            got = f'"{kind[:100]}"' if kind else "no Content-Type"
            raise Problem(415, f"expected a body of application/json, got {got}")
        coding = (exchange.header("content-encoding") or "identity").strip().lower()
        if coding != "identity":
            headers = [(b"accept-encoding", b"identity")]  # RFC 9110, 15.5.16
            raise Problem(415, f'expected a body without content coding, got "{coding[:100]}"', headers=headers)
        try:
            return from_json(body)
        except ValueError as error:
            details = {"errors": [{"path": "$", "message": str(error), "keyword": "json"}]}
            raise Problem(400, f"the body is {error}", code=ErrorCode.VALIDATION_ERROR, details=details) from None

    def _deadline(self, exchange: Exchange, spec: OperationSpec | None) -> float | None:
        """Return the deadline of the call, in epoch ms. Raises `Problem` (400) for a malformed timeout."""
        text = exchange.header("operad-timeout")
        if text is None:
            streams = spec is not None and spec.type is OperationType.SUBSCRIPTION
            seconds = None if streams else self._config.timeout
        elif _SECONDS.fullmatch(text):
            seconds = min(float(text), self._config.max_timeout)
        else:
            raise Problem(400, f'Operad-Timeout: expected decimal seconds such as 2.5, got "{text[:50]}"')
        return None if seconds is None else (time.time() + seconds) * 1000

    def _metadata(self, exchange: Exchange, spec: OperationSpec | None) -> dict[str, Any]:
        trace = _NOTHING
        if b"traceparent" in exchange.headers or b"baggage" in exchange.headers:
            trace = trace_context({name: exchange.header(name) for name in _TRACE})
        if spec is None or spec.type is not OperationType.SUBSCRIPTION:
            return trace
        event_id = last_event_id(exchange)
        return trace if event_id is None else {**trace, "lastEventId": event_id}

    async def _answer(
        self,
        exchange: Exchange,
        operation_id: str,
        spec: OperationSpec | None,
        input: Any,
        context: OperationContext,
    ) -> None:
        try:
            async with Watch(exchange.receive, self._sweep):
                envelope = await self._registry.execute(operation_id, input, context)
            accept, exposed = exchange.header("accept"), self._config.expose_upstream
            if wants_envelope(accept):
                body, content_type, headers = envelope_response(envelope, expose_upstream=exposed)
            elif self._registry.plugins.envelope_kinds.is_error(envelope):
                raise error_response(envelope)
            else:
                body, content_type, headers = data_response(envelope, expose_upstream=exposed)
            check_size(body, self._config.result_bytes, "result")
        except CallError as error:
            raise self._problem(
                error, exchange, spec or self._registry.get_spec(operation_id), operation_id
            ) from error
        await exchange.respond(200, body, content_type.decode(), headers)

    async def _stream(
        self, exchange: Exchange, spec: OperationSpec, input: Any, context: OperationContext
    ) -> None:
        config = self._config
        if self._streams >= config.max_streams:
            message = f"{config.max_streams} streams are open already (max_streams); try again later"
            raise Problem(429, message, code=ErrorCode.OVERLOADED, headers=[(b"retry-after", b"1")])
        stream = EventStream(
            exchange,
            envelopes=wants_envelope(exchange.header("accept")),
            heartbeat=config.heartbeat,
            item_bytes=config.result_bytes,
            expose_upstream=config.expose_upstream,
            ending=self._ending,
        )
        self._streams += 1
        try:
            async with Watch(exchange.receive, self._sweep):
                await stream.run(self._registry.subscribe(spec.id, input, context))
        except CallError as error:
            problem = self._problem(error, exchange, spec, spec.id)
            if not exchange.started:
                raise problem from error
            await stream.fail(problem.to_json(exchange.request_id))
        finally:
            self._streams -= 1

    def _problem(
        self, error: CallError, exchange: Exchange, spec: OperationSpec | None, operation_id: str
    ) -> Problem:
        declared = () if spec is None else spec.error_schemas
        masked = mask_error(
            error,
            {definition.code for definition in declared},
            mask=self._config.mask_errors,
            operation_id=operation_id,
            request_id=exchange.request_id,
        )
        if not self._config.expose_upstream:
            masked = without_upstream(masked)
        return problem_of(masked, declared, has_identity=exchange.identity is not None)


def _has_null(input: Any) -> bool:
    """Return True if an input, or one of its fields, is null (None).

    A registry treats None as an empty input, and operations of OpenAPI sources treat a field that is None as
    absent, because models and Python callers write them so. Over HTTP, null must be allowed by the schema.
    """
    return input is None or (input.__class__ is dict and None in input.values())


def _check(form: Form, input: Any) -> None:
    """Raise `Problem` for an input that the registry would accept, but the document does not allow."""
    found = form.schema.errors(input) if _has_null(input) else []
    # The registry reports what is wrong without the formats, once it has checked the caller's access.
    if not found and form.strict is not None and not form.strict.is_valid(input) and form.schema.is_valid(input):
        found = form.strict.errors(input)
    errors = [{"path": each.path, "message": each.message, "keyword": each.keyword} for each in found]
    if errors:
        message = f'invalid input for "{form.spec.id}": {errors[0]["message"]}'
        raise Problem(422, message, code=ErrorCode.VALIDATION_ERROR, details={"errors": errors[:20]})
