"""The path of one call from its id to its envelope: look up, admit, run under the deadline, finish."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import os
import time
from asyncio import get_running_loop
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from types import MappingProxyType
from typing import Any, cast

from operad.context import LONGEST_KEY, Callables, OperationContext
from operad.deadlines import checked_number, earlier, until
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.failures import map_error, operation_not_found, out_of_handler
from operad.observers import CallRecord, Observers, StreamWatch, Watch
from operad.operations import Operation
from operad.registry.catalogue import Catalogue
from operad.registry.endings import Errors, failure_of
from operad.registry.entry import Entry
from operad.registry.interceptors import InterceptedCall, Interceptor, Interceptors, copied
from operad.registry.pipeline import ResultPipeline
from operad.registry.workers import Workers
from operad.subscriptions import close
from operad.words import nearest

logger = logging.getLogger("operad")

Envelopes = AsyncGenerator[ResponseEnvelope[Any], None]

_MEANT, _MEANT_OF = 3, 2_000
"""The maximum difference in length of a suggested id, and the maximum number of ids to compare for it."""


class Execution:
    """The path of every call of one registry.

    Args:
        target: the registry, which receives nested calls.
        catalogue: the operations.
        pipeline: the result pipeline of operations that ``resolvers`` return.
        workers: the threads of plain ``def`` handlers.
        observers: the observers of each call.
        resolvers: implementations of ``operad_resolve_operation``.
        contributed: the interceptors of plugins.
    """

    def __init__(
        self,
        target: Callables,
        catalogue: Catalogue,
        pipeline: ResultPipeline,
        workers: Workers,
        observers: Observers,
        resolvers: tuple[Callable[..., Any], ...],
        contributed: Iterable[Interceptor] = (),
    ) -> None:
        self.target = target
        self._catalogue = catalogue
        self._entries = catalogue.entries
        self._pipeline = pipeline
        self._workers = workers
        self._resolvers = resolvers
        self.observers = observers
        self.observed = bool(observers)
        self.interceptors = Interceptors(contributed, self._unprepare)
        self.why_missing: Callable[[str], str] = lambda operation_id: ""
        """Returns the end of a message about an unknown id, which names empty or failed sources."""
        self.why_held: Callable[[str], str | None] = lambda operation_id: None
        """Returns the reason why a source does not register an operation that it knows; else ``None``."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        # An unguessable prefix and a counter: unique across processes, at a tenth of the cost of a UUID.
        self.id_prefix = os.urandom(8).hex() + "-"
        self.next_id = itertools.count(1).__next__

    def observe(self, added: Observers) -> Callable[[], None]:
        """Add observers of calls. Call the returned function to remove them."""
        self._observe(self.observers.with_others(added))
        return lambda: self._observe(self.observers.without(added))

    def _observe(self, observers: Observers) -> None:
        self.observers, self.observed = observers, bool(observers)

    def _move(self) -> None:
        """Move to the running event loop. Raises `RuntimeError` if the previous loop is still open."""
        forked = self._process != os.getpid()
        if self._loop is not None and not self._loop.is_closed() and not forked:
            raise RuntimeError(
                "this registry is used in another event loop already; make one registry for each loop, or use "
                "operad.sync, which works from any thread"
            )
        if forked:  # the threads of the parent process do not exist in the child
            self._workers.close()
        self._loop, self._process = get_running_loop(), os.getpid()

    def id_of(self, operation: Operation[..., Any]) -> str:
        """Return the id of an operation here. Raises `CallError` if this is a view without the operation."""
        return operation.id

    def new_call(self, context: OperationContext | Any) -> OperationContext:
        """Return the context of one call. Raises `CallError` for an unusable context, deadline or key."""
        if context is None:
            return OperationContext(f"{self.id_prefix}{self.next_id()}", None, None, None, self.target)
        if not isinstance(context, OperationContext):  # a caller without type checks
            message = f"context: expected an OperationContext, got {type(context).__name__}"
            raise CallError(ErrorCode.VALIDATION_ERROR, message, {"message": message})
        deadline, key = context.deadline, context.idempotency_key
        if deadline is not None and (deadline.__class__ is not float or deadline != deadline):
            deadline = checked_number(deadline, "deadline", "epoch ms")
        if key is not None:
            _check_key(key)
        if context.registry is not None and context.request_id is not None:  # a handler's own: the call is nested
            context = context.child(trusted=context.trusted)
        metadata = context.metadata
        if metadata.__class__ is not MappingProxyType:
            # A handler must not write into the caller's metadata, which its other calls share.
            metadata = MappingProxyType({**metadata})
        return OperationContext(
            context.request_id or f"{self.id_prefix}{self.next_id()}",
            context.parent_request_id,
            context.identity,
            deadline,
            trusted=context.trusted is True,  # no other true value may skip the access check
            metadata=metadata,
            client=context.client,
            idempotency_key=key,
            credentials=context.credentials,
            registry=self.target,
        )

    async def run(self, operation_id: str, input: Any, call: OperationContext) -> ResponseEnvelope[Any]:
        """Call an operation in its context. Raises `CallError` if it fails, or a cancellation unchanged."""
        if get_running_loop() is not self._loop:
            self._move()
        entry = self._entries.get(operation_id)
        try:
            invoke: Any
            if entry is None or (invoke := entry.invoke) is None:
                entry = await self._prepared(operation_id, call.deadline)
                invoke = entry.invoke
            if input is None:
                input = _left_out(entry)
            if entry.guarded:  # `Entry.admit`, without the call if the operation is open
                if entry.adapt is not None:
                    input = entry.adapt(input)
                validator = entry.validator
                if not entry.is_open or validator is None or not validator(input):
                    input = entry.admit(input, call)
            deadline = call.deadline
            chain = entry.call_chain
            if chain is not None:
                checked = (call.identity, call.trusted, deadline)
                outer = InterceptedCall(entry.spec, copied(input), call, checked)
                return await (chain(outer) if deadline is None else until(deadline, chain, outer))
            try:
                result = await (invoke(input, call) if deadline is None else until(deadline, invoke, input, call))
            except CallError as error:
                if (mapped := out_of_handler(error, operation_id, entry.spec.error_schemas)) is error:
                    raise
                raise mapped from error
            return entry.finish(result)
        except CallError:
            raise
        except BaseException as error:
            if (failure := failure_of(error, operation_id, entry, call.deadline, call.request_id)) is None:
                raise
            raise failure from error

    async def stream(
        self,
        operation_id: str,
        input: Any,
        call: OperationContext,
        timeout: float | None,
        *,
        in_pieces: bool = False,
    ) -> Envelopes:
        """Yield the envelopes of an operation; ``timeout``, in seconds, limits the wait for each envelope.

        With ``in_pieces``, yield the bytes of one result in several envelopes. Raises `CallError` on failure.
        """
        if get_running_loop() is not self._loop:
            self._move()
        deadline = earlier(call.deadline, timeout)
        items: AsyncIterator[Any] | None = None
        errors = Errors(operation_id, deadline, call.request_id)
        try:
            with errors:
                errors.entry = entry = await self._prepared(operation_id, deadline)
                if in_pieces:
                    items = self._pieces(entry, input, call)
                elif entry.streams:
                    items = self._items(entry, input, call)
                if items is not None and entry.pipeline.usage is not None:
                    items = entry.pipeline.usage.items(items)
            errors.of_handler = entry.stream_chain is None and not in_pieces
            while items is not None:
                with errors:
                    try:
                        item = await (anext(items) if deadline is None else until(deadline, anext, items))
                    except StopAsyncIteration:
                        return
                    envelope = entry.finish(item) if errors.of_handler else item
                yield envelope
                errors.deadline = deadline = earlier(call.deadline, timeout)
        finally:
            if items is not None:
                await close(items)
        call.deadline = deadline
        yield await self.run(operation_id, input, call)

    def _pieces(self, entry: Entry, input: Any, call: OperationContext) -> Envelopes:
        chunks: Any = None if entry.operation is None else entry.operation.chunks
        if chunks is None:
            raise _no_download(entry, "its source does not support downloads")
        chain = self.interceptors.around_stream(entry, lambda inner: chunks(inner.input, inner.context))
        if chain is None and entry.call_chain is not None:
            # An interceptor that guards the calls of the operation must not be bypassed.
            raise _no_download(entry, "an interceptor of its calls does not support streams")
        input = _admitted(entry, input, call)
        stream: Any = (
            chunks(input, call) if chain is None else chain(InterceptedCall(entry.spec, copied(input), call))
        )
        return cast("Envelopes", stream)

    def _items(self, entry: Entry, input: Any, call: OperationContext) -> AsyncIterator[Any]:
        """Return the items of a stream's handler; through interceptors, its envelopes."""
        input = _admitted(entry, input, call)
        if entry.stream_chain is not None:
            return entry.stream_chain(InterceptedCall(entry.spec, copied(input), call))
        return entry.items(input, call, self._workers)

    # --- preparing -------------------------------------------------------------------------------

    def _intercept(self, entry: Entry) -> None:
        """Put the interceptors of a prepared operation around it."""
        invoke, finish, operation_id = entry.invoke, entry.finish, entry.spec.id
        assert invoke is not None

        async def handle(inner: InterceptedCall) -> ResponseEnvelope[Any]:
            call, limit = inner.context, inner.limit
            try:
                given = entry.admit(inner.input, call)  # an interceptor may have changed it in place
                return finish(await (invoke(given, call) if limit is None else until(limit, invoke, given, call)))
            except BaseException as error:
                Errors(operation_id, call.deadline, call.request_id, entry, of_handler=True).check(error)
                raise

        async def stream(inner: InterceptedCall) -> Envelopes:
            given = entry.admit(inner.input, inner.context)
            items = entry.items(given, inner.context, self._workers)
            errors = Errors(operation_id, None, inner.context.request_id, entry, of_handler=True)
            try:
                while True:
                    with errors:
                        try:
                            item = await anext(items)
                        except StopAsyncIteration:
                            return
                        envelope = finish(item)
                    yield envelope
            finally:
                await close(items)

        entry.call_chain = self.interceptors.around_call(entry, handle)
        entry.stream_chain = self.interceptors.around_stream(entry, stream)

    def _unprepare(self) -> None:
        """Let each operation find its interceptors again at its next call; calls in progress keep theirs."""
        for entry in self._entries.values():
            entry.invoke = None

    async def _prepared(self, operation_id: str, deadline: float | None) -> Entry:
        """Return the entry of an id, ready to be called; the first call of an operation prepares it."""
        entry = self._entries.get(operation_id)
        if entry is None:
            if not self._resolvers:
                raise self._not_found(operation_id)
            if deadline is None:
                entry = await self._resolve(operation_id)
            else:
                entry = await until(deadline, self._resolve, operation_id)
        if entry.handler is None:
            message = f'no handler registered for operation "{operation_id}"; use register_handler'
            raise operation_not_found(operation_id, message)
        if entry.invoke is None:
            entry.prepare(entry.handler, self._workers)
            if self.interceptors:
                self._intercept(entry)
            if (usage := entry.pipeline.usage) is not None:
                outermost = "invoke" if entry.call_chain is None else "call_chain"
                setattr(entry, outermost, usage.counted(getattr(entry, outermost)))
        return entry

    async def _resolve(self, operation_id: str) -> Entry:
        """Return the entry of an id that a plugin knows; the registry keeps it."""
        failure: Exception | None = None
        for resolve in self._resolvers:
            plugin = getattr(resolve, "__qualname__", "a plugin")
            try:
                operation = resolve(operation_id=operation_id)
                if inspect.isawaitable(operation):
                    operation = await operation
            except Exception as error:
                logger.exception('%s failed to resolve operation "%s"', plugin, operation_id)
                failure = failure or error
                continue
            if operation is None:
                continue
            if not isinstance(operation, Operation) or operation.id != operation_id:
                answer = operation.id if isinstance(operation, Operation) else type(operation).__name__
                logger.warning('%s: expected operation "%s", got "%s": ignored', plugin, operation_id, answer)
                continue
            if operation_id not in self._entries:
                spec, handler, blocking = operation.spec, operation.handler, operation.blocking
                self._catalogue.add(Entry(spec, handler, blocking, plugin, self._pipeline, operation))
            if operation_id in self._entries:  # else an interceptor left it out
                return self._entries[operation_id]
        if failure is not None:  # whether the operation exists is not known
            raise map_error(failure)
        raise self._not_found(operation_id)

    def _not_found(self, operation_id: str) -> CallError:
        """Return the error for an unknown id, with a similar id if there is one; or why the operation is held."""
        if (reason := self.why_held(operation_id)) is not None:
            return CallError(ErrorCode.ACCESS_DENIED, reason)
        near = [other for other in self._entries if abs(len(other) - len(operation_id)) <= _MEANT][:_MEANT_OF]
        meant = nearest(operation_id, near, cutoff=0.8)
        hint = f'; did you mean "{meant}"?' if meant else ""
        error = operation_not_found(operation_id, f'operation "{operation_id}" not found{hint}')
        error.hint = self.why_missing(operation_id)
        return error

    def watch(
        self,
        operation_id: str,
        input: Any,
        call: OperationContext,
        called_as: str | None = None,
        is_stream: bool = False,
    ) -> Watch | None:
        """Return a `Watch` of the call; ``None`` if no observer is active. ``called_as`` is the id in a view."""
        entry = self._entries.get(operation_id)
        if (observers := self.observers.active_for(operation_id, entry is not None)) is None:
            return None
        assert call.request_id is not None
        record = CallRecord(
            call.request_id, call.parent_request_id, operation_id, None if entry is None else entry.spec.type,
            None if call.identity is None else call.identity.id, time.time() * 1000, is_stream, call.metadata,
            {}, {}, called_as, False, input,
        )  # fmt: skip
        return (StreamWatch if is_stream else Watch)(observers, record, call)


