"""Operations that another operad serves, loaded from its document with their own ids, types and errors.

The document and each operation in it have a member ``x-operad``. The JSON body of a request is the whole input.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from operad import CallError, ErrorCode, ErrorDefinition, OperationContext, OperationType, ResponseEnvelope, Schema
from operad.wire import to_json
from operad_openapi._document.document import Document, Json
from operad_openapi._document.listing import RawOperation
from operad_openapi._document.mediatypes import EVENT_STREAM
from operad_openapi._document.outputs import item_schema
from operad_openapi._operation import DocumentOperation
from operad_openapi._request.plan import Plan
from operad_openapi._request.request import EncodedBody, Request
from operad_openapi._source import DocumentSource
from operad_schema import lazy_schema

MARK = "x-operad"
END, FAILED = "operad.end", "operad.error"
_PASSING = frozenset({str(ErrorCode.ACCESS_DENIED), str(ErrorCode.VALIDATION_ERROR)})
"""Error codes that are passed on besides those that an operation declares. Codes
that mean that nothing ran are left out, because only the transport of a call can know that."""

_UNRUN = frozenset({str(ErrorCode.OPERATION_NOT_FOUND), str(ErrorCode.NO_RESPONDERS), str(ErrorCode.OVERLOADED),
                    str(ErrorCode.UNAVAILABLE)})  # fmt: skip


def is_operads(document: Document) -> bool:
    """Return True if another operad made the document: ``x-operad`` in it has version 1."""
    mark = document.root.get(MARK)
    return isinstance(mark, dict) and mark.get("version") == 1


def mark_of(raw: RawOperation) -> Json | None:
    """Return the member ``x-operad`` of a POST operation, or ``None`` if it has no ``id``.

    Returns ``None`` for other methods, because the document repeats a query as GET.
    """
    mark = raw.node.get(MARK)
    if raw.method != "POST" or not isinstance(mark, dict) or not isinstance(mark.get("id"), str):
        return None
    return mark


class ServedOperation(DocumentOperation):
    """An operation that another operad serves."""

    __slots__ = ("mark",)

    def __init__(self, source: DocumentSource, raw: RawOperation, mark: Json) -> None:
        kind = mark.get("type")
        self.mark: Json = mark
        super().__init__(source, raw, EVENT_STREAM if kind == OperationType.SUBSCRIPTION else None)

    @property
    def kind(self) -> OperationType:
        """The type of the operation as the other operad states it; a mutation if that is missing or unknown."""
        kind = self.mark.get("type")
        return OperationType(kind) if kind in tuple(OperationType) else OperationType.MUTATION

    @property
    def is_idempotent(self) -> bool:
        """Whether the other operad declares the operation idempotent."""
        return self.mark.get("idempotent") is True

    def input_schema(self) -> Schema:
        """Return the schema of the input, which is that of the JSON body."""
        body = self.source.document.resolve(self.raw.node.get("requestBody", {}))
        media = body.get("content", {}).get("application/json", {}) if isinstance(body, dict) else {}
        schema = media.get("schema", True) if isinstance(media, dict) else True
        return self.source.schema(self.source.input_view.schema(schema), self.source.input_view)

    def output_schema(self) -> Schema:
        """Return the schema of the result; for a stream, the schema of one item."""
        if self.stream_type is None:
            return super().output_schema()
        view = self.source.output_view
        event: Any = item_schema(self.source.document, self.raw, self.stream_type, view)
        # The first kind of event is an item, the others are ends.
        kinds = event.get("anyOf") if isinstance(event, dict) else None
        event = kinds[0] if isinstance(kinds, list) and kinds else True
        for name in ("properties", "data", "contentSchema"):
            event = event.get(name, True) if isinstance(event, dict) else True
        return self.source.schema(event, view)

    def adapt(self, input: Any) -> Any:
        """Return the input unchanged, because the whole input is the body."""
        return input

    def hint(self, input: Any) -> str:
        """Return an empty hint, because the whole input is the body."""
        return ""

    @property
    def error_schemas(self) -> tuple[ErrorDefinition, ...]:
        """The errors that the other operad declares for the operation."""
        return tuple(self._error(item) for item in self._declared)

    @property
    def _declared(self) -> list[Json]:
        errors = self.mark.get("errors")
        found = [item for item in errors if isinstance(item, dict)] if isinstance(errors, list) else []
        return [item for item in found if isinstance(item.get("code"), str)]

    def _error(self, item: Json) -> ErrorDefinition:
        view, status = self.source.output_view, item.get("httpStatus")
        return ErrorDefinition(
            item["code"],
            str(item.get("description", "")),
            lazy_schema(partial(self.source.schema, view.schema(item.get("schema", True)), view)),
            status if type(status) is int else None,
        )

    async def call(self, input: Any, context: OperationContext | None = None) -> ResponseEnvelope[Any]:
        """Return the result of a call. Raises `CallError` if it fails; declared errors keep their codes."""
        try:
            return await super().call(input, context)
        except CallError as error:
            raise self._translated(error) from error

    async def stream(
        self, input: Any, context: OperationContext | None = None
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Yield the items of the stream. Raises `CallError` if the stream fails or breaks off before its end."""
        try:
            async with aclosing(super().stream(input, context)) as items:
                async for envelope in items:
                    if envelope.meta.event_type == END:
                        return
                    if envelope.meta.event_type == FAILED:
                        raise self._of_stream(envelope.data)
                    yield envelope
        except CallError as error:
            raise self._translated(error) from error
        raise CallError(ErrorCode.UNAVAILABLE, f"{self.raw.path}: the stream broke off before its end")

    def _made(self, plan: Plan, input: Any) -> Request:
        headers = plan.headers.copy()
        if self.stream_type is not None:
            headers["Accept"] = self.stream_type
        body = EncodedBody("application/json", to_json(input))
        return Request("POST", plan.server + self.raw.path, headers, [], body)

    def _is_text(self) -> bool:
        return False  # data of events are JSON here, strings as well

    def _translated(self, error: CallError) -> CallError:
        details = error.details
        problem = details.get("problem") if isinstance(details, Mapping) else None
        return error if not isinstance(problem, Mapping) else self._of_problem(problem) or error

    def _of_stream(self, problem: Any) -> CallError:
        if isinstance(problem, Mapping) and (error := self._of_problem(problem)) is not None:
            return error
        details = {"problem": problem}
        text = problem.get("detail") if isinstance(problem, Mapping) else None
        return CallError(ErrorCode.EXECUTION_ERROR, f"{self.raw.path}: {text or 'the stream failed'}", details)

    def _of_problem(self, problem: Mapping[str, Any]) -> CallError | None:
        code = problem.get("code")
        declared = {item["code"] for item in self._declared}
        if not isinstance(code, str) or code not in _PASSING | declared or code in _UNRUN:
            return None
        message = str(problem.get("detail") or f"{self.raw.path}: the call failed")
        return CallError(code, message, problem.get("details"))
