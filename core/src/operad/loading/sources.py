"""The sources of a registry: loading them, logging in to them, reloading and closing them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from operad.config.sources import SourceOptions, check_keys, read_source
from operad.errors import ConfigError, OperadError, PluginError, SourceError
from operad.loading.source import LoadedSource
from operad.operations import OperationSpec
from operad.plugins import distributions
from operad.records import record
from operad.registry.catalogue import Catalogue
from operad.registry.pipeline import ResultPipeline
from operad.sources import SourceContext
from operad.usage import Usage

if TYPE_CHECKING:
    from operad.config.file import Configuration
    from operad.plugins.manager import Plugins

logger = logging.getLogger("operad")


def chosen_plugins(configuration: Configuration) -> Plugins:
    """Load the plugins that the table ``[plugins]`` chooses.

    Raises the same errors as `load_plugins`, with the place of the table if a name in it is wrong.
    """
    from operad.config.file import PluginOptions
    from operad.plugins.discovery import load_plugins

    chosen = configuration.table("plugins", PluginOptions)
    try:
        return load_plugins(chosen.only, chosen.disable, chosen.strict)
    except PluginError as error:
        if not any(f'"{name}"' in str(error) for name in (*(chosen.only or ()), *chosen.disable)):
            raise  # an environment variable has it
        raise PluginError(f"{error} @ {configuration.where('plugins')}") from None


def check_tables(configuration: Configuration, plugins: Plugins) -> None:
    """Raise `ConfigError` if a table in `PLUGIN_TABLES` is not read by any loaded plugin."""
    from operad.config.file import PLUGIN_TABLES

    for name in PLUGIN_TABLES & configuration.tables.keys():
        contributed = [table for hook in plugins.implementations("operad_tables") for table in hook()]
        if all(table.name != name for table in contributed):
            hint = f"pip install {distributions.OF['tables'][name]}"
            raise ConfigError(
                f"no loaded plugin reads [{name}]; install one or enable it: {hint} @ {configuration.where(name)}"
            )


@record
class SourceFailure:
    """A source of a configuration that could not be loaded, with its error."""

    name: str
    error: OperadError
    type: str = ""
    """The kind of the source, such as ``openapi``."""
    _again: Any = attrs.field(default=None, repr=False, eq=False)


@record(kw_only=True)
class SourceState:
    """The current state of a source of a registry."""

    name: str
    """The name of the source's table, or its namespace."""
    type: str
    """The kind of the source, such as ``openapi``."""
    status: Literal["loaded", "stale", "failed"]
    """``stale`` means that a reload failed and the previous operations are still available."""
    operations: int = 0
    """The number of operations of the source that the registry has."""
    error: str | None = None
    """The reason why the source could not be loaded or reloaded; ``None`` if it did not fail."""
    session: Any = attrs.field(default=None, repr=False, eq=False)
    """The session of a loaded source; the sessions of some sources have a ``title`` and ``instructions``."""