async def watched(stream: Envelopes, watch: Watch) -> Envelopes:
    """Yield the envelopes of a stream, and report its start and end through ``watch``."""
    with watch:
        inside = watch.inside
        try:
            while True:
                try:
                    envelope = await inside(anext(stream))
                except StopAsyncIteration:
                    return
                watch.items += 1
                yield envelope
        finally:
            await inside(stream.aclose())


def _left_out(entry: Entry) -> Any:
    """Return the input for ``None``: an empty object, unless the operation accepts null and no empty object."""
    schema = entry.spec.input_schema
    return None if not schema.is_valid({}) and schema.is_valid(None) else {}


def _admitted(entry: Entry, input: Any, call: OperationContext) -> Any:
    """Check access and input of a stream, as `Execution.run` does for other calls, and return the input."""
    if input is None:
        input = _left_out(entry)
    if entry.adapt is not None:
        input = entry.adapt(input)
    return entry.admit(input, call)


def _check_key(key: Any) -> None:
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
        message = f"idempotency_key: expected 1 to {LONGEST_KEY} printable characters, got {key!r:.60}"
        raise CallError(ErrorCode.VALIDATION_ERROR, message, {"message": message})


def _no_download(entry: Entry, reason: str) -> CallError:
    message = f'"{entry.spec.id}" cannot be downloaded: {reason}; use execute'
    return CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message})
