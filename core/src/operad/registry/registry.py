"""The registry: operations by id, and the one path of every call.

A call looks up spec and handler, checks access, validates the input, runs the handler under the deadline and
returns an envelope from the result pipeline. If it fails, it raises a `CallError`.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import attrs

from operad.access import AccessControl
from operad.errors import ConfigError, RegistrationError
from operad.observers import MaybeObserver, Observers
from operad.operations import Handler, NormalizeRule, OnMismatch, Operation, OperationSpec
from operad.plugins.manager import Plugins
from operad.registry.base import RegistryBase
from operad.registry.catalogue import Catalogue
from operad.registry.entry import Entry, no_operation
from operad.registry.execution import Execution
from operad.registry.interceptors import (
    CallInterceptor,
    ChangeOperation,
    Interceptor,
    StreamInterceptor,
    contributed,
)
from operad.registry.pipeline import ResultPipeline
from operad.registry.search import index_maker
from operad.registry.workers import Workers
from operad.usage import LAST_CALLS, Lifespan, LifespanFunction

if TYPE_CHECKING:
    from operad.config.file import Configuration
    from operad.loading.sources import LoadedSources, SourceFailure
    from operad.registry.views import Rename
    from operad_schema import Limits

T = TypeVar("T")


class OperationRegistry(RegistryBase):
    """A registry of operations of all kinds, by id.

    It is an async context manager: leaving it closes its sources. It belongs to one event loop. Plugins contribute
    to it once, when it is made.

    Args:
        plugins: the result of `load_plugins`; if ``None``, the registry has local operations only.
        normalize: ``"cast"`` drops undeclared properties from results, fills in declared defaults and converts
            values; ``"complete"`` also fills in missing required values; ``"keep"`` converts and fills in declared
            defaults, but drops nothing; ``"off"`` changes nothing. A mapping sets these by patterns of ids; the
            longest matching pattern is used.
        on_mismatch: for a result that does not match its output schema: ``"warn"`` logs it, ``"raise"`` makes the
            call fail with ``EXECUTION_ERROR``, ``"ignore"`` does nothing.
        max_threads: the number of plain ``def`` handlers that run at the same time, each in a worker thread.
        limits: limits for all schemas; by default each schema has its own.
        configuration: the configuration file that `from_config` read.
        lifespan: ``lifespan(registry)`` returns an async context manager. Entering the registry enters it first;
            handlers get its value as ``context.state``. It is left last, after the calls in progress.
    """

    def __init__(
        self,
        plugins: Plugins | None = None,
        *,
        normalize: NormalizeRule = "cast",
        on_mismatch: OnMismatch = "warn",
        max_threads: int = 32,
        limits: Limits | None = None,
        configuration: Configuration | None = None,
        lifespan: LifespanFunction | None = None,
    ) -> None:
        self.lifespan = None if lifespan is None else Lifespan(lifespan, "the registry")
        """The lifespan of the registry; ``None`` if it has none."""
        self.configuration = configuration
        """The configuration of the registry; ``None`` if it has none."""
        self.plugins = plugins = Plugins() if plugins is None else plugins
        self._pipeline = ResultPipeline(plugins.envelope_kinds, normalize, on_mismatch, limits, self.lifespan)
        hooks = plugins.implementations
        added, removed = hooks("operad_operation_added"), hooks("operad_operation_removed")
        self._catalogue = Catalogue(added, removed, index_maker(hooks("operad_search")))
        self._sources: LoadedSources | None = None
        self._workers = Workers(max_threads)
        self._closers: list[Callable[[], Awaitable[object]]] = []
        self._execution = Execution(
            self, self._catalogue, self._pipeline, self._workers, plugins.observers(),
            hooks("operad_resolve_operation"), contributed(hooks("operad_interceptors"), self),
        )  # fmt: skip
        self._catalogue.change = self._execution.interceptors.changed
        self._to_load: tuple[Collection[str], bool] | None = None
        plugins.register_operations(self)

    @classmethod
    def from_config(
        cls,
        path: str | os.PathLike[str],
        plugins: Plugins | None = None,
        *,
        strict: bool = False,
        profile: str | None = None,
        sources: Collection[str] | None = None,
        lifespan: LifespanFunction | None = None,
    ) -> Self:
        """Return the registry that a configuration file describes; entering it loads the sources concurrently.

        A source that cannot be loaded is logged and kept in `failures`, and all other sources are loaded. Raises
        `ConfigError` if the configuration cannot be used, and the errors of `load_plugins`.

        Args:
            path: an operad.toml, a pyproject.toml with ``[tool.operad]``, or a folder with an operad.toml.
            plugins: the plugins to use; by default `load_plugins` with the options of ``[plugins]``.
            strict: whether entering raises an `ExceptionGroup` if a source cannot be loaded.
            profile: the name of a table in ``[profiles]``; by default the value of ``OPERAD_PROFILE``, if set.
            sources: the names of the sources that entering loads; by default all. `load_configured` loads others.
            lifespan: as for `OperationRegistry`.
        """
        from operad.config.file import RegistryOptions
        from operad.config.reading import load_configuration
        from operad.loading.sources import check_tables, chosen_plugins

        configuration = load_configuration(path, profile)
        if plugins is None:
            plugins = chosen_plugins(configuration)
        options = configuration.table("registry", RegistryOptions)
        check_tables(configuration, plugins)
        given = attrs.asdict(options, recurse=False)
        registry = cls(plugins, **given, configuration=configuration, lifespan=lifespan)
        registry._to_load = (configuration.sources if sources is None else sources, strict)
        return registry

    async def __aenter__(self) -> Self:
        try:
            if self.lifespan is not None:
                await self.lifespan.start(self)
            if self._to_load is not None:
                (names, strict), self._to_load = self._to_load, None
                await self.load_configured(names, strict=strict)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def load_configured(
        self, names: Collection[str], *, strict: bool = False, operation: str | None = None
    ) -> None:
        """Load the sources of the configuration with these names concurrently.

        A failure is kept in `failures` or, with ``strict``, raised in an `ExceptionGroup`. If only one operation
        will be called, pass its id as ``operation``: a source may then load just that one. Raises `ConfigError`
        for an unknown name, or if the registry has no configuration.
        """
        if self.configuration is None:
            raise ConfigError("this registry has no configuration; use OperationRegistry.from_config")
        self.configuration.check_sources(names)
        await self.sources.load_all(self.configuration, names, strict=strict, operation=operation)

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the sources, in reverse order, then the lifespan. Raises `SourceError` if the lifespan fails.

        With a lifespan, first wait up to 10 s for calls. Without one, local operations stay callable. Idempotent.
        """
        async with AsyncExitStack() as closing:  # the last one first, the others even if one fails
            if self.lifespan is not None:
                closing.push_async_callback(self.lifespan.aclose)
            closing.callback(self._workers.close)
            for close in self._closers:
                closing.push_async_callback(close)
            if self._sources is not None:
                closing.push_async_callback(self._sources.aclose)
            if self.lifespan is not None:
                closing.push_async_callback(self.lifespan.end, LAST_CALLS)

    @property
    def transport_options(self) -> Mapping[str, Any]:
        """The table ``[transport]``, or an empty one; for errors see `Configuration.transport_options`."""
        return {} if self.configuration is None else self.configuration.transport_options()

    def configured(self, table: str, config_type: type[T], exclude: Collection[str] = ()) -> T:
        """Return a table of the configuration, such as ``"calls"``, as an instance of the class ``config_type``.

        If the table is missing, the instance has its defaults. ``exclude`` names keys to ignore. Raises
        `ConfigError` for an unknown or missing key, a wrong value or a variable that is not set.
        """
        from operad.config.file import Configuration

        return (self.configuration or Configuration(Path())).table(table, config_type, exclude)

    @property
    def sources(self) -> LoadedSources:
        """The loaded sources: ``states()`` describes them, and ``await reload(name)`` loads one again."""
        if self._sources is None:  # a registry of functions has none
            from operad.loading.sources import LoadedSources

            self._sources = LoadedSources(self.plugins, self._catalogue, self._pipeline, self)
            self._execution.why_missing = self._sources.why_missing
            self._execution.why_held = self._sources.why_held
        return self._sources

    def observe(
        self,
        started: MaybeObserver = None,
        finished: MaybeObserver = None,
        reported: MaybeObserver = None,
    ) -> Callable[[], None]:
        """Observe all calls. Each function gets the keyword arguments of its hook, such as `operad_call_started`.

        They are called as ``started(call=…)``, ``finished(call=…, outcome=…)`` and ``reported(call=…, report=…)``
        in the event loop, so they must not block. Any of them may be ``None``. Their exceptions are logged. Call
        the returned function to stop.
        """
        return self._execution.observe(Observers.of(started, finished, reported))

    def on_close(self, close: Callable[[], Awaitable[object]]) -> None:
        """Call and await ``close`` whenever the registry is closed; the function added last is called first."""
        self._closers.append(close)

    @property
    def failures(self) -> list[SourceFailure]:
        """The sources of the configuration that could not be loaded, each with its error."""
        return self.sources.failures

    # --- registering -----------------------------------------------------------------------------

    @overload
    def register(self, spec: Operation[..., Any], /, *, replace: bool = False) -> None: ...

    @overload
    def register(self, spec: OperationSpec, handler: Handler, /, *, replace: bool = False) -> None: ...

    def register(
        self,
        spec: OperationSpec | Operation[..., Any] | Any,
        handler: Handler | None = None,
        /,
        *,
        replace: bool = False,
    ) -> None:
        """Add an operation: a spec and its handler, or an `Operation`.

        Raises:
            RegistrationError: the id is taken and ``replace`` is false, a pattern of the input cannot be checked,
                or the operation is a method without an object.
            TypeError: the arguments are neither an operation nor a spec with a handler.
        """
        if isinstance(spec, Operation):
            if spec.method is not None:
                raise RegistrationError(spec.method.unbound(spec))
            entry = Entry(spec.spec, spec.handler, spec.blocking, None, self._pipeline, spec)
        elif not isinstance(spec, OperationSpec):
            raise TypeError(no_operation(spec))
        elif handler is None:
            raise TypeError("register: expected a spec and a handler, got a spec only; use register_spec for that")
        else:
            entry = Entry(spec, handler, None, None, self._pipeline)
        entry.spec.require_checked_patterns()
        self._catalogue.add(entry, replace=replace)

    def register_spec(self, spec: OperationSpec, *, replace: bool = False) -> None:
        """Add a spec; its handler may be registered before or later. Replacing a spec keeps the handler.

        Raises:
            RegistrationError: the id is taken and ``replace`` is false, or a pattern of the input cannot be
                checked.
        """
        spec.require_checked_patterns()
        self._catalogue.add_spec(Entry(spec, None, None, None, self._pipeline), replace=replace)

    def register_handler(
        self, operation_id: str, handler: Handler, *, blocking: bool | None = None, replace: bool = False
    ) -> None:
        """Add the handler of an operation; its spec may be registered before or later.

        A plain ``def`` runs in a worker thread or, with ``blocking=False``, in the event loop. Raises
        `RegistrationError` if the operation has a handler and ``replace`` is false.
        """
        self._catalogue.add_handler(operation_id, handler, blocking, replace=replace)

    def unregister(self, operation_id: str) -> None:
        """Remove an operation. Raises `RegistrationError` if no operation has this id."""
        self._catalogue.remove(operation_id)

    async def describe(self, operation_id: str) -> OperationSpec | None:
        """Return the complete spec of an operation, or ``None`` if the id is unknown.

        Specs of some sources, such as ``remote``, have no schemas until this is called.
        """
        if self._sources is not None:
            await self._sources.describe(operation_id)
        return self.get_spec(operation_id)

    # --- interceptors and views -------------------------------------------------------------------

    def use(
        self,
        interceptor: CallInterceptor | None = None,
        *,
        match: str | Iterable[str] = "*",
        subscribe: StreamInterceptor | None = None,
        order: int = 0,
        change: ChangeOperation | None = None,
    ) -> Callable[[], None]:
        """Add an interceptor around the calls of some operations, including nested calls.

        It runs after the access check and input validation, around handler and pipeline.

        Args:
            interceptor: ``async def tap(call, proceed): return await proceed(call)``; see `InterceptedCall`.
            match: one shell pattern of the operations' ids, or several.
            subscribe: the interceptor of subscriptions, an asynchronous generator function over ``proceed(call)``;
                if ``None``, they are not intercepted.
            order: a lower number runs further outside. Of equal numbers, plugins' are outside, then older ones.
            change: a function that changes operations when they are registered; see `Interceptor`.

        Returns:
            A function that removes the interceptor; idempotent. Calls in progress keep it.

        Raises:
            TypeError: no function is given, ``interceptor`` is not a coroutine function, or ``subscribe`` is not
                an asynchronous generator function.
        """
        if not any((interceptor, subscribe, change)):
            raise TypeError("use: expected a function as interceptor, subscribe or change, got none of them")
        return self._execution.interceptors.add(Interceptor(interceptor, subscribe, match, order, change))

    def view(
        self,
        *,
        include: str | Iterable[str] = "*",
        exclude: str | Iterable[str] = (),
        prefix: str | None = None,
        rename: Rename | None = None,
        access: AccessControl | Mapping[str, Any] | None = None,
    ) -> OperationRegistry:
        """Return a read-only part of this registry, for example for a server, a model or a test.

        It can have other ids and more requirements, and it follows changes of this registry. An operation added
        later whose id is already taken in the view is left out, with a warning. Handlers see the ids of this
        registry, and their nested calls go there. Observers see both ids.

        Args:
            include: shell patterns of the ids to show; by default all.
            exclude: shell patterns of the ids not to show; they take precedence over ``include``.
            prefix: a namespace to put before each id: with ``"x"``, ``m.add`` becomes ``x.m.add``.
            rename: ``{"old.id": "new.id"}``, or a function from old to new id; applied before the prefix.
            access: requirements in addition to those of the operations; the same forms as for `load`.

        Raises:
            RegistrationError: two operations would have one id, or a new id or requirement cannot be used.
            ConfigError: ``access`` cannot be used.
        """
        from operad.registry.views import RegistryView, Selection

        selection = Selection(include=include, exclude=exclude, prefix=prefix, rename=rename, access=access)
        view: Any = RegistryView(self, self._catalogue, self._execution, selection)
        return view  # type: ignore[no-any-return]  # a registry in all but registering, which raises

    # --- sources ---------------------------------------------------------------------------------

    async def load(
        self,
        source: str,
        *,
        namespace: str | None = None,
        access: AccessControl | Mapping[str, Any] | None = None,
        normalize: NormalizeRule | None = None,
        on_mismatch: OnMismatch | None = None,
        trusted: bool = False,
        exclusive: bool = False,
        **config: Any,
    ) -> list[OperationSpec]:
        """Load the operations of a source, such as ``"openapi"``, all or none of them, and return their specs.

        Args:
            source: the name of a source that a plugin offers.
            namespace: the namespace of the operations' ids; by default the source chooses it.
            access: requirements that replace those of the source: an `AccessControl` or its fields for all
                operations, or ``{"pattern": fields}``. The first shell pattern that matches a name or id applies.
            normalize, on_mismatch: as for the registry; ``None`` means the registry's values.
            trusted: whether the source's documents may refer to other files and addresses, which are then read.
            exclusive: whether a reload must close the source before it opens it again.
            config: the options of the source.

        Raises:
            PluginError: no plugin offers the source; the message names the distribution to install.
            ConfigError: an option is unknown, missing or of the wrong type.
            SourceError: the source cannot be loaded.
            RegistrationError: an id is taken.
        """
        from operad.config.sources import SourceOptions

        options = SourceOptions(
            namespace=namespace,
            access=access,
            normalize=normalize,
            on_mismatch=on_mismatch,
            trusted=trusted,
            exclusive=exclusive,
        )
        return await self.sources.load(source, options, config, None, f'source "{source}"')

    async def source_login(self, name: str, account: str | None = None) -> Any:
        """Return the `operad.auth.Login` of the configured source ``name``; ``account`` chooses an account.

        Raises:
            ConfigError: the registry has no configuration, the source is unknown, or it needs no login.
        """
        if self.configuration is None:
            raise ConfigError("only sources of a configuration have a login; use OperationRegistry.from_config")
        return await self.sources.login(self.configuration, name, account)