@attrs.define(eq=False, repr=False)
class LoadedSources:
    """The sources that a registry has loaded."""

    plugins: Plugins
    catalogue: Catalogue
    pipeline: ResultPipeline
    """The result pipeline of the registry; a source may have other options."""
    registry: Any = None
    failures: list[SourceFailure] = attrs.field(factory=list)
    _loaded: list[LoadedSource] = attrs.field(factory=list)
    _closings: int = 0
    """The number of times that `aclose` was called; a source that was being loaded then is closed, too."""
    _replacing: dict[str, LoadedSource] = attrs.field(factory=dict)
    """The sources that are being reloaded, by name."""
    _retiring: dict[asyncio.Task[None], LoadedSource] = attrs.field(factory=dict)
    """Replaced sources that may still have calls in progress."""

    async def load(
        self,
        name: str,
        options: SourceOptions,
        table: Mapping[str, Any],
        base_dir: Path | None,
        where: str,
        called: str | None = None,
        again: Callable[[], Awaitable[object]] | None = None,
        operation: str | None = None,
    ) -> list[OperationSpec]:
        """Load one source: all of its operations, or none. See `OperationRegistry.load` for errors.

        Args:
            name: the kind of the source, such as ``openapi``.
            options: the options that all sources share.
            table: the source's own options.
            base_dir: the folder from which relative paths start; ``None`` means the current folder.
            where: the place of the table, for messages.
            called: the name of the table; ``None`` if the source is loaded from Python.
            again: reloads the source; by default, this method is called again.
            operation: the id of the only operation that will be called; ``None`` if others may be called, too.
        """
        from operad.config.access_rules import AccessRules
        from operad.config.structuring import structure

        try:
            source = self.plugins.source(name)
        except PluginError as error:
            raise error if called is None else PluginError(f"{error} @ {where}") from None
        check_keys(source.config_type, table, where)
        config = structure(source.config_type, table, where)
        rules = AccessRules.of(options.access, where)
        context = attrs.evolve(self._context(name, options, base_dir, called), operation=operation)
        closings = self._closings
        session = await source.open(config, context)
        usage = getattr(session, "usage", None) or Usage()
        usage.within(self.pipeline.usage)
        pipeline = attrs.evolve(
            self.pipeline,
            normalize=options.normalize or self.pipeline.normalize,
            on_mismatch=options.on_mismatch or self.pipeline.on_mismatch,
            usage=usage,
        )
        if closings != self._closings:
            await session.aclose()
            raise SourceError(f"{where}: the registry was closed while the source was being loaded; load it again")
        label = f'"{options.namespace or name}"' if called is None else where
        owner = f"source {label} ({name})"
        loaded = LoadedSource(session, owner, self.catalogue, pipeline, rules, usage, self.pipeline.usage)
        loaded.name, loaded.type, loaded.exclusive = called or options.namespace or name, name, options.exclusive
        loaded.again = again or partial(self.load, name, options, table, base_dir, where, called)
        try:
            specs = loaded.start(old := self._replacing.get(loaded.name))
        except BaseException as error:
            await session.aclose()
            if isinstance(error, Exception) and not isinstance(error, OperadError):
                raise SourceError(f"{where}: the operations of the source cannot be used: {error}") from error
            raise
        self._loaded.append(loaded)
        if old is not None:
            self._loaded.remove(old)
            self._retiring[task := asyncio.create_task(old.retire())] = old
            task.add_done_callback(self._retiring.pop)
        for pattern in rules.unused(specs) if operation is None else ():
            logger.warning('%s: access pattern "%s" matches no operation', where, pattern)
        return specs

    def _context(
        self, name: str, options: SourceOptions, base_dir: Path | None, called: str | None
    ) -> SourceContext:
        return SourceContext(
            plugins=self.plugins,
            registry=self.registry,
            name=called,
            namespace=options.namespace,
            base_dir=base_dir,
            trusted=options.trusted,
            logger=logging.getLogger(f"operad.{name}"),
        )

    async def login(self, configuration: Configuration, name: str, account: str | None) -> Any:
        """Return the `operad.auth.Login` of a configured source; see `OperationRegistry.source_login`."""
        from operad.config.structuring import structure
        from operad.config.variables import Variables

        configuration.check_sources([name])
        variables = Variables()
        try:
            table = read_source(configuration, name, variables)
            source = self.plugins.source(table.source)
            if source.login is None:
                raise ConfigError(f'{table.where}: sources of type "{table.source}" do not support a login')
            config = structure(source.config_type, table.own, table.where)
            context = self._context(table.source, table.options, configuration.folder(name), name)
            return await source.login(config, context, account)
        except OperadError as error:
            variables.redact(error)
            raise

    async def load_all(
        self, configuration: Configuration, names: Iterable[str], *, strict: bool, operation: str | None = None
    ) -> None:
        """Load sources of a configuration concurrently. Failures are kept in `failures`, and logged if not strict.

        Raises:
            ExceptionGroup: ``strict`` is true, and some sources could not be loaded; it has their errors.
        """
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._load_table(configuration, name, operation, quiet=strict))
        if strict and self.failures:
            raise ExceptionGroup("sources could not be loaded", [failure.error for failure in self.failures])

    async def _load_table(
        self, configuration: Configuration, name: str, operation: str | None = None, *, quiet: bool
    ) -> None:
        from operad.config.variables import Variables

        variables = Variables()
        try:
            table = read_source(configuration, name, variables)
            folder = configuration.folder(name)
            again = partial(self._load_table, configuration, name, quiet=False)
            await self.load(table.source, table.options, table.own, folder, table.where, name, again, operation)
        except OperadError as error:
            variables.redact(error)
            if (old := self._replacing.get(name)) is not None:
                old.error = str(error)
            else:
                kind, load = str(configuration.sources[name].get("type")), partial(self._load_table, configuration)
                self.failures.append(SourceFailure(name, error, kind, partial(load, name)))
            if not quiet:
                logger.warning("source %s is not loaded: %s", name, error)

    def states(self) -> list[SourceState]:
        """Return the states of all sources, sorted by name, including those that could not be loaded."""
        states = [
            SourceState(
                name=each.name,
                type=each.type,
                status="stale" if each.error else "loaded",
                operations=len(each.ids),
                error=each.error,
                session=each.session,
            )
            for each in self._loaded
        ]
        states += [
            SourceState(name=failure.name, type=failure.type, status="failed", error=str(failure.error))
            for failure in self.failures
        ]
        return sorted(states, key=lambda state: state.name)

    def why_missing(self, operation_id: str) -> str:
        """Return the end of a message about an unknown id, which names empty or failed sources; else ``""``."""
        for loaded in self._loaded:
            if not loaded.ids and operation_id.startswith(f"{loaded.name}."):
                return f"; source [sources.{loaded.name}] has no operations at present"
        failures = [each for each in self.failures if operation_id.startswith(f"{each.name}.")] or self.failures
        if len(failures) == 1:
            return f"; source [sources.{failures[0].name}] is not loaded: {failures[0].error}"
        names = ", ".join(sorted(failure.name for failure in failures))
        return f"; these sources are not loaded: {names}" if names else ""

    def why_held(self, operation_id: str) -> str | None:
        """Return the reason why a source does not register this operation; ``None`` if no source states one."""
        held = [getattr(loaded.session, "held", {}).get(operation_id) for loaded in self._loaded]
        return next(filter(None, held), None)

    async def reload(self, name: str) -> None:
        """Load a source again. Its operations stay available until the new ones replace them.

        If loading fails, the old operations stay, and the state of the source is ``stale``. The old session is
        closed when its calls in progress have ended. An ``exclusive`` source is closed first, so if loading fails,
        its operations are missing. Errors of loading are raised for a source loaded from Python, and logged for
        one of the configuration. Raises `ConfigError` for an unknown name, `SourceError` during another reload.
        """
        from operad.words import did_you_mean

        if name in self._replacing:
            raise SourceError(f'source "{name}" is already being reloaded; wait until that has ended')
        for loaded in self._loaded:
            if loaded.name == name:
                if loaded.exclusive:
                    self._loaded.remove(loaded)
                    await loaded.aclose()
                else:
                    self._replacing[name] = loaded
                try:
                    await loaded.again()
                except OperadError as error:
                    loaded.error = str(error)
                    raise
                finally:
                    self._replacing.pop(name, None)
                return
        for failure in self.failures:
            if failure.name == name and failure._again is not None:
                self.failures.remove(failure)
                await failure._again(quiet=False)
                return
        known = did_you_mean(name, {state.name for state in self.states()})
        raise ConfigError(f'unknown source "{name}"{known}')

    async def describe(self, operation_id: str) -> None:
        """Let the source of an operation load the missing parts of its spec; ignore an unknown id."""
        for loaded in self._loaded:
            describe = getattr(loaded.session, "describe", None)  # a session need not be a SourceSession
            if describe is not None and operation_id in loaded.ids:
                await describe(operation_id)

    async def aclose(self) -> None:
        """Close the sources, the last one first, and remove their operations. Exceptions are logged."""
        self._closings += 1
        self._loaded += self._retiring.values()
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        cancelled: BaseException | None = None
        while self._loaded:
            try:
                await self._loaded.pop().aclose()
            except BaseException as error:  # noqa: BLE001  # raised below, after the other sources are closed
                cancelled = error
        if cancelled is not None:
            raise cancelled
