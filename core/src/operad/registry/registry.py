"""The registry: operations by id, and the one path on which they are called.

Each call goes the same way: look up spec and handler, check access, validate the input, run the handler under
the deadline, run the result pipeline, answer an envelope; or raise a `CallError`, and nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from operad.access import AccessControl
from operad.context import OperationContext
from operad.envelopes import ResponseEnvelope
from operad.errors import CallError, ErrorCode
from operad.failures import map_error, operation_not_found, out_of_handler
from operad.observers import CallRecord
from operad.operations import Handler, Operation, OperationSpec
from operad.plugins.manager import Plugins
from operad.registry.catalogue import Catalogue
from operad.registry.deadline import DeadlineExpired, until
from operad.registry.entry import Entry
from operad.registry.loading import LoadedSources, SourceFailure, SourceOptions
from operad.registry.pipeline import Normalize, OnMismatch, ResultPipeline
from operad.registry.workers import Workers
from operad.subscriptions import Subscription, close

if TYPE_CHECKING:
    from operad.config.file import Configuration

__all__ = ["OperationRegistry", "SourceFailure"]

logger = logging.getLogger("operad")


class OperationRegistry:
    """Operations of all kinds under one roof.

    Use it as an async context manager: leaving it closes what its sources opened. A registry belongs to one
    event loop. What plugins contribute is asked for once, when it is made.

    Args:
        plugins: what `load_plugins` found; without it the registry knows local operations only.
        normalize: ``"cast"`` makes results fit the output schema where that loses nothing; ``"off"`` does not.
        on_mismatch: what happens when a result does not match the output schema: ``"warn"`` logs it,
            ``"raise"`` makes the call fail with ``EXECUTION_ERROR``, ``"ignore"`` does nothing.
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
        self.plugins = plugins = Plugins() if plugins is None else plugins
        self._pipeline = ResultPipeline(plugins.envelope_kinds, normalize, on_mismatch)
        self._catalogue = Catalogue(
            plugins.implementations("operad_operation_added"), plugins.implementations("operad_operation_removed")
        )
        self._entries = self._catalogue.entries
        self._sources = LoadedSources(plugins, self._catalogue, self._pipeline)
        self._workers = Workers(max_threads)
        self._observers = plugins.observers()
        self._observed = bool(self._observers)
        self._resolvers = plugins.implementations("operad_resolve_operation")
        self._watchers: set[_Watcher] = set()  # the catalogue itself holds listeners only weakly
        self._configuration: tuple[Configuration, bool] | None = None
        self._transport: tuple[Mapping[str, Any], str] = ({}, "")
        # An unguessable prefix and a counter: unique across processes, at a tenth of the cost of a UUID.
        self._id_prefix = os.urandom(8).hex() + "-"
        self._next_id = itertools.count(1).__next__
        plugins.register_operations(self)

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
        from operad.config.file import load_configuration
        from operad.plugins.discovery import load_plugins

        configuration = load_configuration(path)
        if plugins is None:
            chosen = configuration.plugin_options()
            plugins = load_plugins(chosen.only, chosen.disable, chosen.strict)
        options = configuration.registry_options()
        registry = cls(
            plugins,
            normalize=options.normalize,
            on_mismatch=options.on_mismatch,
            max_threads=options.max_threads,
        )
        registry._configuration = (configuration, strict)
        registry._transport = (configuration.transport, f"{configuration.name}: transport")
        return registry

    async def __aenter__(self) -> Self:
        if self._configuration is not None:
            (configuration, strict), self._configuration = self._configuration, None
            try:
                await self._sources.load_all(configuration, strict=strict)
            except BaseException:
                await self.aclose()
                raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what the sources opened, the last one first; idempotent. Local operations stay callable."""
        try:
            await self._sources.aclose()
        finally:
            self._workers.close()

    @property
    def transport_options(self) -> Mapping[str, Any]:
        """What ``[transport]`` of the configuration says: ``url``, and options for `Plugins.transport`.

        Raises:
            ConfigError: a ``${VAR}`` in it is not set.
        """
        from operad.config.variables import expand_variables

        options: Mapping[str, Any] = expand_variables(*self._transport)
        return options

    @property
    def failures(self) -> list[SourceFailure]:
        """Sources of the configuration that could not be loaded."""
        return self._sources.failures

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
            entry = Entry(spec.spec, spec.handler, spec.blocking, None, self._pipeline)
        elif handler is None:
            raise TypeError("register takes a spec and a handler, or an operation; see register_spec")
        else:
            entry = Entry(spec, handler, None, None, self._pipeline)
        self._catalogue.add(entry, replace=replace)

    def register_spec(self, spec: OperationSpec, *, replace: bool = False) -> None:
        """Add a spec; its handler may have come already, or come later.

        Raises:
            RegistrationError: the id is taken and ``replace`` is false. Replacing keeps the handler.
        """
        self._catalogue.add_spec(Entry(spec, None, None, None, self._pipeline), replace=replace)

    def register_handler(
        self, operation_id: str, handler: Handler, *, blocking: bool | None = None, replace: bool = False
    ) -> None:
        """Add the handler of an operation; its spec may have come already, or come later.

        Raises:
            RegistrationError: the operation has a handler and ``replace`` is false.
        """
        self._catalogue.add_handler(operation_id, handler, blocking, replace=replace)

    def unregister(self, operation_id: str) -> None:
        """Remove an operation. Raises `RegistrationError` if there is none of that id."""
        self._catalogue.remove(operation_id)

    # --- looking up ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, operation_id: object) -> bool:
        return operation_id in self._entries

    def get_spec(self, operation_id: str) -> OperationSpec | None:
        """The spec of an operation, or ``None``."""
        entry = self._entries.get(operation_id)
        return None if entry is None else entry.spec

    async def describe(self, operation_id: str) -> OperationSpec | None:
        """As `get_spec`, complete: a source may leave schemas out until an operation is used (``remote`` does)."""
        await self._sources.describe(operation_id)
        return self.get_spec(operation_id)

    def get_handler(self, operation_id: str) -> Handler | None:
        """The handler of an operation, or ``None``."""
        return self._catalogue.handler(operation_id)

    def specs(self) -> Sequence[OperationSpec]:
        """All specs, sorted by id; a read-only snapshot."""
        return self._catalogue.specs()

    def search(self, query: str, limit: int = 10) -> list[OperationSpec]:
        """The operations that fit ``query`` best, by id, title, description and tags; best first."""
        return self._catalogue.search(query, limit)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback``, which must not raise, after each change of the operations.

        Returns:
            What ends that; idempotent.
        """
        watcher = _Watcher(callback)
        self._watchers.add(watcher)
        self._catalogue.listen(watcher.changed)

        def stop() -> None:
            self._watchers.discard(watcher)
            self._catalogue.unlisten(watcher.changed)

        return stop

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
            context: who calls, until when; ``OperationContext(trusted=True)`` for the application itself. A
                handler's own context makes the call a nested one, checked as the handler's call was.
            timeout: seconds; the context's deadline may end the call sooner.

        Raises:
            CallError: and nothing else, but a cancellation of the calling task.
        """
        call = self._call(context)
        if timeout is not None:
            call.deadline = _earlier(call.deadline, timeout)
        if self._observed:
            with self._observers.watch(self._record(operation_id, call)) as watch:
                envelope = await self._execute(operation_id, input, call)
                watch.items = 1
                return envelope
        return await self._execute(operation_id, input, call)

    async def _execute(self, operation_id: str, input: Any, call: OperationContext) -> ResponseEnvelope[Any]:
        entry = self._entries.get(operation_id)
        try:
            if entry is None or entry.invoke is None:
                entry = await self._prepared(operation_id, call.deadline)
            if input is None:
                input = {}
            if entry.guarded:
                entry.admit(input, call)
            invoke = entry.invoke
            assert invoke is not None
            deadline = call.deadline
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
            if (failure := _failure(error, operation_id, entry, call.deadline)) is None:
                raise
            raise failure from error

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
        stream = self._stream(operation_id, input, call, timeout)
        if self._observed:
            stream = self._watched(stream, operation_id, call)
        return Subscription(stream)

    async def _stream(
        self, operation_id: str, input: Any, call: OperationContext, timeout: float | None
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        entry = self._entries.get(operation_id)
        items: AsyncIterator[Any] | None = None
        deadline = _earlier(call.deadline, timeout)
        try:
            while True:
                try:
                    if items is None:
                        if entry is None or entry.invoke is None:
                            entry = await self._prepared(operation_id, deadline)
                        if not entry.streams:
                            break
                        if input is None:
                            input = {}
                        entry.admit(input, call)
                        items = entry.items(input, call, self._workers)
                    assert entry is not None
                    try:
                        item = await (anext(items) if deadline is None else until(deadline, anext, items))
                    except CallError as error:
                        if (mapped := out_of_handler(error, operation_id, entry.spec.error_schemas)) is error:
                            raise
                        raise mapped from error
                    envelope = entry.finish(item)
                except StopAsyncIteration:
                    return
                except CallError:
                    raise
                except BaseException as error:
                    if (failure := _failure(error, operation_id, entry, deadline)) is None:
                        raise
                    raise failure from error
                yield envelope
                deadline = _earlier(call.deadline, timeout)
        finally:
            if items is not None:
                await close(items)
        call.deadline = deadline
        yield await self._execute(operation_id, input, call)

    def _call(self, context: OperationContext | None) -> OperationContext:
        """The context of one call, bound to this registry."""
        if context is None:
            return OperationContext(f"{self._id_prefix}{self._next_id()}", registry=self)
        if context.registry is not None and context.request_id is not None:  # a handler's own
            context = context.child(trusted=context.trusted)
        return OperationContext(
            context.request_id or f"{self._id_prefix}{self._next_id()}",
            context.parent_request_id,
            context.identity,
            context.deadline,
            trusted=context.trusted,
            metadata=context.metadata,
            client=context.client,
            registry=self,
        )

    async def _prepared(self, operation_id: str, deadline: float | None) -> Entry:
        """The entry of an id, ready to be called: what a first call costs."""
        entry = self._entries.get(operation_id)
        if entry is None:
            if not self._resolvers:
                raise operation_not_found(operation_id)
            if deadline is None:
                entry = await self._resolve(operation_id)
            else:
                entry = await until(deadline, self._resolve, operation_id)
        if entry.handler is None:
            raise operation_not_found(operation_id, f'no handler registered for operation "{operation_id}"')
        if entry.invoke is None:
            entry.prepare(entry.handler, self._workers)
        return entry

    async def _resolve(self, operation_id: str) -> Entry:
        """The entry of an id that a plugin knows and the registry does not, kept from now on."""
        failure: Exception | None = None
        for resolve in self._resolvers:
            plugin = getattr(resolve, "__qualname__", "a plugin")
            try:
                operation = resolve(operation_id=operation_id)
                if inspect.isawaitable(operation):
                    operation = await operation
            except Exception as error:
                logger.exception('%s failed when asked for "%s"', plugin, operation_id)
                failure = failure or error
                continue
            if operation is None:
                continue
            if not isinstance(operation, Operation) or operation.id != operation_id:
                answer = operation.id if isinstance(operation, Operation) else type(operation).__name__
                logger.warning('%s answered "%s" when asked for "%s"', plugin, answer, operation_id)
                continue
            if operation_id not in self._entries:
                entry = Entry(operation.spec, operation.handler, operation.blocking, plugin, self._pipeline)
                self._catalogue.add(entry)
            return self._entries[operation_id]
        if failure is not None:  # whether the operation exists is not known
            raise map_error(failure)
        raise operation_not_found(operation_id)

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

    async def _watched(
        self,
        stream: AsyncGenerator[ResponseEnvelope[Any], None],
        operation_id: str,
        call: OperationContext,
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        with self._observers.watch(self._record(operation_id, call)) as watch:
            try:
                async for envelope in stream:
                    watch.items += 1
                    yield envelope
            finally:
                await stream.aclose()

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
            access: what the operations require, instead of what the source says: an `AccessControl` or its
                fields for all of them, or ``{"pattern": {...fields}}``, where the first shell pattern that fits
                the name or id counts.
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
        options = SourceOptions(
            namespace=namespace, access=access, normalize=normalize, on_mismatch=on_mismatch, trusted=trusted
        )
        return await self._sources.load(source, options, config, None, f'source "{source}"')


class _Watcher:
    """A callback of `OperationRegistry.on_change`."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def changed(self) -> None:
        self._callback()


def _earlier(deadline: float | None, timeout: float | None) -> float | None:
    """The deadline (epoch ms), or ``timeout`` seconds from now, whichever comes first."""
    if timeout is None:
        return deadline
    limit = (time.time() + timeout) * 1000
    return limit if deadline is None else min(limit, deadline)


def _failure(
    error: BaseException, operation_id: str, entry: Entry | None, deadline: float | None
) -> CallError | None:
    """What to raise instead of ``error``; ``None`` where it has to pass through."""
    if isinstance(error, DeadlineExpired):
        return CallError(ErrorCode.TIMEOUT, f'"{operation_id}" did not answer in time', {"deadline": deadline})
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return None
        return CallError(ErrorCode.ABORTED, f'"{operation_id}" was cancelled by its handler')
    if isinstance(error, (GeneratorExit, KeyboardInterrupt)):
        return None
    return map_error(error, () if entry is None else entry.spec.error_schemas)
