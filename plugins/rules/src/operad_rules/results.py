"""The steps of a rule that change what a call returns: select, redact, and handles for large results."""

from __future__ import annotations

import base64
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from fnmatch import translate
from typing import Any

import attrs

from operad import CallError, ErrorCode, OperationContext, OperationSpec, ResponseEnvelope
from operad.envelopes import EnvelopeKinds, local_envelope
from operad.plugin import InterceptedCall
from operad.wire import to_json
from operad_rules.steps import Envelope, Proceed, Step, StreamProceed

REDACTED = "[redacted]"
_SCALARS = frozenset({str, int, float, bool, type(None)})
_KEPT_FOR = 900.0
_KEPT_BYTES = 256 * 2**20
_PREVIEW = 500


class Shape(Step):
    """A step that replaces the data of results.

    If the data change, metadata that are not local are replaced by local metadata, because they may repeat the old
    data, as MCP content does. If the data of an error envelope change, `call` and `stream` raise `CallError`
    ``EXECUTION_ERROR`` with the new data in its details.

    Args:
        kinds: the kinds of envelopes, which recognise envelopes of errors.
    """

    def __init__(self, kinds: EnvelopeKinds) -> None:
        self._kinds = kinds

    def shaped(self, data: Any, call: InterceptedCall, *, is_error: bool) -> Any:
        """Return the new data; return ``data`` itself to leave the envelope unchanged.

        ``is_error`` is True for the data of an error envelope. Raises `CallError` if the data cannot be replaced.
        """
        raise NotImplementedError

    def _after(self, envelope: Envelope, call: InterceptedCall) -> Envelope:
        meta = envelope.meta
        is_local = meta.source == "local"
        is_error = not is_local and self._kinds.is_error(envelope)
        data = self.shaped(envelope.data, call, is_error=is_error)
        if data is envelope.data:
            return envelope
        if is_error:
            message = f'"{call.spec.id}" returned an error; details.data has its content, as a rule changed it'
            raise CallError(ErrorCode.EXECUTION_ERROR, message, {"data": data})
        return ResponseEnvelope(data, meta) if is_local else local_envelope(data, call.spec.id)

    async def call(self, call: InterceptedCall, proceed: Proceed) -> Envelope:
        """Run the call and return its result with the new data."""
        return self._after(await proceed(call), call)

    async def stream(self, call: InterceptedCall, proceed: StreamProceed) -> AsyncGenerator[Envelope, None]:
        """Yield the items of the stream, each with the new data."""
        async for envelope in super().stream(call, proceed):
            yield self._after(envelope, call)


class Select(Shape):
    """A step that replaces the data by the value of a JMESPath expression; errors are not changed."""

    def __init__(self, expression: str, kinds: EnvelopeKinds) -> None:
        import jmespath

        super().__init__(kinds)
        self._expression, self._failure = jmespath.compile(expression), jmespath.exceptions.JMESPathError

    def shaped(self, data: Any, call: InterceptedCall, *, is_error: bool) -> Any:
        """Return the value of the expression for the data; ``None`` if it selects nothing.

        Raises `CallError` ``EXECUTION_ERROR`` if the expression fails, for example on a value of a wrong type.
        """
        if is_error:
            return data
        try:
            return self._expression.search(data)
        except self._failure as error:
            message = f'a rule\'s select fails on the result of "{call.spec.id}"; correct the expression: {error}'
            raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message}) from None


