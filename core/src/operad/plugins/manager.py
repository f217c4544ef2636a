"""The plugins of an application: adding them, calling their hooks, and their records.

A plugin that fails is reported and does not affect other plugins. A `Plugins` object has all contributions, and
nothing is global: two applications, or two tests, in one process never see each other's plugins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
import pluggy

from operad import hookspecs
from operad.calls import CallMap, CallServer
from operad.envelopes import EnvelopeKinds
from operad.errors import OperadError, PluginError
from operad.observers import Observers
from operad.plugins import distributions
from operad.plugins.checks import (
    CONTRIBUTING,
    Refused,
    check_hooks,
    check_marks,
    check_version,
    contributions,
    other_hooks,
    word,
)
from operad.plugins.record import PluginRecord
from operad.sources import Server, Source
from operad.words import in_words, nearest

if TYPE_CHECKING:
    from operad.transports import Transport, TransportFactory

logger = logging.getLogger("operad")


class Plugins:
    """The plugins of one application, and their contributions.

    ``Plugins()`` has no plugins. `load_plugins` returns the installed ones, and `register` adds one of your own.
    """

    envelope_kinds: EnvelopeKinds
    """The known envelope kinds; `envelope_kinds.from_wire(json)` returns the envelope with that JSON form."""

    def __init__(self) -> None:
        self._hooks = pluggy.PluginManager(hookspecs.PROJECT)
        self._hooks.add_hookspecs(hookspecs)
        self._records: list[PluginRecord] = []
        self._loaded: dict[int, tuple[object, PluginRecord]] = {}  # by identity, in the order of loading
        self._owners: dict[tuple[str, str], PluginRecord] = {}
        self._contributed: dict[str, dict[str, Any]] = {kind: {} for _, kind, _ in CONTRIBUTING}
        self.envelope_kinds = EnvelopeKinds()

    # --- contents --------------------------------------------------------------------------------

    @property
    def records(self) -> tuple[PluginRecord, ...]:
        """The record of each plugin, in the order of loading."""
        return tuple(self._records)

    def __iter__(self) -> Iterator[PluginRecord]:
        return iter(self.records)

    def __repr__(self) -> str:
        return f"Plugins({', '.join(f'{record.name}: {record.status}' for record in self._records)})"

    @property
    def sources(self) -> Mapping[str, Source]:
        """The sources of all plugins by name; read-only."""
        return MappingProxyType(self._contributed["sources"])

    @property
    def servers(self) -> Mapping[str, Server]:
        """The servers of all plugins by name; read-only."""
        return MappingProxyType(self._contributed["servers"])

    @property
    def transports(self) -> Mapping[str, TransportFactory]:
        """The transport factories of all plugins by URL scheme; read-only."""
        return MappingProxyType(self._contributed["transports"])

    def source(self, name: str) -> Source:
        """Return the source with this name. Raises `PluginError`, with a remedy, if the name is unknown."""
        found: Source = self._get("sources", name)
        return found

    def server(self, name: str) -> Server:
        """Return the server with this name. Raises `PluginError`, with a remedy, if the name is unknown."""
        found: Server = self._get("servers", name)
        return found

    def transport(self, url: str, **options: Any) -> Transport:
        """Return the transport for a URL; nothing is connected yet.

        Args:
            url: a URL such as ``nats://127.0.0.1:4222``; its scheme chooses the plugin.
            options: arguments of the plugin's factory besides the URL.

        Raises:
            PluginError: ``url`` has no scheme, no plugin supports it (the message names what to install), or the
                plugin's factory fails.
            ConfigError: the factory rejects the URL or an option.
        """
        scheme, separator, _ = url.lower().partition("://")
        if not separator:
            raise PluginError(f'transport URL "{url:.80}": expected scheme://…, such as ws://127.0.0.1:8765')
        factory: TransportFactory = self._get("transports", scheme)
        try:
            made: Transport = factory.create(url, **options)
            return made
        except OperadError:
            raise
        except Exception as error:
            owner = self._owners["transports", scheme].label
            raise PluginError(f'transport "{scheme}" of plugin {owner} raised {in_words(error)}') from error

    def call_map(self, transport: str | Transport, **options: Any) -> CallMap:
        """Return a call map for a transport; nothing is connected yet.

        Args:
            transport: a transport, or its URL, such as ``nats://127.0.0.1:4222``.
            options: keyword arguments of the call map, such as ``timeout`` (s).

        Raises:
            PluginError: no plugin handles the transport (the message names what to install), or a hook fails.
            ConfigError: the URL or an option cannot be used.
        """
        made: CallMap = self._first(CallMap, transport, options={"plugins": self, **options})
        return made

    def call_server(self, registry: Any, transport: str | Transport, **options: Any) -> CallServer:
        """Return a call server for the operations of a registry; nothing is connected yet.

        Args:
            registry: the registry whose operations are served.
            transport: a transport, or its URL.
            options: keyword arguments of the call server, such as ``identity``.

        Raises:
            PluginError: no plugin handles the transport (the message names what to install), or a hook fails.
            ConfigError: the URL or an option cannot be used.
        """
        made: CallServer = self._first(CallServer, transport, registry=registry, options=options)
        return made

    def _first(self, kind: type, transport: str | Transport, **arguments: Any) -> Any:
        """Return the first result of the implementations of a kind's hook that is not ``None``."""
        hook = "operad_call_map" if kind is CallMap else "operad_call_server"
        over = self.transport(transport) if isinstance(transport, str) else transport
        for record, call in self._implementations(hook):
            try:
                made = call(transport=over, **arguments)
            except OperadError:
                raise
            except Exception as error:
                raise PluginError(f"plugin {record.label}: {hook} raised {in_words(error)}") from error
            if isinstance(made, kind):
                return made
            if made is not None:
                raise PluginError(f"plugin {record.label}: {hook}: expected {kind.__name__}, got {made!r:.60}")
        hint = self._missing_hint({}, distributions.OF["hooks"][hook], hook)
        raise PluginError(f"no plugin implements {hook} for {type(over).__name__}; {hint}")

    def _get(self, kind: str, name: str) -> Any:
        table = self._contributed[kind]
        if name in table:
            return table[name]
        known = ", ".join(sorted(table)) or "none"
        hint = self._missing_hint(table, distributions.OF[kind].get(name), name)
        raise PluginError(f'unknown {word(kind)} "{name}"; {hint} (known: {known})')

    def _missing_hint(self, table: Mapping[str, Any], distribution: str | None, name: str) -> str:
        absent = [record for record in self._records if record.status != "loaded"]
        ours = [record for record in absent if distribution is not None and record.distribution == distribution]
        for record in ours or [record for record in absent if record.name == name]:
            if record.status == "disabled":
                where = "disable=, only=, OPERAD_PLUGINS and OPERAD_DISABLE_PLUGINS"
                return f"its plugin {record.label} is disabled: see {where}"
            return f"its plugin {record.label} is not loaded: {record.error}"
        if distribution is not None:
            here = f"{distribution} is installed but not loaded: use OperationRegistry(load_plugins())"
            return here if _is_installed(distribution) else f"install it: pip install {distribution}"
        if meant := nearest(name, table, cutoff=0.75):
            return f'did you mean "{meant}"?'
        if absent:
            return f"a plugin that is not loaded may offer it: {', '.join(r.label for r in absent)}"
        return "no installed plugin offers it"

    # --- hooks -----------------------------------------------------------------------------------

    def implementations(self, hook: str) -> tuple[Callable[..., Any], ...]:
        """Return the implementations of a hook. Call each with all keyword arguments of the hook.

        They are in the order of loading. ``@hookimpl(tryfirst=True)`` moves an implementation to the start,
        ``trylast=True`` moves it to the end.
        """
        return tuple(call for _, call in self._implementations(hook))

    def _implementations(self, hook: str) -> list[tuple[PluginRecord, Callable[..., Any]]]:
        order = {key: index for index, key in enumerate(self._loaded)}
        found = sorted(
            getattr(self._hooks.hook, hook).get_hookimpls(),
            key=lambda impl: (impl.trylast - impl.tryfirst, order[id(impl.plugin)]),
        )
        return [(self._loaded[id(impl.plugin)][1], _callable(impl)) for impl in found]

    def observers(self) -> Observers:
        """Return the plugins' observers of calls: ``operad_call_started``, ``…_reported`` and ``…_finished``."""
        hooks = ("operad_call_started", "operad_call_finished", "operad_call_reported")
        return Observers(*map(self.implementations, hooks))

    def register_operations(self, registry: Any) -> list[PluginError]:
        """Let each plugin register its operations. Log exceptions, and return them as `PluginError`."""
        return self._call_each("operad_register_operations", registry=registry)

    def add_commands(self, cli: Any) -> list[PluginError]:
        """Let each plugin add its commands to ``cli``. Log exceptions, and return them as `PluginError`."""
        return self._call_each("operad_commands", cli=cli)

    def _call_each(self, hook: str, **arguments: Any) -> list[PluginError]:
        errors = []
        for record, call in self._implementations(hook):
            try:
                call(**arguments)
            except Exception as cause:
                error = PluginError(f"plugin {record.label}: {hook} raised {in_words(cause)}")
                error.__cause__ = cause
                logger.exception("%s", error)
                errors.append(error)
        return errors

    # --- adding ----------------------------------------------------------------------------------

    def register(
        self,
        plugin: object,
        name: str | None = None,
        *,
        distribution: str | None = None,
        version: str | None = None,
    ) -> PluginRecord:
        """Add a plugin: a module or object with hook implementations. Either all of it is added, or nothing.

        Args:
            plugin: the module or object.
            name: the plugin's name; by default that of the module or class.
            distribution: the distribution that contains the plugin; ``None`` for a plugin of the application.
            version: the version of the distribution, for messages.

        Raises:
            PluginError: the plugin is incompatible, has a misspelt hook, conflicts with another plugin, or one of
                its hooks fails. The message names the plugin and the reason.
        """
        name = name or getattr(plugin, "__name__", None) or type(plugin).__name__
        record = PluginRecord(name, distribution, version)
        try:
            record = self._register(plugin, record)
        except Refused as refused:
            error = f"{refused}{_leave_out(record)}" if refused.status == "failed" else str(refused)
            record = attrs.evolve(record, status=refused.status, error=error)
            self.add_record(record)
            raise PluginError(f"plugin {record.label}: {error}") from refused.__cause__
        self.add_record(record)
        return record

    def add_record(self, record: PluginRecord) -> None:
        """Add the record of a plugin that failed before `register`."""
        self._records.append(record)

    def _register(self, plugin: object, record: PluginRecord) -> PluginRecord:
        manager = self._hooks
        self._check_new(plugin, record)
        try:
            check_version(plugin)
            check_marks(plugin)
            # pluggy wants names to be unique; entry points of two distributions may share one.
            manager.register(plugin, f"{record.name} {record.distribution or ''}")
            check_hooks(manager, plugin)
            found = contributions(manager, plugin)
            self._check_free(found, record)
        except BaseException as error:  # whatever the error is, nothing of the plugin may stay
            if manager.is_registered(plugin):
                manager.unregister(plugin)
            if isinstance(error, (Refused, KeyboardInterrupt)):
                raise
            raise Refused(in_words(error)) from error
        for kind in found["envelope_kinds"].values():
            self.envelope_kinds.add(kind)
        for each, items in found.items():
            self._contributed[each].update(items)
        names = {kind: tuple(items) for kind, items in found.items() if items}
        if hooks := other_hooks(manager, plugin):
            names["hooks"] = hooks
        record = attrs.evolve(record, contributes=names)
        self._loaded[id(plugin)] = plugin, record
        self._owners.update({(kind, item): record for kind, items in found.items() for item in items})
        return record

    def _check_new(self, plugin: object, record: PluginRecord) -> None:
        for other, loaded in self._loaded.values():
            if other is plugin:
                raise Refused(f"this object is loaded already, as {loaded.label}; register it once", "conflict")
            if (loaded.name, loaded.distribution) == (record.name, record.distribution):
                raise Refused(f"a plugin of this name is loaded already: {loaded.label}; rename one", "conflict")

    def _check_free(self, found: Mapping[str, Mapping[str, Any]], record: PluginRecord) -> None:
        for kind, items in found.items():
            for name in items:
                owner = self._owners.get((kind, name))
                if owner is None and kind == "envelope_kinds" and name in self.envelope_kinds:
                    raise Refused(f'{word(kind)} "{name}" belongs to the core; choose another source', "conflict")
                if owner is not None:
                    raise Refused(
                        f'{word(kind)} "{name}" is claimed by {owner.label} and by {record.label}; the first one '
                        f"is used: disable one of them{_switches(owner, record)}",
                        "conflict",
                    )


def _is_installed(distribution: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and only for a message

    try:
        return bool(version(distribution))
    except PackageNotFoundError:
        return False


def _switches(*records: PluginRecord) -> str:
    names = [record.distribution for record in records if record.distribution]
    return f" (OPERAD_DISABLE_PLUGINS={' or '.join(names)})" if names else ""


def _leave_out(record: PluginRecord) -> str:
    """Return what a user can do about a broken plugin."""
    if record.distribution is None:
        return ""
    return (
        f"; upgrade {record.distribution}, report it to its author, or disable it: "
        f"OPERAD_DISABLE_PLUGINS={record.name}"
    )


def _callable(impl: pluggy.HookImpl) -> Callable[..., Any]:
    """Return the implementation, to be called with all of the hook's keywords; it may take fewer."""
    names = impl.argnames

    def call(**arguments: Any) -> Any:
        return impl.function(*[arguments[name] for name in names])

    call.__qualname__ = f"{impl.plugin_name.rstrip()}.{impl.function.__name__}"
    vars(call)["is_idle"] = getattr(impl.function, "is_idle", None)  # of observers, see `Observers.active_for`
    return call
