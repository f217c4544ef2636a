"""The registry: operations by id, and the one path on which they are called.

Each call goes the same way: look up spec and handler, check access, validate the input, run the handler under
the deadline, run the result pipeline, answer an envelope; or raise a `CallError`, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
import logging
import os
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

import attrs

from operad._deadline import DeadlineExpired, within
from operad.access import AccessControl, check_access
from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode, OperadError, RegistrationError, map_error, operation_not_found
from operad.observers import CallOutcome, CallRecord
from operad.operations import Handler, Operation, OperationSpec, OperationType
from operad.pipeline import Normalize, OnMismatch, ResultPipeline
from operad.plugins import Plugins
from operad.sources import SourceContext, SourceSession
from operad.subscriptions import Subscription

if TYPE_CHECKING:
    from operad._config import Configuration
    from operad._search import SearchIndex

logger = logging.getLogger("operad")

_APPLICATION = "the application"


@attrs.frozen
class SourceFailure:
    """A source of a configuration that could not be loaded."""

    name: str
    error: OperadError


class _Entry:
    """What the registry holds of one operation; the fields below the line are made at the first call."""

    __slots__ = (
        "blocking",
        "handler",
        "invoke",
        "is_open",
        "owner",
        "pipeline",
        "spec",
        "streams",
        "validator",
    )

    def __init__(
        self,
        spec: OperationSpec,
        handler: Handler | None,
        blocking: bool | None,
        owner: str,
        pipeline: ResultPipeline,
    ) -> None:
        self.spec = spec
        self.handler = handler
        self.blocking = blocking
        self.owner = owner
        self.pipeline = pipeline
        self.is_open = spec.access_control.is_open
        self.streams = False
        # ----
        self.invoke: Callable[[Any, OperationContext], Awaitable[Any]] | None = None
        self.validator: Callable[[Any], bool] | None = None


class OperationRegistry:
    """Operations of all kinds under one roof.

    Use it as an async context manager: leaving it closes what its sources opened.

    Args:
        plugins: what `load_plugins` found; without it the registry knows local operations only.
        normalize: ``"cast"`` makes results fit the output schema where that loses nothing; ``"off"`` does not.
        on_mismatch: what happens when a result does not match the output schema: ``"warn"`` logs it.
        max_threads: how many plain ``def`` handlers run at once, each in a worker thread.
    """

    def __init__(
        self,
        plugins: Plugins | None = None,
        *,
        normalize: Normalize = "cast",
        on_mismatch: OnMismatch = "warn",
        max_threads: int = 32,
    ) -> None:
        self.plugins = Plugins() if plugins is None else plugins
        self.failures: list[SourceFailure] = []
        """Sources of the configuration that could not be loaded."""
        self._pipeline = ResultPipeline(self.plugins.envelope_kinds, normalize, on_mismatch)
        self._entries: dict[str, _Entry] = {}
        self._handlers: dict[str, tuple[Handler, bool | None]] = {}  # those whose spec is not here yet
        self._sessions: list[tuple[SourceSession, str]] = []
        self._observers = self.plugins.observers()
        self._resolvers = self.plugins.implementations("operad_resolve_operation")
        self._added = self.plugins.implementations("operad_operation_added")
        self._removed = self.plugins.implementations("operad_operation_removed")
        self._index: SearchIndex | None = None
        self._sorted: tuple[OperationSpec, ...] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._max_threads = max_threads
        self._configuration: tuple[Configuration, bool] | None = None
        # An unguessable prefix and a counter: unique across processes, at a tenth of the cost of a UUID.
        self._id_prefix = secrets.token_hex(8) + "-"
        self._id_counter = itertools.count(1)
        self.plugins.register_operations(self)

    @classmethod
    def from_config(
        cls, path: str | os.PathLike[str], plugins: Plugins | None = None, *, strict: bool = False
    ) -> Self:
        """The registry that a configuration file describes; entering it loads the sources, all at once.

        A source that cannot be loaded is logged and kept in `failures`; the others load.

        Args:
            path: an operad.toml, a pyproject.toml with ``[tool.operad]``, or a folder that holds the former.
            plugins: default: `load_plugins` with what ``[plugins]`` says.
            strict: raise an `ExceptionGroup` instead of keeping failures.

        Raises:
            ConfigError: the file cannot be used.
        """
        from operad._config import expand_variables, load_configuration, structure
        from operad.plugins import load_plugins

        configuration = load_configuration(path)
        where = configuration.path.name if configuration.path else "configuration"
        if plugins is None:
            chosen = structure(_PluginOptions, configuration.plugins, f"{where} plugins")
            plugins = load_plugins(chosen.only, chosen.disable, chosen.strict)
        table = expand_variables(configuration.registry, f"{where}: registry")
        options = structure(_RegistryOptions, table, f"{where}: registry")
        registry = cls(
            plugins,
            normalize=options.normalize,
            on_mismatch=options.on_mismatch,
            max_threads=options.max_threads,
        )
        registry._configuration = (configuration, strict)
        return registry

    async def __aenter__(self) -> Self:
        if self._configuration is not None:
            (configuration, strict), self._configuration = self._configuration, None
            try:
                await self._load_configuration(configuration, strict)
            except BaseException:
                await self.aclose()
                raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what the sources opened; idempotent. Local operations stay callable."""
        sessions, self._sessions = self._sessions, []
        for session, owner in reversed(sessions):
            try:
                await session.aclose()
            except Exception:
                logger.exception("closing %s failed", owner)
            for operation in session.operations:
                entry = self._entries.get(operation.id)
                if entry is not None and entry.owner == owner:
                    self.unregister(operation.id)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    # --- registering -----------------------------------------------------------------------------

    @overload
    def register(self, spec: Operation[..., Any], /, *, replace: bool = False) -> None: ...

    @overload
    def register(self, spec: OperationSpec, handler: Handler, /, *, replace: bool = False) -> None: ...

    def register(
        self,
        spec: OperationSpec | Operation[..., Any],
        handler: Handler | None = None,
        /,
        *,
        replace: bool = False,
    ) -> None:
        """Add an operation: a spec and its handler, or an `Operation`.

        Raises:
            RegistrationError: the id is taken and ``replace`` is false; the message names both owners.
        """
        if isinstance(spec, Operation):
            self._add(spec.spec, spec.handler, spec.blocking, _APPLICATION, self._pipeline, replace)
        elif handler is None:
            raise TypeError("register takes a spec and a handler, or an operation; see register_spec")
        else:
            self._add(spec, handler, None, _APPLICATION, self._pipeline, replace)

    def register_spec(self, spec: OperationSpec, *, replace: bool = False) -> None:
        """Add a spec; its handler may have come already, or come later."""
        handler, blocking = self._handlers.pop(spec.id, (None, None))
        self._add(spec, handler, blocking, _APPLICATION, self._pipeline, replace)

    def register_handler(
        self, operation_id: str, handler: Handler, *, blocking: bool | None = None, replace: bool = False
    ) -> None:
        """Add the handler of an operation; its spec may have come already, or come later.

        Raises:
            RegistrationError: the operation has a handler and ``replace`` is false.
        """
        entry = self._entries.get(operation_id)
        taken = operation_id in self._handlers if entry is None else entry.handler is not None
        if taken and not replace:
            raise RegistrationError(
                f'operation "{operation_id}" has a handler already; pass replace=True to replace it'
            )
        if entry is None:
            self._handlers[operation_id] = (handler, blocking)
        else:
            self._entries[operation_id] = _Entry(entry.spec, handler, blocking, entry.owner, entry.pipeline)

    def unregister(self, operation_id: str) -> None:
        """Remove an operation. Raises `RegistrationError` if there is none of that id."""
        entry = self._entries.pop(operation_id, None)
        if entry is None:
            raise RegistrationError(f'there is no operation "{operation_id}" to remove')
        self._sorted = None
        self._index = None
        for observer in self._removed:
            _notify(observer, entry.spec)

    def _add(
        self,
        spec: OperationSpec,
        handler: Handler | None,
        blocking: bool | None,
        owner: str,
        pipeline: ResultPipeline,
        replace: bool,
    ) -> None:
        operation_id = spec.id
        entry = self._entries.get(operation_id)
        if entry is not None and not replace:
            raise RegistrationError(
                f'operation "{operation_id}" is registered already by {entry.owner}, and now again by {owner}; '
                "rename one of them, or pass replace=True"
            )
        self._entries[operation_id] = _Entry(spec, handler, blocking, owner, pipeline)
        self._sorted = None
        self._index = None
        for observer in self._added:
            _notify(observer, spec)

    # --- looking up ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, operation_id: object) -> bool:
        return operation_id in self._entries

    def get_spec(self, operation_id: str) -> OperationSpec | None:
        """The spec of an operation, or ``None``."""
        entry = self._entries.get(operation_id)
        return None if entry is None else entry.spec

    def get_handler(self, operation_id: str) -> Handler | None:
        """The handler of an operation, or ``None``."""
        entry = self._entries.get(operation_id)
        return self._handlers.get(operation_id, (None,))[0] if entry is None else entry.handler

    def specs(self) -> Sequence[OperationSpec]:
        """All specs, sorted by id; a read-only snapshot."""
        if self._sorted is None:
            self._sorted = tuple(entry.spec for _, entry in sorted(self._entries.items()))
        return self._sorted

    def search(self, query: str, limit: int = 10) -> list[OperationSpec]:
        """The operations that fit ``query`` best, by id, title, description and tags; best first."""
        if self._index is None:
            from operad._search import SearchIndex

            self._index = SearchIndex(self.specs())
        return self._index.search(query, limit)

    # --- calling ---------------------------------------------------------------------------------

    async def execute(
        self,
        operation_id: str,
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
    ) -> ResponseEnvelope[Any]:
        """Call an operation; of a subscription, take the first item and close it.

        Args:
            operation_id: ``namespace.name``.
            input: what the operation takes, usually a dict; ``None`` means ``{}``.
            context: who calls, until when; ``OperationContext(trusted=True)`` for the application itself.
            timeout: seconds; the context's deadline may end the call sooner.

        Raises:
            CallError: and nothing else, but a cancellation of the calling task.
        """
        call = self._call(context)
        if timeout is not None:
            _limit(call, timeout)
        if self._observers:
            return await self._observed(operation_id, input, call)
        return await self._execute(operation_id, input, call)

    async def _execute(self, operation_id: str, input: Any, call: OperationContext) -> ResponseEnvelope[Any]:
        entry = self._entries.get(operation_id)
        if entry is None or entry.invoke is None:
            entry = await self._prepared(operation_id)
        if input is None:
            input = {}
        self._admit(entry, input, call)
        assert entry.invoke is not None
        try:
            if call.deadline is None:
                result = await entry.invoke(input, call)
            else:
                result = await _until(call.deadline, entry.invoke, input, call)
        except CallError:
            raise
        except BaseException as error:
            raise _failure(error, entry, call) from error
        return entry.pipeline.apply(result, entry.spec)

    def subscribe(
        self,
        operation_id: str,
        input: Any = None,
        context: OperationContext | None = None,
        *,
        timeout: float | None = None,
    ) -> Subscription:
        """Subscribe to an operation; a query or mutation yields its one envelope.

        Arguments as for `execute`, but ``timeout`` bounds the wait for each item, not the whole.
        """
        call = self._call(context)
        if self._observers:
            return Subscription(self._observed_stream(operation_id, input, call, timeout))
        return Subscription(self._stream(operation_id, input, call, timeout))

    async def _stream(
        self, operation_id: str, input: Any, call: OperationContext, timeout: float | None
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        entry = self._entries.get(operation_id)
        if entry is None or entry.invoke is None:
            entry = await self._prepared(operation_id)
        if not entry.streams:
            if timeout is not None:
                _limit(call, timeout)
            yield await self._execute(operation_id, input, call)
            return
        if input is None:
            input = {}
        self._admit(entry, input, call)
        items: AsyncIterator[Any] | None = None
        try:
            while True:
                deadline = _earlier(call.deadline, timeout)
                try:
                    if items is None:
                        items = self._items(entry, input, call)
                    if deadline is None:
                        item = await anext(items)
                    else:
                        item = await _until(deadline, anext, items)
                except StopAsyncIteration:
                    return
                except CallError:
                    raise
                except BaseException as error:
                    raise _failure(error, entry, call, deadline) from error
                yield entry.pipeline.apply(item, entry.spec)
        finally:
            if items is not None:
                await _close(items)

    def _admit(self, entry: _Entry, input: Any, call: OperationContext) -> None:
        """Check access, then the input."""
        if not (entry.is_open or call.trusted):
            check_access(entry.spec.access_control, call.identity, input)
        if entry.validator is not None and not entry.validator(input):
            raise _invalid_input(entry.spec, input)

    def _call(self, context: OperationContext | None) -> OperationContext:
        """The context of one call, bound to this registry."""
        if context is None:
            return OperationContext(f"{self._id_prefix}{next(self._id_counter)}", registry=self)
        if context._registry is self and context.request_id is None:  # made by `OperationContext.child`
            context.request_id = f"{self._id_prefix}{next(self._id_counter)}"
            return context
        if context._registry is not None:  # a handler's own context: a call within its call
            return self._call(attrs.evolve(context.child(trusted=context.trusted), registry=self))
        return OperationContext(
            context.request_id or f"{self._id_prefix}{next(self._id_counter)}",
            context.parent_request_id,
            context.identity,
            context.deadline,
            trusted=context.trusted,
            metadata=context.metadata,
            registry=self,
        )

    # --- from entry to running handler -------------------------------------------------------------

    async def _prepared(self, operation_id: str) -> _Entry:
        """The entry of an id, ready to be called: what a first call costs."""
        entry = self._entries.get(operation_id)
        if entry is None:
            entry = await self._resolve(operation_id)
        if entry.handler is None:
            raise operation_not_found(operation_id, f'no handler registered for operation "{operation_id}"')
        if entry.invoke is None:
            schema = entry.spec.input_schema
            entry.validator = None if schema.is_unknown else schema.validator
            entry.streams = _streams(entry)
            entry.invoke = self._invoker(entry, entry.handler)
        return entry

    async def _resolve(self, operation_id: str) -> _Entry:
        for resolve in self._resolvers:
            operation = resolve(operation_id=operation_id)
            if inspect.isawaitable(operation):
                operation = await operation
            if operation is not None:
                if operation.id != operation_id:
                    raise operation_not_found(operation_id)
                if operation_id not in self._entries:
                    owner = getattr(resolve, "__qualname__", "a plugin")
                    self._add(operation.spec, operation.handler, operation.blocking, owner, self._pipeline, False)
                return self._entries[operation_id]
        raise operation_not_found(operation_id)

    def _invoker(self, entry: _Entry, handler: Handler) -> Callable[[Any, OperationContext], Awaitable[Any]]:
        """What makes an awaitable result of an input and a context."""
        if entry.streams:

            async def first(input: Any, call: OperationContext) -> Any:
                items = self._items(entry, input, call)
                try:
                    return await anext(items)
                except StopAsyncIteration:
                    message = f'the subscription "{entry.spec.id}" ended without an item'
                    raise CallError(ErrorCode.EXECUTION_ERROR, message, {"message": message}) from None
                finally:
                    await _close(items)

            return first
        if _is_coroutine_function(handler):
            return handler
        if entry.blocking is False:

            async def direct(input: Any, call: OperationContext) -> Any:
                result = handler(input, call)
                return await result if inspect.isawaitable(result) else result

            return direct

        async def threaded(input: Any, call: OperationContext) -> Any:
            result = await self._in_thread(call, handler, input, call)
            return await result if inspect.isawaitable(result) else result

        return threaded

    async def _in_thread(self, call: OperationContext, function: Callable[..., Any], *args: Any) -> Any:
        loop = asyncio.get_running_loop()
        call._loop = loop
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._max_threads, "operad")
        run = contextvars.copy_context().run
        try:
            return await loop.run_in_executor(self._threads, run, _thread_body, function, args)
        except asyncio.CancelledError:
            call._cancelled = True  # the thread cannot be stopped; the handler may look
            raise
        except _StopInThread:
            raise StopAsyncIteration from None

    def _items(self, entry: _Entry, input: Any, call: OperationContext) -> AsyncIterator[Any]:
        """The items of a streaming handler, whatever kind of function it is."""
        handler = entry.handler
        assert handler is not None
        if _unwrapped_is(handler, inspect.isasyncgenfunction):
            items: AsyncIterator[Any] = handler(input, call)
            return items
        return self._adapted_items(entry, handler, input, call)

    async def _adapted_items(
        self, entry: _Entry, handler: Handler, input: Any, call: OperationContext
    ) -> AsyncGenerator[Any, None]:
        """Items of a generator in worker threads, or of what a handler returns."""
        threaded = entry.blocking is not False and not _is_coroutine_function(handler)
        result = await self._in_thread(call, handler, input, call) if threaded else handler(input, call)
        if inspect.isawaitable(result):
            result = await result
        if hasattr(result, "__aiter__"):
            iterator = aiter(result)
            try:
                async for item in iterator:
                    yield item
            finally:
                await _close(iterator)
        elif inspect.isgenerator(result):
            try:
                while True:
                    try:
                        yield await (self._in_thread(call, next, result) if threaded else _next(result))
                    except StopAsyncIteration:
                        return
            finally:
                if not result.gi_running:  # a thread that is still in it cannot be stopped
                    result.close()
        else:
            yield result

    # --- observers -------------------------------------------------------------------------------

    def _record(self, operation_id: str, call: OperationContext) -> CallRecord:
        entry = self._entries.get(operation_id)
        assert call.request_id is not None
        return CallRecord(
            call.request_id,
            call.parent_request_id,
            operation_id,
            None if entry is None else entry.spec.type,
            None if call.identity is None else call.identity.id,
            time.time() * 1000,
        )

    async def _observed(self, operation_id: str, input: Any, call: OperationContext) -> ResponseEnvelope[Any]:
        record = self._record(operation_id, call)
        self._observers.call_started(record)
        started = time.perf_counter()
        error: BaseException | None = None
        try:
            return await self._execute(operation_id, input, call)
        except BaseException as caught:
            error = caught
            raise
        finally:
            self._finished(record, started, error, 0 if error else 1)

    async def _observed_stream(
        self, operation_id: str, input: Any, call: OperationContext, timeout: float | None
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        record = self._record(operation_id, call)
        self._observers.call_started(record)
        started = time.perf_counter()
        error: BaseException | None = None
        items = 0
        stream = self._stream(operation_id, input, call, timeout)
        try:
            async for envelope in stream:
                items += 1
                yield envelope
        except GeneratorExit:  # the consumer left: how a subscription usually ends
            raise
        except BaseException as caught:
            error = caught
            raise
        finally:
            await stream.aclose()
            self._finished(record, started, error, items)

    def _finished(self, record: CallRecord, started: float, error: BaseException | None, items: int) -> None:
        duration = (time.perf_counter() - started) * 1000
        outcome = CallOutcome(duration, None if error is None else map_error(error), items)
        self._observers.call_finished(record, outcome)

    # --- sources ---------------------------------------------------------------------------------

    async def load(
        self,
        source: str,
        *,
        namespace: str | None = None,
        access: AccessControl | Mapping[str, Any] | None = None,
        normalize: Normalize | None = None,
        on_mismatch: OnMismatch | None = None,
        trusted: bool = False,
        **config: Any,
    ) -> list[OperationSpec]:
        """Load the operations of a source; all of them, or none.

        Args:
            source: the source's name, such as ``"openapi"``.
            namespace: the namespace of the operations' ids.
            access: what the operations require: an `AccessControl` or its fields for all of them, or
                ``{"pattern": {...fields}}``, where the first shell pattern that fits the name or id counts.
            normalize: instead of the registry's.
            on_mismatch: instead of the registry's.
            trusted: whether the source's documents are trusted.
            config: the options of the source.

        Raises:
            PluginError: no plugin offers the source; the message names the distribution to install.
            ConfigError: an option is unknown, missing or of the wrong type.
            SourceError: the source cannot be loaded.
            RegistrationError: an id is taken.
        """
        options = _SourceOptions(
            namespace=namespace, access=access, normalize=normalize, on_mismatch=on_mismatch, trusted=trusted
        )
        return await self._load(source, options, config, None, f'source "{source}"')

    async def _load(
        self, source_name: str, options: _SourceOptions, table: Mapping[str, Any], base_dir: Any, where: str
    ) -> list[OperationSpec]:
        from operad._config import structure
        from operad._requirements import access_rules

        source = self.plugins.source(source_name)
        config = structure(source.config_type, table, where)
        rules = access_rules(options.access, where)
        context = SourceContext(
            plugins=self.plugins,
            namespace=options.namespace,
            base_dir=base_dir,
            trusted=options.trusted,
            logger=logging.getLogger(f"operad.sources.{source_name}"),
        )
        session = await source.open(config, context)
        owner = f'source "{options.namespace or source_name}" ({source_name})'
        pipeline = attrs.evolve(
            self._pipeline,
            normalize=options.normalize or self._pipeline.normalize,
            on_mismatch=options.on_mismatch or self._pipeline.on_mismatch,
        )
        try:
            operations = [rules(operation) for operation in session.operations]
            self._check_free(operations, owner)
        except BaseException:
            await session.aclose()
            raise
        for operation in operations:
            self._add(operation.spec, operation.handler, operation.blocking, owner, pipeline, False)
        self._sessions.append((session, owner))
        known = {operation.id: operation for operation in operations}

        def changed(current: Sequence[Operation[..., Any]]) -> None:
            fresh = {operation.id: rules(operation) for operation in current}
            self._follow(known, fresh, owner, pipeline)
            known.clear()
            known.update(fresh)

        session.on_change(changed)
        return [operation.spec for operation in operations]

    def _check_free(self, operations: Iterable[Operation[..., Any]], owner: str) -> None:
        seen: set[str] = set()
        for operation in operations:
            entry = self._entries.get(operation.id)
            if entry is not None or operation.id in seen:
                other = owner if entry is None else entry.owner
                raise RegistrationError(
                    f'operation "{operation.id}" is registered already by {other}, and now again by {owner}; '
                    "give the source another namespace"
                )
            seen.add(operation.id)

    def _follow(
        self,
        known: Mapping[str, Operation[..., Any]],
        fresh: Mapping[str, Operation[..., Any]],
        owner: str,
        pipeline: ResultPipeline,
    ) -> None:
        """Make the registry hold what a source that changed offers now."""
        for operation_id in known.keys() - fresh.keys():
            entry = self._entries.get(operation_id)
            if entry is not None and entry.owner == owner:
                self.unregister(operation_id)
        for operation_id, operation in fresh.items():
            entry = self._entries.get(operation_id)
            if entry is not None and entry.owner != owner:
                logger.warning("%s now offers %s, which belongs to %s: left out", owner, operation_id, entry.owner)
            elif entry is None or entry.spec is not operation.spec or entry.handler is not operation.handler:
                self._add(operation.spec, operation.handler, operation.blocking, owner, pipeline, True)

    async def _load_configuration(self, configuration: Configuration, strict: bool) -> None:
        from operad._config import expand_variables, structure

        file = configuration.path.name if configuration.path else "configuration"

        async def load_one(name: str, table: Mapping[str, Any]) -> None:
            where = f"{file}: sources.{name}"
            try:
                expanded = expand_variables(table, where)
                shared = {f.name: expanded.pop(f.name) for f in attrs.fields(_SourceOptions) if f.name in expanded}
                source_name = expanded.pop("type")
                options = structure(_SourceOptions, {"namespace": name, **shared}, where)
                await self._load(source_name, options, expanded, configuration.base_dir, where)
            except OperadError as error:
                self.failures.append(SourceFailure(name, error))
                if not strict:
                    logger.warning("source %s is not loaded: %s", name, error)

        async with asyncio.TaskGroup() as group:
            for name, table in configuration.sources.items():
                group.create_task(load_one(name, table))
        if strict and self.failures:
            raise ExceptionGroup("sources could not be loaded", [failure.error for failure in self.failures])


@attrs.frozen(kw_only=True)
class _SourceOptions:
    """What every source's table may say besides the source's own options."""

    namespace: str | None = None
    access: Any = None
    normalize: Normalize | None = None
    on_mismatch: OnMismatch | None = None
    trusted: bool = False


@attrs.frozen(kw_only=True)
class _PluginOptions:
    """The table ``[plugins]``."""

    only: list[str] | None = None
    disable: list[str] = attrs.field(factory=list)
    strict: bool = False


@attrs.frozen(kw_only=True)
class _RegistryOptions:
    """The table ``[registry]``."""

    normalize: Normalize = "cast"
    on_mismatch: OnMismatch = "warn"
    max_threads: int = 32


# --- how one call runs -----------------------------------------------------------------------------


def _limit(call: OperationContext, timeout: float) -> None:
    deadline = (time.time() + timeout) * 1000
    if call.deadline is None or deadline < call.deadline:
        call.deadline = deadline


def _earlier(deadline: float | None, timeout: float | None) -> float | None:
    if timeout is None:
        return deadline
    limit = (time.time() + timeout) * 1000
    return limit if deadline is None else min(limit, deadline)


async def _until(deadline: float, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """``await function(*args)``, if the deadline (epoch ms) has not passed, and until it does."""
    delay = deadline / 1000 - time.time()
    if delay <= 0:
        raise DeadlineExpired
    return await within(delay, function(*args))


def _failure(
    error: BaseException, entry: _Entry, call: OperationContext, deadline: float | None = None
) -> BaseException:
    """What to raise instead of ``error``; ``error`` itself where it has to pass through."""
    if isinstance(error, DeadlineExpired):
        limit = call.deadline if deadline is None else deadline
        return CallError(ErrorCode.TIMEOUT, f'"{entry.spec.id}" did not answer in time', {"deadline": limit})
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return error
        return CallError(ErrorCode.ABORTED, f'"{entry.spec.id}" was cancelled by its handler')
    if isinstance(error, (GeneratorExit, KeyboardInterrupt)):
        return error
    return map_error(error, entry.spec.error_schemas)


def _invalid_input(spec: OperationSpec, input: Any) -> CallError:
    errors = spec.input_schema.errors(input)
    listed = [{"path": e.path, "message": e.message, "keyword": e.keyword} for e in errors]
    reason = "; ".join(error.message for error in errors[:3]) or "it does not match the input schema"
    more = f" (and {len(errors) - 3} more)" if len(errors) > 3 else ""
    return CallError(
        ErrorCode.VALIDATION_ERROR, f'invalid input for "{spec.id}": {reason}{more}', {"errors": listed}
    )


async def _close(items: Any) -> None:
    aclose = getattr(items, "aclose", None)
    if aclose is not None:
        await aclose()


class _StopInThread(Exception):
    """A generator in a thread is at its end; `StopIteration` cannot pass through a future."""


def _thread_body(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return function(*args)
    except StopIteration:
        raise _StopInThread from None


async def _next(generator: Any) -> Any:
    try:
        return next(generator)
    except StopIteration:
        raise StopAsyncIteration from None


def _unwrapped_is(handler: Handler, predicate: Callable[[Any], bool]) -> bool:
    """Whether the function, or the ``__call__`` of the object, is of a kind."""
    call = getattr(type(handler), "__call__", None)  # noqa: B004  # not "is it callable" but "what is its call"
    return predicate(handler) or (not inspect.isroutine(handler) and predicate(call))


def _is_coroutine_function(handler: Handler) -> bool:
    return _unwrapped_is(handler, inspect.iscoroutinefunction)


def _streams(entry: _Entry) -> bool:
    handler = entry.handler
    assert handler is not None
    return (
        entry.spec.type is OperationType.SUBSCRIPTION
        or _unwrapped_is(handler, inspect.isasyncgenfunction)
        or _unwrapped_is(handler, inspect.isgeneratorfunction)
    )


def _notify(observer: Callable[..., None], spec: OperationSpec) -> None:
    try:
        observer(spec=spec)
    except Exception:
        logger.exception("observer %r failed for operation %s", observer, spec.id)