class Redact(Shape):
    """A step that replaces the values of some keys, at any depth, in results and in the details of errors.

    Args:
        patterns: shell patterns of keys; case is ignored.
        kinds: the kinds of envelopes, which recognise envelopes of errors.
    """

    def __init__(self, patterns: Sequence[str], kinds: EnvelopeKinds) -> None:
        super().__init__(kinds)
        self._matches = re.compile("|".join(translate(one) for one in patterns), re.IGNORECASE).match

    def shaped(self, data: Any, call: InterceptedCall, *, is_error: bool) -> Any:
        """Return a copy with ``"[redacted]"`` as the value of each matching key, or ``data`` if no key matches.

        In the copy, instances of dataclasses and attrs classes with a matching key are dictionaries.
        """
        return self._redacted(data)

    def _redacted(self, value: Any) -> Any:
        """Return a copy without the values, or the value itself if it has none of the keys."""
        changed: dict[Any, Any] = {}
        if isinstance(value, (dict, Mapping)):  # dict first: the check of an abstract class is slow
            for key, item in value.items():
                if isinstance(key, str) and self._matches(key):
                    changed[key] = REDACTED
                elif item.__class__ not in _SCALARS and (made := self._redacted(item)) is not item:
                    changed[key] = made
            return {**value, **changed} if changed else value
        if isinstance(value, (list, tuple)):
            items = [self._redacted(item) for item in value]
            return items if any(one is not other for one, other in zip(items, value, strict=True)) else value
        if attrs.has(type(value)) or is_dataclass(type(value)):
            plain = dict(_fields(value))
            made = self._redacted(plain)
            return value if made is plain else made
        return value

    def _error(self, error: CallError) -> CallError:
        details = self._redacted(error.details)
        if details is error.details:
            return error
        cleaned = CallError(error.code, error.message, details)
        cleaned.undeclared, cleaned.logged, cleaned.ran = error.undeclared, error.logged, error.ran
        return cleaned

    async def call(self, call: InterceptedCall, proceed: Proceed) -> Envelope:
        """Run the call, and redact its result or its error."""
        try:
            return self._after(await proceed(call), call)
        except CallError as error:
            cleaned = self._error(error)
        raise cleaned  # outside of the handler: the original error must not be its context

    async def stream(self, call: InterceptedCall, proceed: StreamProceed) -> AsyncGenerator[Envelope, None]:
        """Yield the redacted items of the stream, and redact an error that ends it."""
        try:
            async for envelope in super().stream(call, proceed):
                yield envelope
            return
        except CallError as error:
            cleaned = self._error(error)
        raise cleaned


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of an instance of a dataclass or an attrs class, as they are written to JSON."""
    for field in attrs.fields(type(value)) if attrs.has(type(value)) else fields(value):
        yield field.name, getattr(value, field.name)


@attrs.frozen
class _Kept:
    owner: str | None
    text: str
    until: float


class LargeResults:
    """The large results of one registry by handle. A result is returned only to the caller who got its handle.

    Args:
        clock: returns the time in seconds; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        # The sizes of the results of each caller, by handle; the oldest first, as above.
        self._sizes: dict[str | None, dict[str, int]] = {}
        self._size = 0

    def keep(self, text: str, context: OperationContext) -> str:
        """Keep a text for 15 minutes and return its handle.

        While all texts together have more than 256 Mi characters, the oldest of the caller who has most of them is
        dropped, but never this one.
        """
        handle, now, owner = secrets.token_urlsafe(24), self._clock(), _owner(context)
        while self._kept and (oldest := next(iter(self._kept.items())))[1].until <= now:
            self._drop(*oldest)
        self._kept[handle] = _Kept(owner, text, now + _KEPT_FOR)
        self._sizes.setdefault(owner, {})[handle] = len(text)
        self._size += len(text)
        while self._size > _KEPT_BYTES and len(self._kept) > 1:
            others = [sizes for sizes in self._sizes.values() if next(iter(sizes)) != handle]
            most: dict[str, int] = max(others, key=lambda sizes: sum(sizes.values()))
            first = next(iter(most))
            self._drop(first, self._kept[first])
        return handle

    def _drop(self, handle: str, kept: _Kept) -> None:
        del self._kept[handle]
        self._size -= self._sizes[kept.owner].pop(handle)
        if not self._sizes[kept.owner]:
            del self._sizes[kept.owner]

    async def read(self, input: Mapping[str, Any], context: OperationContext) -> dict[str, Any]:
        """Return a part of a result as ``{text, next, total}``. This is the handler of ``operad.results.read``.

        ``next`` is the offset of the next part, ``None`` after the last one; ``total`` is the size in characters.
        Raises `CallError` ``NOT_FOUND`` if the handle is unknown, has expired, or belongs to another caller.
        """
        kept = self._kept.get(input["handle"])
        if kept is None or kept.until <= self._clock() or kept.owner != _owner(context):
            message = "this handle is unknown, has expired, or belongs to another caller; call the operation again"
            raise CallError("NOT_FOUND", message)
        start = input.get("offset", 0)
        end = start + input.get("length", 65_536)
        return {
            "text": kept.text[start:end],
            "next": end if end < len(kept.text) else None,
            "total": len(kept.text),
        }


def _owner(context: OperationContext) -> str | None:
    return None if context.identity is None else context.identity.id


READ = OperationSpec(
    namespace="operad",
    name="results.read",
    type="query",
    description="Read a part of a result that was too large to be returned in one piece.",
    input_schema={
        "type": "object",
        "properties": {
            "handle": {"type": "string", "maxLength": 64, "description": "the handle that was returned instead"},
            "offset": {
                "type": "integer",
                "minimum": 0,
                "default": 0,
                "description": "where to start, in characters",
            },
            "length": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "default": 65_536},
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "next": {"type": ["integer", "null"], "description": "the offset of the next part, if any"},
            "total": {"type": "integer", "description": "the number of characters of the whole result"},
        },
        "required": ["text", "next", "total"],
    },
    error_schemas=[
        {"code": "NOT_FOUND", "description": "The handle is unknown or has expired.", "httpStatus": 404}
    ],
)
"""The operation that reads the parts of results that were too large."""


class MaxBytes(Shape):
    """A step that returns a handle instead of a result that is too large.

    Args:
        size: the maximum size of a result as JSON, in bytes.
        results: the store for large results.
        kinds: the kinds of envelopes, which recognise envelopes of errors.
    """

    def __init__(self, size: int, results: LargeResults, kinds: EnvelopeKinds) -> None:
        super().__init__(kinds)
        self._bound, self._results = size, results

    def shaped(self, data: Any, call: InterceptedCall, *, is_error: bool) -> Any:
        """Return ``{handle, operation, bytes, preview}`` for large data; return other data unchanged.

        ``bytes`` is the size, and ``preview`` the first 500 characters. Binary data are kept as base64.
        """
        if call.spec.id == READ.id:  # its caller chooses the length; a handle for a part would lead nowhere
            return data
        if isinstance(data, (bytes, bytearray, memoryview)):
            size, text = len(data), ""
        else:
            encoded = to_json(data)
            size, text = len(encoded), encoded.decode()
        if size <= self._bound:
            return data
        text = text or base64.b64encode(data).decode()
        handle = self._results.keep(text, call.context)
        return {"handle": handle, "operation": READ.id, "bytes": size, "preview": text[:_PREVIEW]}
